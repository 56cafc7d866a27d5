"""Asking about many jobs of the local platform."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Case, Contender, Sample
from bench.place import Place
from tao_sdk import LocalSDK
from tao_sdk.job_store import Confirmation, NewJob, StatusUpdate
from tao_sdk.models import utc_now
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.process_identity import ProcessIdentity

MANY = 1000


@contextmanager
def status_of_many(place: Place) -> Iterator[Case]:
    """Running jobs without their processes: this process stands for each one's supervisor."""
    folder = place.folder
    sdk = LocalSDK(state_file=folder / "state.json", work_dir=folder / "jobs")
    running = [f"running-{number}" for number in range(MANY)]
    ended = [f"ended-{number}" for number in range(MANY)]
    folders = [JobFolder(folder / "jobs" / "jobs" / name) for name in running]
    _record(sdk, [*running, *ended])
    sdk.store.apply_updates(StatusUpdate(name, status="Complete", exit_code=0) for name in ended)
    for job in folders:
        _pretend_to_run(job)

    def bare() -> Sample:
        began = time.perf_counter()
        for job in folders:
            json.loads(job.claim.read_bytes())
            json.loads(job.state.read_bytes())
        return Sample(time.perf_counter() - began)

    def asking(ids: list[str], *, at_once: bool) -> Sample:
        calls = len(sdk.backend.transport.calls)
        began = time.perf_counter()
        if at_once:
            statuses = sdk.get_statuses(ids)
        else:
            statuses = {name: sdk.get_job_status(name) for name in ids}
        took = time.perf_counter() - began
        expected = "Running" if ids is running else "Complete"
        if {status.status for status in statuses.values()} != {expected}:
            raise AssertionError(f"not all jobs are {expected}")
        return Sample(took, {"round trips": len(sdk.backend.transport.calls) - calls})

    yield Case(
        f"status of {MANY:,} jobs",
        f"The states of {MANY:,} jobs in a store of {2 * MANY:,}.",
        [
            Contender("get_statuses, all running", lambda: asking(running, at_once=True)),
            Contender("get_statuses, all ended", lambda: asking(ended, at_once=True)),
            Contender(f"{MANY:,} x get_job_status", lambda: asking(running, at_once=False)),
        ],
        floor=Contender(f"reading {2 * MANY:,} small files", bare),
        rounds=5,
    )
    sdk.close()


def _record(sdk: LocalSDK, names: list[str]) -> None:
    like_any_other = sdk.plan(command="true", gpu_count=0).intent

    def native(name: str) -> dict[str, object]:
        return {**like_any_other, "folder": str(sdk.work_dir / "jobs" / name)}

    sdk.store.begin_submissions(
        [NewJob(name, "net", "train", "local", "local", "token", "owner") for name in names]
    )
    sdk.store.confirm_submissions(
        [Confirmation(name, f"tao-job-{name}", native(name)) for name in names]
    )


def _pretend_to_run(job: JobFolder) -> None:
    """The files of a running job, as its supervisor writes them."""
    me = str(ProcessIdentity.current())
    job.path.mkdir(parents=True)
    job.root_marker.touch()
    rank = {"rank": 0, "process": me, "gpus": [], "exit_code": None, "ended_at": ""}
    state = {
        "supervisor": me,
        "nodes": 1,
        "started_at": utc_now(),
        "phase": "running",
        "message": "",
        "ranks": [rank],
    }
    job.claim.write_text(json.dumps({"supervisor": me, "token": "token"}), encoding="utf-8")
    job.state.write_text(json.dumps(state), encoding="utf-8")
