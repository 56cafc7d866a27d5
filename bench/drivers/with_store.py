"""A writer of our job store.

BENCH_STORE_WITHOUT=queue or overlap takes one of its mechanisms away, to show what it is worth.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import writing

from tao_sdk.job_store import JobStore, NewJob, StatusUpdate, store_file
from tao_sdk.job_store.access import LocalAccess


class Writer:
    def write(self, path: str, name: str, count: int) -> dict[str, Any]:
        with JobStore(path) as store:
            return writing.write_jobs(
                name,
                count,
                [
                    lambda job: store.begin_submissions([_new(job)]),
                    lambda job: store.confirm_submission(
                        job, backend_job_id=job, native={"id": job}
                    ),
                    lambda job: store.apply_updates([StatusUpdate(job, status="Complete")]),
                ],
            )


def _new(job: str) -> NewJob:
    return NewJob(job, "net", "train", "local", "local", "token", "owner")


@contextlib.contextmanager
def _without_queue(access: LocalAccess, deadline: Any, *, writing: bool) -> Iterator[Any]:
    del writing
    access._wait_for_others(deadline)
    yield access._connection


def open_in(_folder: str) -> Writer:
    without = os.environ.get("BENCH_STORE_WITHOUT")
    if without == "queue":
        LocalAccess.connection = _without_queue  # type: ignore[method-assign]  # see above
    elif without == "overlap":
        store_file._SYNCHRONOUS["wal"] = "FULL"
        LocalAccess.reach_disk = lambda _: None  # type: ignore[method-assign]  # see above
    return Writer()
