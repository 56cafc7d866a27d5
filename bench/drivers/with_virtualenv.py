"""VirtualEnvSDK, ours or the reference's: whichever `tao_sdk` this interpreter has."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import moments

from tao_sdk import VirtualEnvSDK

TERMINAL = {"Complete", "Error", "Canceled"}


class VirtualEnvironment:
    def __init__(self, folder: str) -> None:
        self._sdk = VirtualEnvSDK(sys.prefix, work_dir=Path(folder) / "jobs")
        self._program = moments.write_program(folder)

    def one(self) -> dict[str, float]:
        began = time.monotonic()
        job = self._submit()
        returned = time.monotonic()
        moments.wait_until(partial(self._has_ended, job))
        return moments.one_job(began, returned, float(self._sdk.get_job_logs(job.id)))

    def many(self, count: int) -> dict[str, float]:
        began = time.monotonic()
        jobs = [self._submit() for _ in range(count)]
        submitted = time.monotonic()
        for job in jobs:
            moments.wait_until(partial(self._has_ended, job))
        ended = time.monotonic()
        completed = sum(self._state(job) == "Complete" for job in jobs)
        return moments.many_jobs(began, submitted, ended, completed)

    def _submit(self) -> Any:
        return self._sdk.create_python_job(self._program, gpu_count=0)

    def _has_ended(self, job: Any) -> bool:
        return self._state(job) in TERMINAL

    def _state(self, job: Any) -> str:
        return self._sdk.get_job_status(job.id).status


def open_in(folder: str) -> VirtualEnvironment:
    return VirtualEnvironment(folder)
