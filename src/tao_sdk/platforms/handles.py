"""Stored rows as the jobs and statuses that an SDK returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tao_sdk.models import Job, JobState, JobStatus
from tao_sdk.platforms.backend import Backend
from tao_sdk.platforms.capabilities import ListsResults
from tao_sdk.platforms.observation import describe
from tao_sdk.platforms.staged_data import storage_for
from tao_sdk.platforms.submit import job_ref

Row = Mapping[str, Any]
_NAMED_JOBS = 3


def job_of(row: Row) -> Job:
    """A job as it is stored; not yet a live handle."""
    return Job(
        id=row["job_id"],
        network_arch=row["network_arch"],
        action=row["action"],
        workspace_id=row["workspace_id"],
        backend_type=row["backend_type"],
        status=row["status"],
        created_at=row["created_at"],
        backend_job_id=row["backend_job_id"],
        parent_job_id=row["parent_job_id"] or "",
        results_dir=row["results_dir"],
        local_results_dir=row["local_results_dir"],
        base_checkpoint=row["base_checkpoint"],
    )


def status_of(job_id: str, row: Row | None, platform: str) -> JobStatus:
    """A job's status for an SDK of `platform`; it may be unknown, or another platform's."""
    if row is None:
        return JobStatus(job_id, JobState.UNKNOWN.value, "Job not found")
    if row["backend_type"] != platform:
        return JobStatus(
            job_id,
            JobState.UNKNOWN.value,
            f"this job runs on {row['backend_type']}, and this SDK is for {platform}",
        )
    return describe(row)


def still_open(statuses: Mapping[str, JobStatus], seconds: float) -> str:
    """The message of a wait that timed out: which jobs go on, and their states."""
    waiting = [status for status in statuses.values() if not status.terminal]
    named = "; ".join(
        f"{status.job_id} is {status.status}" + (f" ({status.message})" if status.message else "")
        for status in waiting[:_NAMED_JOBS]
    )
    more = f" and {len(waiting) - _NAMED_JOBS:,} more" if len(waiting) > _NAMED_JOBS else ""
    return (
        f"{len(waiting):,} of {len(statuses):,} jobs had not ended after {seconds:.3g} s, "
        f"and go on: {named}{more}"
    )


def checkpoints_of(row: Row, backend: Callable[[], Backend] | None) -> list[str]:
    """The checkpoints of a job, oldest first; the backend, if there is one, is asked last."""
    from tao_sdk.checkpoints import iter_local_checkpoint_candidates, remote_checkpoints

    if storage := storage_for(row["results_dir"]):
        return remote_checkpoints(row["results_dir"], storage.list_files(row["results_dir"]))
    if row["local_results_dir"]:
        found = iter_local_checkpoint_candidates(row["local_results_dir"])
        return [c.path for c in sorted(found, key=lambda c: (c.mtime, c.path))]
    platform = backend() if backend is not None else None
    if isinstance(platform, ListsResults):
        return remote_checkpoints(row["results_dir"], platform.result_files(job_ref(row)))
    return []
