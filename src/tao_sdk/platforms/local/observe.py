"""Reading the files and processes of local jobs. Nothing here changes anything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef, Observation
from tao_sdk.platforms.gpus.leases import is_held
from tao_sdk.platforms.local.job_files import DamagedFileError, JobFolder, LocalJob
from tao_sdk.platforms.local.process_groups import Session
from tao_sdk.platforms.local.status import Snapshot, elsewhere, interpret
from tao_sdk.process_identity import Fate, ProcessIdentity, is_this_machine, this_host
from tao_sdk.result_record import read_records


@contextlib.contextmanager
def reaching(root: Path) -> Iterator[None]:
    """Report a failing disk or a damaged file as a platform that cannot be reached: neither says
    anything about the jobs.
    """
    try:
        yield
    except (OSError, DamagedFileError) as error:
        raise BackendUnreachableError(f"the local jobs in {root}: {error}") from error


def why_elsewhere(job: LocalJob) -> str:
    """Why the files of this job are not visible from here; "" if they would be."""
    folder = job.folder
    try:
        if not folder.root_marker.exists():
            return f"the folder of local jobs is not there: {folder.root} (is its disk mounted?)"
        if job.root_name not in ("", folder.root_name):
            return (
                f"{folder.root} is not the folder in which this job was started, but one made "
                "since in its place (is its disk mounted?)"
            )
        missing = not folder.path.exists()
    except OSError as error:
        return f"the local jobs in {folder.root}: {error}"
    return elsewhere(job.host) if missing and not is_this_machine(job.host) else ""


def snapshot(job: LocalJob) -> Snapshot:
    """Everything that can be read about a job now; an error concerns this job only."""
    try:
        with reaching(job.folder.root):
            return _read(job)
    except BackendUnreachableError as error:
        return Snapshot(None, None, unreachable=str(error))


class _Running(NamedTuple):
    """A job whose supervisor lived when its state was read."""

    state_path: str
    signature: tuple[int, int, int]
    supervisor: ProcessIdentity
    observation: Observation

    @property
    def is_unchanged(self) -> bool:
        return _signature(self.state_path) == self.signature and self.supervisor.alive


class Observer:
    """Observes jobs poll after poll. Of a job that runs on, nothing is read again."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], _Running] = {}

    def observe(self, job: JobRef) -> Observation:
        """The state of the job now."""
        key = (job.job_id, str(job.native["folder"]))
        known = self._running.pop(key, None)
        if known is None or not known.is_unchanged:
            known, observation = _look(job)
            if known is None:
                return observation
        self._running[key] = known
        return known.observation


def _look(job: JobRef) -> tuple[_Running | None, Observation]:
    here = local_job(job)
    path = str(here.folder.state)
    signature = _signature(path)  # first: a change after this is noticed by the next poll
    seen = snapshot(here)
    observation = interpret(seen)
    supervisor = ProcessIdentity.parse(str((seen.claim or {}).get("supervisor", "")))
    is_ours = supervisor is not None and supervisor.host == this_host()
    if signature and supervisor and is_ours and seen.supervisor is Fate.ALIVE:
        return _Running(path, signature, supervisor, observation), observation
    return None, observation


def _signature(path: str) -> tuple[int, int, int] | None:
    """Differs after every change of a file that is replaced as a whole."""
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands of paths, poll after poll
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def local_job(job: JobRef) -> LocalJob:
    """A job of the store as its files show it."""
    native = job.native
    return LocalJob(
        job.job_id,
        JobFolder(Path(native["folder"])),
        Path(job.results_dir),
        int(native["nodes"]),
        str(native["host"]),
        str(native.get("root", "")),
    )


def sessions_of(job: LocalJob) -> list[Session]:
    """The sessions of a job's ranks, as its supervisor recorded them."""
    ranks = (job.folder.read_state() or {}).get("ranks", [])
    leaders = (ProcessIdentity.parse(rank["process"]) for rank in ranks)
    return [Session(leader, job.job_id) for leader in leaders if leader is not None]


def _read(job: LocalJob) -> Snapshot:
    folder = job.folder
    claim, state = folder.read_claim(), folder.read_state()
    if claim is None or (state or {}).get("phase") == "done":
        return Snapshot(claim, state)
    if not claim and not is_this_machine(job.host):
        # Its content may not have reached the shared disk yet.
        return Snapshot(claim, state, unreachable=elsewhere(job.host))
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
    alive = tuple(bool(session.members()) for session in sessions_of(job))
    records = tuple(read_records(job.results, job.job_id, job.nodes))
    restarted = supervisor is not None and supervisor.of_earlier_boot
    return Snapshot(claim, state, job.nodes, fate, alive, records, restarted=restarted)
