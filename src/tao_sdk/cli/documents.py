"""Jobs as JSON: the shapes of docs/cli-json.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tao_sdk.cli.jobs import FoundJob


def job_fields(job: FoundJob) -> dict[str, Any]:
    """A job in the one shape that every document uses. Unknown times and numbers are null."""
    row, request = job.row, job.request
    return {
        "job_id": job.job_id,
        "uri": job.uri,
        "platform": job.platform,
        "status": job.status,
        "terminal": job.terminal,
        "message": job.message,
        "exit_code": row["exit_code"],
        "failure": job.failure,
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


def job_list(jobs: Sequence[FoundJob]) -> dict[str, Any]:
    return {"jobs": [job_fields(job) for job in jobs]}
