"""SlurmSDK, ours or the reference's: whichever `tao_sdk` this interpreter has.

Its jobs go where SLURM_PARTITION says: a partition that never starts one.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from tao_sdk.platforms.slurm import SlurmSDK

JOB: dict[str, Any] = {"image": "registry.lab/lab/busybox:1", "command": "true", "gpu_count": 1}


class Slurm:
    def __init__(self, folder: str) -> None:
        self._sdk = SlurmSDK(state_file=str(Path(folder) / "state.json"))
        self._ids: list[str] = []

    def submit(self) -> float:
        began = time.monotonic()
        self._sdk.create_job(**JOB)
        return time.monotonic() - began

    def make_each(self, count: int) -> None:
        """Jobs to ask about, submitted one by one."""
        self._ids = [self._sdk.create_job(**JOB).id for _ in range(count)]

    def make_together(self, count: int) -> None:
        self._ids = [job.id for job in self._sdk.create_jobs([JOB] * count)]

    def ask_each(self) -> float:
        began = time.monotonic()
        told = [self._sdk.get_job_status(job_id) for job_id in self._ids]
        return _all_wait(told, time.monotonic() - began)

    def ask_together(self) -> float:
        began = time.monotonic()
        told = self._sdk.get_statuses(self._ids)
        return _all_wait(list(told.values()), time.monotonic() - began)

    def queue(self) -> str:
        """A job to cancel."""
        job_id: str = self._sdk.create_job(**JOB).id
        return job_id

    def cancel(self, job_id: str, limit: float) -> float:
        """Until the call returns, or until nobody would wait any longer."""
        call = threading.Thread(target=self._sdk.cancel_job, args=[job_id], daemon=True)
        began = time.monotonic()
        call.start()
        call.join(limit)
        return time.monotonic() - began

    def is_canceled(self, job_id: str) -> bool:
        return bool(self._sdk.get_job_status(job_id).status == "Canceled")


def _all_wait(told: list[Any], took: float) -> float:
    if {status.status for status in told} != {"Pending"}:
        raise AssertionError(f"a job of a closed partition is Pending: {told[:3]}")
    return took


def open_in(folder: str) -> Slurm:
    return Slurm(folder)
