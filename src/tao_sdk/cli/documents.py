"""Jobs as JSON: the shapes of docs/reference/cli-json.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tao_sdk.cli.jobs import FoundJob, with_whole_requests
from tao_sdk.models import JobStatus

if TYPE_CHECKING:
    from tao_sdk.progress import Progress


def job_fields(job: FoundJob, progress: Progress | None = None) -> dict[str, Any]:
    """A job in the one shape that every document uses. Unknown times and numbers are null."""
    row, request = job.row, job.whole_request
    return {
        "job_id": job.job_id,
        "uri": job.uri,
        "platform": job.platform,
        "status": job.status,
        "terminal": job.terminal,
        "message": job.message,
        "exit_code": row["exit_code"],
        "failure": job.failure,
        "progress": progress.to_dict() if progress else None,
        "command": request.get("command", ""),
        "image": row["image"],
        "gpu_count": request.get("gpu_count"),
        "num_nodes": request.get("num_nodes"),
        "env_names": request.get("env_names", []),
        "options": request.get("options", {}),
        "network_arch": row["network_arch"],
        "action": row["action"],
        "parent_job_id": row["parent_job_id"],
        "backend_job_id": row["backend_job_id"],
        "results_dir": row["results_dir"],
        "created_at": row["created_at"],
        "started_at": row["started_at"] or None,
        "ended_at": row["ended_at"] or None,
        "updated_at": row["updated_at"],
        "duration_seconds": job.seconds,
    }


def job_list(
    jobs: Sequence[FoundJob], progress: Mapping[str, Progress] | None = None
) -> list[dict[str, Any]]:
    """Jobs with their progress, where that was read."""
    known = progress or {}
    return [job_fields(job, known.get(job.job_id)) for job in with_whole_requests(jobs)]


def change_fields(
    platform: str, before: str, status: JobStatus, progress: Progress | None = None
) -> dict[str, Any]:
    """What became of a job that was in the state `before`; "" when it is new."""
    return {
        "job_id": status.job_id,
        "platform": platform,
        "before": before,
        "status": status.status,
        "message": status.message,
        "progress": progress.to_dict() if progress else None,
        "at": status.updated_at,
    }
