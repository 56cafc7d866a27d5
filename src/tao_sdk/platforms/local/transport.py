"""The local platform's thin transport: folders, pipes and signals. Every round trip is counted."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.gpus.leases import is_held
from tao_sdk.platforms.local.launch import (
    DamagedFileError,
    JobFolder,
    Launch,
    LocalJob,
    Staged,
    current_umask,
    write_private,
)
from tao_sdk.platforms.local.sessions import Session, end_all
from tao_sdk.platforms.local.states import Snapshot, elsewhere
from tao_sdk.process_identity import (
    Fate,
    ProcessIdentity,
    is_this_machine,
    signal_if,
)
from tao_sdk.result_record import ResultRecord, record_name

if TYPE_CHECKING:
    from tao_sdk.platforms.local.spawner import Spawner

_KILL_SECONDS = 0.05


class LocalTransport:
    """Reaches jobs by their folders, wherever those are."""

    def __init__(self) -> None:
        self.calls = CallLog()

    @functools.cached_property
    def _spawner(self) -> Spawner:
        # Loaded by the first job: those who only look at jobs need neither it nor subprocess.
        from tao_sdk.platforms.local.spawner import Spawner

        return Spawner()

    def make_root(self, root: Path) -> None:
        """Make the folder of all jobs, marked with a name of its own."""
        marker = JobFolder(root / "jobs" / "any").root_marker
        with reaching(root):
            if marker.exists():
                return
            _make_private(root)
            draft = marker.with_name(f"{marker.name}.{os.urandom(8).hex()}")
            write_private(draft, os.urandom(16).hex())
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.link(draft, marker)
            draft.unlink()

    def make_ready(self) -> None:
        """Start the spawner while its first job is still being written down."""
        try:
            self._spawner.make_ready()
        except OSError as error:
            raise SubmissionRejectedError(f"no process can be started here: {error}") from error

    def spawn(self, launch: Launch, staged: Staged) -> int:
        """Start a supervisor and wait until it has claimed the job; returns its process id."""
        self.calls.record("spawn")
        folder = JobFolder.of(launch)
        _stage(folder, staged)
        with reaching(folder.root):
            answer = self._start_supervisor(launch)
        if "claimed" in answer:
            return int(answer["claimed"])
        if "refused" in answer:
            _unstage(folder, staged)
            raise CapacityError(f"{answer['refused']}; when_busy='wait' queues the job")
        raise SubmissionRejectedError(str(answer["rejected"]))

    def _start_supervisor(self, launch: Launch) -> dict[str, Any]:
        answer = self._spawner.start(launch._replace(umask=current_umask()).dumps())
        if not answer:
            raise SubmissionRejectedError(f"the supervisor did not start: {self._why(launch)}")
        decoded: dict[str, Any] = json.loads(answer)
        return decoded

    def _why(self, launch: Launch) -> str:
        log = JobFolder.of(launch).supervisor_log
        said = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
        said = said or self._spawner.last_words()
        return said.splitlines()[-1] if said else "it was killed, and said nothing"

    def close(self) -> None:
        """Let go of the spawner. Jobs go on."""
        if "_spawner" in self.__dict__:
            self._spawner.close()

    def fence(self, jobs: Iterable[LocalJob]) -> dict[str, bool]:
        """By job id: True if a supervisor has the job; False if none ever will.

        A job that cannot be asked about is left out, and keeps no other from being settled.
        """
        self.calls.record("fence")
        answers = {}
        for job in jobs:
            with contextlib.suppress(BackendUnreachableError):
                answers[job.job_id] = _fence_one(job)
        return answers

    def scan(self, jobs: Iterable[LocalJob]) -> list[Snapshot]:
        """Read all these jobs in one pass."""
        self.calls.record("scan")
        return [_snapshot(job) for job in jobs]

    def terminate(self, job: LocalJob, grace_seconds: float) -> None:
        """Ask the supervisor to stop the job; without a supervisor, stop it ourselves."""
        self.calls.record("terminate")
        with reaching(job.folder.root):
            _require_here(job)
            claim = job.folder.read_claim() or {}
            supervisor = ProcessIdentity.parse(claim.get("supervisor", ""))
            if supervisor is not None and supervisor.fate is Fate.UNKNOWN:
                raise BackendUnreachableError(elsewhere(supervisor.host))
            if supervisor is not None and supervisor.fate is Fate.ALIVE:
                pid = supervisor.pid
                if signal_if(lambda: supervisor.alive, pid, signal.SIGTERM):
                    return
            sessions = _sessions_of(job)
        end_all(sessions, grace_seconds, lambda: time.sleep(_KILL_SECONDS))

    def remove(self, job: LocalJob) -> None:
        """Remove a job's folders for good; one that is not there is fine."""
        self.calls.record("remove")
        with reaching(job.folder.root):
            _require_here(job)
            for path in (job.results, job.folder.path):
                if path.is_symlink():
                    raise BackendUnreachableError(f"{path} is a link now; not following it")
                with contextlib.suppress(FileNotFoundError):
                    _remove_tree(path)


