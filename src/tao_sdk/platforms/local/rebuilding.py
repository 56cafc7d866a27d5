"""Jobs whose rows were lost with a damaged store, as their own folders describe them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from tao_sdk.errors import ValidationError
from tao_sdk.job_states import validate_job_id
from tao_sdk.job_store import NewJob
from tao_sdk.platforms.backend import JobIdentity
from tao_sdk.platforms.local.job_files import DamagedFileError, JobFolder
from tao_sdk.process_identity import ProcessIdentity, this_host


def lost_jobs(root: Path, platform: str, known: Collection[str]) -> Iterator[NewJob]:
    """The jobs below `root` that are not known; one whose files are damaged is left out."""
    jobs = root / "jobs"
    for path in sorted(jobs.iterdir()) if jobs.is_dir() else ():
        if path.name not in known and (job := _job_in(path, platform)):
            yield job


def _job_in(path: Path, platform: str) -> NewJob | None:
    folder = JobFolder(path)
    try:
        job_id = validate_job_id(path.name)
        claim, state = folder.read_claim() or {}, folder.read_state() or {}
    except (ValidationError, DamagedFileError, OSError):
        return None
    supervisor = ProcessIdentity.parse(str(claim.get("supervisor", "")))
    if "token" not in claim:
        return None  # it never started
    nodes = state.get("nodes")
    results = str(folder.root / "results" / job_id)
    identity = JobIdentity(job_id, str(claim["token"]))
    return NewJob(
        job_id=job_id,
        network_arch="",
        action="",
        workspace_id=platform,
        backend_type=platform,
        token=identity.token,
        owner="",
        native={
            "folder": str(path),
            "nodes": nodes if isinstance(nodes, int) else 1,
            "host": supervisor.host if supervisor else this_host(),
            "root": folder.root_name,
        },
        results_dir=results,
        local_results_dir=results,
        backend_job_id=identity.name,
        message="rebuilt from its folder",
    )
