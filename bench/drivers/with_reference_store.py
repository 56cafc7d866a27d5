"""The reference's job store, through its documented calls."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import Any

import writing

from tao_sdk import JobStore


class ReferenceStore:
    def fill(self, path: str, count: int, specs: dict[str, Any]) -> None:
        self._large = JobStore(path)
        for number in range(count):
            self._large.create_job(f"job-{number}", "net", "train", "local", "local", specs=specs)

    def newest(self, limit: int, calls: int) -> dict[str, Any]:
        began = time.perf_counter()
        for _ in range(calls):
            rows = self._large.list_jobs(limit=limit)
        return {"seconds": (time.perf_counter() - began) / calls, "rows": len(rows)}

    def write(self, path: str, name: str, count: int) -> dict[str, Any]:
        try:
            opened = JobStore(path)
        except sqlite3.Error:
            return {"slowest": 0.0, "failed": 3 * count}
        with closing(opened) as store:
            return writing.write_jobs(
                name,
                count,
                [
                    lambda job: store.create_job(job, "net", "train", "local", "local"),
                    lambda job: store.update_job_backend_id(job, job, "Running"),
                    lambda job: store.update_job_status(job, "Complete"),
                ],
            )

    def kept(self, path: str) -> int:
        with closing(JobStore(path)) as store:
            return len(store.list_jobs(status="Complete"))


def open_in(_folder: str) -> ReferenceStore:
    return ReferenceStore()
