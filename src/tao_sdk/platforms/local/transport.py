"""The local platform's thin transport: folders, pipes and signals. Every round trip is counted."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tao_sdk
from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.local.launch import JobFolder, Launch
from tao_sdk.platforms.local.states import Snapshot
from tao_sdk.process_identity import Fate, ProcessIdentity, group_alive
from tao_sdk.result_record import ResultRecord

_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from tao_sdk.platforms.local.supervisor import main; main()"
)


class LocalTransport:
    """Reaches jobs by their folders, wherever those are."""

    def __init__(self) -> None:
        self.calls = CallLog()

    def spawn(self, launch: Launch, files: Mapping[str, str], results: Path) -> int:
        """Start a supervisor and wait until it has claimed the job; returns its process id."""
        self.calls.record("spawn")
        folder = JobFolder(Path(launch.folder))
        _make_private(folder.root)
        folder.root_marker.touch(mode=0o600)
        _make_private(folder.path.parent)
        _make_private(folder.path)
        for name, text in files.items():
            path = folder.path / name
            _make_private(path.parent)
            _write_private(path, text.encode())
        results.mkdir(parents=True, exist_ok=True)
        answer = self._start_supervisor(launch, folder)
        if "claimed" in answer:
            return int(answer["claimed"])
        if launch.when_busy == "refuse":
            shutil.rmtree(folder.path)
            results.rmdir()
            raise CapacityError(f"{answer['refused']}; when_busy='wait' queues the job")
        raise SubmissionRejectedError(str(answer["refused"]))

    def _start_supervisor(self, launch: Launch, folder: JobFolder) -> dict[str, Any]:
        package_parent = str(Path(tao_sdk.__file__).parent.parent)
        errors = os.open(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = subprocess.Popen(
                # -E -s -S: the supervisor's start must not depend on the job's environment.
                [sys.executable, "-E", "-s", "-S", "-c", _START, package_parent],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(errors)
        answer, _ = process.communicate(launch.dumps())
        if not answer:
            said = folder.supervisor_log.read_text(encoding="utf-8", errors="replace").strip()
            raise SubmissionRejectedError(
                f"the supervisor did not start (exit {process.returncode}): "
                f"{said.splitlines()[-1] if said else 'it said nothing'}"
            )
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    def fence(self, jobs: Iterable[tuple[JobFolder, Path]]) -> list[bool]:
        """For each job (folder, results): True if a supervisor has it; otherwise none ever will."""
        self.calls.record("fence")
        return [self._fence_one(folder, results) for folder, results in jobs]

    def _fence_one(self, folder: JobFolder, results: Path) -> bool:
        if not folder.root.exists():  # the first job that anyone tried to put there
            return False
        _require_root(folder)
        # Whoever creates the claim decides. If it is us, a supervisor that is still on its way
        # finds the claim taken, or the folder gone, and gives up.
        if not folder.path.is_dir():
            return False
        draft = folder.path / f"fence.{os.getpid()}"
        _write_private(draft, json.dumps({"abandoned": True}).encode())
        try:
            os.link(draft, folder.claim)
        except FileExistsError:
            return "abandoned" not in (folder.read_claim() or {})
        finally:
            draft.unlink()
        # Only tidying up: the claim has decided. A late supervisor may be writing its draft.
        shutil.rmtree(folder.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            results.rmdir()
        return False

    def scan(self, jobs: Iterable[tuple[JobFolder, Path, str]]) -> list[Snapshot]:
        """Read all these jobs (folder, results folder, id) in one pass."""
        self.calls.record("scan")
        return [_snapshot(folder, results, job_id) for folder, results, job_id in jobs]

    def terminate(self, folder: JobFolder, grace_seconds: float) -> None:
        """Ask the supervisor to stop the job; without a supervisor, stop it ourselves."""
        self.calls.record("terminate")
        _require_root(folder)
        claim = folder.read_claim() or {}
        if _signal_exactly(ProcessIdentity.parse(claim.get("supervisor", "")), signal.SIGTERM):
            return
        groups = [rank.pid for rank in _rank_processes(folder.read_state()) if rank.alive]
        _signal_groups(groups, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while groups := [group for group in groups if group_alive(group)]:
            if time.monotonic() >= deadline:
                _signal_groups(groups, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self, folder: JobFolder, results: Path) -> None:
        """Remove a job's folders for good; one that is not there is fine."""
        self.calls.record("remove")
        _require_root(folder)
        for path in (results, folder.path):
            if path.is_symlink():
                raise BackendUnreachableError(f"{path} is a link now; not following it")
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)


def _require_root(folder: JobFolder) -> None:
    if not folder.root_marker.exists():
        raise BackendUnreachableError(_not_there(folder))


def _not_there(folder: JobFolder) -> str:
    return f"the folder of local jobs is not there: {folder.root} (is its disk mounted?)"


def _make_private(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def read_records(results: Path, job_id: str) -> list[ResultRecord]:
    """The records that a job left beside its results, by rank."""
    texts = (path.read_text(encoding="utf-8") for path in results.glob("tao_result*.json"))
    records = (ResultRecord.parse(text, job_id) for text in texts)
    found = [record for record in records if record is not None]
    return sorted(found, key=lambda record: record.rank)


def _snapshot(folder: JobFolder, results: Path, job_id: str) -> Snapshot:
    if not folder.root_marker.exists():
        return Snapshot(None, None, unreachable=_not_there(folder))
    claim = folder.read_claim()
    state = folder.read_state()
    if claim is None or (state or {}).get("phase") == "done":
        return Snapshot(claim, state)
    supervisor = ProcessIdentity.parse(str(claim.get("supervisor", "")))
    fate = supervisor.fate if supervisor else Fate.GONE
    if fate is not Fate.GONE:
        return Snapshot(claim, state, fate)
    # Read again: between the two reads the supervisor may have finished properly.
    state = folder.read_state()
    alive = tuple(rank.alive for rank in _rank_processes(state))
    return Snapshot(claim, state, fate, alive, tuple(read_records(results, job_id)))


def _rank_processes(state: dict[str, Any] | None) -> list[ProcessIdentity]:
    ranks = (state or {}).get("ranks", [])
    identities = (ProcessIdentity.parse(rank["process"]) for rank in ranks)
    return [identity for identity in identities if identity is not None]


def _signal_groups(groups: Iterable[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


def _signal_exactly(process: ProcessIdentity | None, number: signal.Signals) -> bool:
    """Signal this very process; False when it is gone (its number may belong to another)."""
    if process is None or process.fate is not Fate.ALIVE:
        return False
    try:
        if not hasattr(os, "pidfd_open"):
            os.kill(process.pid, number)
            return True
        # The descriptor pins the process: checked again after opening, it cannot be another one.
        descriptor = os.pidfd_open(process.pid)
        try:
            if not process.alive:
                return False
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        return False
    return True


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as out:
        out.write(data)
