"""Reading the files and processes of local jobs. Nothing here changes anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.gpus.leases import is_held
from tao_sdk.platforms.local.job_files import DamagedFileError, LocalJob
from tao_sdk.platforms.local.process_groups import Session
from tao_sdk.platforms.local.status import Snapshot, elsewhere
from tao_sdk.process_identity import Fate, ProcessIdentity, is_this_machine
from tao_sdk.result_record import MAX_RECORD_BYTES, ResultRecord, record_name
from tao_sdk.untrusted import read_regular


@contextlib.contextmanager
def reaching(root: Path) -> Iterator[None]:
    """Report a failing disk or a damaged file as a platform that cannot be reached: neither says
    anything about the jobs.
    """
    try:
        yield
    except (OSError, DamagedFileError) as error:
        raise BackendUnreachableError(f"the local jobs in {root}: {error}") from error


def require_reachable(job: LocalJob) -> None:
    """Raise unless the files of this job are visible from here."""
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
        raise BackendUnreachableError(elsewhere(job.host))


def snapshot(job: LocalJob) -> Snapshot:
    """Everything that can be read about a job now; an error concerns this job only."""
    try:
        with reaching(job.folder.root):
            require_reachable(job)
            return _read(job)
    except BackendUnreachableError as error:
        return Snapshot(None, None, unreachable=str(error))


def read_records(job: LocalJob) -> list[ResultRecord]:
    """The records that a job left beside its results, by rank."""
    found = []
    for rank in range(job.nodes):
        data = read_regular(job.results / record_name(rank), MAX_RECORD_BYTES)
        record = ResultRecord.parse((data or b"").decode("utf-8", "replace"), job.job_id)
        if record is not None:
            found.append(record)
    return found


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
    records = tuple(read_records(job))
    return Snapshot(claim, state, job.nodes, fate, alive, records)
