"""submitit's LocalExecutor."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import moments
import submitit  # type: ignore[import-not-found]  # only in its own environment


class Submitit:
    def __init__(self, folder: str) -> None:
        self._executor = submitit.LocalExecutor(folder=Path(folder) / "jobs")
        # It lets at least 0.2 s pass between two submissions. Without that it is faster, and the
        # comparison is about work, not about pauses.
        self._executor._throttling = 0.0

    def one(self) -> dict[str, float]:
        began = time.monotonic()
        job = self._submit()
        returned = time.monotonic()
        moments.wait_until(job.done)
        return moments.one_job(began, returned, job.result())

    def many(self, count: int) -> dict[str, float]:
        began = time.monotonic()
        jobs = [self._submit() for _ in range(count)]
        submitted = time.monotonic()
        for job in jobs:
            moments.wait_until(job.done)
        ended = time.monotonic()
        completed = sum(job.result() > began for job in jobs)
        return moments.many_jobs(began, submitted, ended, completed)

    def _submit(self) -> Any:
        return self._executor.submit(time.monotonic)


def open_in(folder: str) -> Submitit:
    return Submitit(folder)