@contextlib.contextmanager
def reaching(root: Path) -> Iterator[None]:
    """A disk that fails is a platform that cannot be reached: nothing is known to have changed.

    A damaged file likewise: it says nothing about the job.
    """
    try:
        yield
    except (OSError, DamagedFileError) as error:
        raise BackendUnreachableError(f"the local jobs in {root}: {error}") from error


def _require_here(job: LocalJob) -> None:
    """Is the place where this job lives visible from here?"""
    folder = job.folder
    if not folder.root_marker.exists():
        raise BackendUnreachableError(
            f"the folder of local jobs is not there: {folder.root} (is its disk mounted?)"
        )
    if job.root_name not in ("", folder.root_name):
        raise BackendUnreachableError(
            f"{folder.root} is not the folder in which this job was started, but one made since in "
            "its place (is its disk mounted?)"
        )
    if not folder.path.exists() and not is_this_machine(job.host):
        raise BackendUnreachableError(
            f"the job belongs to {job.host.partition('/')[0]}, and this is another machine"
        )


def _fence_one(job: LocalJob) -> bool:
    folder = job.folder
    with reaching(folder.root):
        _require_here(job)
        if not folder.path.is_dir():
            return False
        # Whoever creates the claim decides.
        draft = folder.path / f"fence.{os.getpid()}"
        write_private(draft, json.dumps({"abandoned": True}))
        try:
            os.link(draft, folder.claim)
        except FileExistsError:
            return "abandoned" not in (folder.read_claim() or {})
        finally:
            draft.unlink()
        # Out of the way in one step: a supervisor that is still on its way must never find the
        # folder with the claim gone.
        abandoned = folder.path.with_name(f".abandoned-{job.job_id}")
        folder.path.rename(abandoned)
    _remove_tree(abandoned, ignore_errors=True)
    with contextlib.suppress(OSError):
        job.results.rmdir()
    return False


def _stage(folder: JobFolder, staged: Staged) -> None:
    """Make the job's files and folders, all or none."""
    try:
        _make_private(folder.path)
        for name, text in staged.files.items():
            path = folder.path / name
            _make_private(path.parent)
            write_private(path, text)
        for results in staged.folders:
            results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _unstage(folder, staged)
        raise SubmissionRejectedError(
            f"cannot make {error.filename or folder.path}: {error.strerror}; nothing was started. "
            "Choose another folder: results_root= for results, work_dir= of the SDK for the rest"
        ) from error


def _unstage(folder: JobFolder, staged: Staged) -> None:
    _remove_tree(folder.path, ignore_errors=True)
    for results in reversed(staged.folders):
        with contextlib.suppress(OSError):  # not made, or no longer empty
            results.rmdir()


def _make_private(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _remove_tree(path: Path, *, ignore_errors: bool = False) -> None:
    import shutil  # here, because it brings every kind of compression with it

    shutil.rmtree(path, ignore_errors)


def read_records(job: LocalJob) -> list[ResultRecord]:
    """The records that a job left beside its results, by rank."""
    found = []
    for rank in range(job.nodes):
        path = job.results / record_name(rank)
        # The results are the job's own: whatever lies there under our name must not stop us.
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        record = ResultRecord.parse(text, job.job_id)
        if record is not None:
            found.append(record)
    return found


def _snapshot(job: LocalJob) -> Snapshot:
    try:
        with reaching(job.folder.root):
            _require_here(job)
            return _read(job)
    except BackendUnreachableError as error:
        # Only this job: one damaged file must not hide the others.
        return Snapshot(None, None, unreachable=str(error))


def _read(job: LocalJob) -> Snapshot:
    folder = job.folder
    claim, state = folder.read_claim(), folder.read_state()
    if claim is None or (state or {}).get("phase") == "done":
        return Snapshot(claim, state)
    if not claim and not is_this_machine(job.host):
        return Snapshot(claim, state, unreachable=elsewhere(job.host))  # it may not have come here
    supervisor = ProcessIdentity.parse(str(claim.get("supervisor", "")))
    fate = supervisor.fate if supervisor else Fate.GONE
    if supervisor and fate is Fate.UNKNOWN and supervisor.same_boot:
        # Another pid namespace of this machine: its number means nothing here, its lock does.
        if not is_held(folder.claim):
            return Snapshot(claim, state, lost=True)
        fate = Fate.ALIVE
    if supervisor and fate is Fate.UNKNOWN:
        return Snapshot(claim, state, unreachable=elsewhere(supervisor.host))
    if fate is not Fate.GONE:
        return Snapshot(claim, state, supervisor=fate)
    # Read again: between the two reads the supervisor may have finished properly.
    state = folder.read_state()
    alive = tuple(bool(session.members()) for session in _sessions_of(job))
    records = tuple(read_records(job))
    return Snapshot(claim, state, job.nodes, fate, alive, records)


def _sessions_of(job: LocalJob) -> list[Session]:
    ranks = (job.folder.read_state() or {}).get("ranks", [])
    leaders = (ProcessIdentity.parse(rank["process"]) for rank in ranks)
    return [Session(leader, job.job_id) for leader in leaders if leader is not None]
