"""The job store: large, and shared."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from bench.driver import Driver
from bench.harness import Case, Contender, Sample, timed
from bench.peers import OURS, Environment
from bench.place import Place
from tao_sdk.job_store import JobStore, NewJob

LARGE = 100_000
REFERENCE_LARGE = 10_000
BATCH = 5_000
NEWEST = 20
CALLS = 50
REFERENCE_CALLS = 3
WRITERS = 32
JOBS_EACH = 50

# About 2.5 kB as JSON, as a training spec is.
SPECS: dict[str, Any] = {
    "train": {"num_epochs": 80, "optim": {"lr": 2e-4, "weight_decay": 1e-4}},
    "dataset": {
        "batch_size": 4,
        "classes": [f"category-{number:03}" for number in range(120)],
        "sources": [{"images": f"s3://bucket/images/{n}", "boxes": n} for n in range(10)],
    },
}


@contextmanager
def newest_of_many(place: Place) -> Iterator[Case]:
    path = place.folder / "jobs.db"
    reference = place.peers["reference"]
    folder = place.folder / "reference"
    with (
        closing(_filled(path)) as store,
        closing(sqlite3.connect(path)) as bare,
        Driver(reference, "with_reference_store", folder) as driver,
    ):
        if not reference.absent:
            driver.ask("fill", path=str(folder / "j.db"), count=REFERENCE_LARGE, specs=SPECS)

        def of_one_state() -> object:
            return store.list_jobs(status="Pending", limit=NEWEST, backend_type="local")

        def plain_query() -> object:
            query = "SELECT * FROM jobs ORDER BY seq DESC LIMIT ?"
            return bare.execute(query, (NEWEST,)).fetchall()

        def of_the_reference() -> Sample:
            answer = driver.ask("newest", limit=NEWEST, calls=REFERENCE_CALLS)
            if answer["rows"] != NEWEST:
                raise AssertionError(f"the reference listed {answer['rows']} jobs")
            return Sample(answer["seconds"])

        yield Case(
            f"newest {NEWEST} of {LARGE:,} jobs",
            f"One query of a store with {LARGE:,} jobs ({path.stat().st_size >> 20} MiB), each "
            f"with a spec of 2.5 kB; the reference has {REFERENCE_LARGE:,} such jobs.",
            [
                Contender(
                    f"list_jobs(limit={NEWEST}) of {LARGE:,}",
                    lambda: timed(lambda: store.list_jobs(limit=NEWEST), CALLS),
                ),
                Contender(
                    "the same, of one state and platform", lambda: timed(of_one_state, CALLS)
                ),
                Contender(
                    f"list_jobs(limit={NEWEST}) of {REFERENCE_LARGE:,} (the reference)",
                    of_the_reference,
                    peer=reference.peer,
                    absent=reference.absent,
                ),
            ],
            floor=Contender("bare sqlite3, by primary key", lambda: timed(plain_query, CALLS)),
        )


def _filled(path: Path) -> JobStore:
    store = JobStore(path)
    for first in range(0, LARGE, BATCH):
        store.begin_submissions(
            [
                NewJob(f"job-{n}", "net", "train", "local", "local", "token", "owner", specs=SPECS)
                for n in range(first, first + BATCH)
            ]
        )
    return store


@contextmanager
def many_writers(place: Place) -> Iterator[Case]:
    reference = place.peers["reference"]

    def ours(mode: str, without: str = "") -> Sample:
        extra = {"TAO_SDK_STORE_MODE": mode, "BENCH_STORE_WITHOUT": without}
        crowd = Crowd(place, OURS, "with_store", **extra)
        sample = crowd.write(_kept_by_us)
        if sample.facts["jobs kept"] != WRITERS * JOBS_EACH:
            raise AssertionError(f"{sample.facts['jobs kept']} of {WRITERS * JOBS_EACH} jobs kept")
        return sample

    def theirs() -> Sample:
        def kept(path: Path) -> int:
            with Driver(reference, "with_reference_store", path.parent / "count") as driver:
                found: int = driver.ask("kept", path=str(path))
            return found

        return Crowd(place, reference, "with_reference_store").write(kept)

    yield Case(
        f"{WRITERS} writers x {JOBS_EACH} jobs",
        f"{WRITERS} processes create one store and write {JOBS_EACH} jobs each, three durable "
        "transactions per job, all at once. A write that fails is not repeated.",
        [
            Contender("local disk (wal)", lambda: ours("wal")),
            Contender("wal, writers not queued", lambda: ours("wal", "queue")),
            Contender("wal, synchronous = FULL", lambda: ours("wal", "overlap")),
            Contender("network file system (network)", lambda: ours("network")),
            Contender(
                "the reference, local disk",
                theirs,
                peer=reference.peer,
                absent=reference.absent,
            ),
        ],
        rounds=2,
        warm_ups=0,
    )


class Crowd:
    """Writers of one new store, each a process."""

    def __init__(self, place: Place, environment: Environment, module: str, **extra: str) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=place.folder))
        self._writers = [
            Driver(environment, module, self._folder / f"w{number}", **extra)
            for number in range(WRITERS)
        ]

    def write(self, count_kept: Callable[[Path], int]) -> Sample:
        path = self._folder / "jobs.db"
        with ExitStack() as processes:
            for writer in self._writers:
                processes.enter_context(writer).start()
            began = time.perf_counter()
            for number, writer in enumerate(self._writers):
                writer.tell("write", path=str(path), name=f"w{number}", count=JOBS_EACH)
            answers = [writer.answer() for writer in self._writers]
            took = time.perf_counter() - began
        return Sample(
            took,
            {
                "jobs kept": count_kept(path),
                "failed writes": sum(answer["failed"] for answer in answers),
                "slowest write (s)": max(answer["slowest"] for answer in answers),
            },
        )


def _kept_by_us(path: Path) -> int:
    with JobStore(path) as store:
        return len(store.list_jobs(status="Complete"))
