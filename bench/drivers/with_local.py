"""Our local platform."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import moments

from tao_sdk import LocalSDK


class Local:
    def __init__(self, folder: str) -> None:
        place = Path(folder)
        self._sdk = LocalSDK(state_file=place / "state.json", work_dir=place / "jobs")
        self._command = [sys.executable, str(moments.write_program(folder))]

    def one(self) -> dict[str, float]:
        began = time.monotonic()
        job = self._sdk.create_job(command=self._command, gpu_count=0)
        returned = time.monotonic()
        job.wait(timeout=moments.PATIENCE_SECONDS)
        return moments.one_job(began, returned, float(self._sdk.get_job_logs(job.id)))

    def many(self, count: int) -> dict[str, float]:
        began = time.monotonic()
        jobs = self._sdk.create_jobs([{"command": self._command, "gpu_count": 0}] * count)
        submitted = time.monotonic()
        statuses = self._sdk.wait_all([job.id for job in jobs], timeout=moments.PATIENCE_SECONDS)
        ended = time.monotonic()
        completed = sum(status.status == "Complete" for status in statuses.values())
        return moments.many_jobs(began, submitted, ended, completed)


def open_in(folder: str) -> Local:
    return Local(folder)
