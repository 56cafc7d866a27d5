"""`tao-sdk doctor --recover`: a damaged store, as far as it can be saved."""

from __future__ import annotations

from pathlib import Path

from tao_sdk.cli.session import Session
from tao_sdk.errors import DamagedRowError
from tao_sdk.job_store import JobStore, Row, StatusUpdate, decode_strictly
from tao_sdk.job_store.paths import state_paths
from tao_sdk.job_store.recovery import damage_of, salvage
from tao_sdk.platforms.local.rebuilding import lost_jobs
from tao_sdk.platforms.local.sdk import LocalSDK
from tao_sdk.platforms.local.virtualenv import VirtualEnvSDK


def recover_store(session: Session) -> None:
    """Salvage the store of this invocation if it is damaged."""
    path = Path(state_paths(session.place.state_file).database)
    damage = damage_of(path)
    if not damage:
        session.out.say(f"{path} is not damaged: nothing to recover")
        return
    session.out.say(damage)
    saved = salvage(path)
    rebuilt = _rebuild(path)
    session.out.say(
        f"saved {saved.jobs} jobs, rebuilt {rebuilt} from their folders, could not read "
        f"{saved.lost}; the damaged store is kept as {saved.kept_as}"
    )


def _rebuild(path: Path) -> int:
    """Add the local jobs that the store lacks, or cannot lead to, from their folders."""
    rebuilt = 0
    with JobStore(path) as store:
        for sdk in (LocalSDK(), VirtualEnvSDK()):
            names = [entry.name for entry in _entries(sdk.work_dir / "jobs")]
            rows = store.jobs_by_id(names)
            known = {name for name, row in rows.items() if not _leads_nowhere(row)}
            lost = list(lost_jobs(sdk.work_dir, sdk.platform, known))
            store.apply_updates(
                StatusUpdate(job.job_id, native=job.native) for job in lost if job.job_id in rows
            )
            gone = [job for job in lost if job.job_id not in rows]
            store.begin_submissions(gone)
            for job in gone:
                store.confirm_submission(
                    job.job_id,
                    backend_job_id=job.backend_job_id,
                    native=job.native or {},
                    message=job.message,
                )
            rebuilt += len(lost)
    return rebuilt


def _leads_nowhere(row: Row) -> bool:
    try:
        decode_strictly(row, "native")
    except DamagedRowError:
        return True
    return False


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
