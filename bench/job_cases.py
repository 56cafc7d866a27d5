"""Jobs of the local platform beside bare processes and other tools.

In every case the job is the same: a Python program that tells when it ran, and ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from bench.driver import Driver
from bench.harness import Case, Contender, Sample
from bench.peers import OURS, Environment
from bench.place import Place

BURST = 200

_SUBMITIT_PAUSE = "its pause of 0.2 s between submissions is switched off"


class Way(NamedTuple):
    """One way to run a job: whose it is, its driver, and what it is called in each case."""

    environment: Environment
    module: str
    one: str
    one_includes: str
    many: str
    many_includes: str


def _floor() -> Way:
    return Way(
        OURS,
        "with_processes",
        "subprocess.Popen",
        "fork and exec",
        "subprocess.Popen, wait",
        f"{BURST} bare processes, all at once; wait for each",
    )


def _ways(place: Place) -> list[Way]:
    return [
        Way(
            OURS,
            "with_local",
            "LocalSDK.create_job",
            "validate and plan; commit the job's row to disk; start its supervisor (forked by a "
            "process that the first job started) and wait until that has claimed the job; commit "
            "the confirmation",
            "LocalSDK.create_jobs, wait_all",
            f"one call for {BURST} jobs, one call that waits for all",
        ),
        Way(
            OURS,
            "with_virtualenv",
            "VirtualEnvSDK.create_python_job",
            "as LocalSDK.create_job",
            "VirtualEnvSDK.create_python_job in a loop",
            f"{BURST} calls in turn, then get_job_status of each job until it has ended",
        ),
        Way(
            place.peers["reference"],
            "with_virtualenv",
            "VirtualEnvSDK.create_python_job (the reference)",
            "commit the job's row to disk; start its launcher process; commit its identity",
            "VirtualEnvSDK.create_python_job in a loop (the reference)",
            f"{BURST} calls in turn, then get_job_status of each job until it has ended",
        ),
        Way(
            place.peers["submitit"],
            "with_submitit",
            "submitit LocalExecutor.submit",
            "pickle the function to a file; start the controller process; rename the file. There "
            f"is no record but the files, and nothing is waited for; {_SUBMITIT_PAUSE}",
            "submitit LocalExecutor.submit in a loop",
            f"{BURST} calls in turn, then Job.done of each until it is; {_SUBMITIT_PAUSE} (with "
            f"it the submissions alone take {0.2 * (BURST - 1):.0f} s)",
        ),
    ]


@contextmanager
def submit_latency(place: Place) -> Iterator[Case]:
    with _one_job_each(place, "until the call returns") as (contenders, floor):
        yield Case(
            "submit latency",
            "Until the call that starts one job returns; its end is waited for outside the timing.",
            contenders,
            floor=floor,
            rounds=30,
        )


@contextmanager
def start_latency(place: Place) -> Iterator[Case]:
    with _one_job_each(place, "until the program runs") as (contenders, floor):
        yield Case(
            "start latency",
            "From the call that starts one job until the first statement of its program. What a "
            "call leaves for later is in here.",
            contenders,
            floor=floor,
        )


@contextmanager
def burst(place: Place) -> Iterator[Case]:
    with ExitStack() as drivers:

        def contender(way: Way) -> Contender:
            driver = drivers.enter_context(_driver(place, way))

            def run() -> Sample:
                answer = driver.ask("many", count=BURST)
                if answer["completed"] != BURST:
                    raise AssertionError(f"{way.many}: {answer['completed']} of {BURST} completed")
                return Sample(answer["seconds"], {"seconds until submitted": answer["submitted"]})

            return _contender(way, way.many, way.many_includes, run)

        yield Case(
            f"burst of {BURST} jobs",
            f"From the first submission until {BURST} jobs are known to have ended.",
            [contender(way) for way in _ways(place)],
            floor=contender(_floor()),
            rounds=2,
            warm_ups=0,
        )


@contextmanager
def _one_job_each(place: Place, moment: str) -> Iterator[tuple[list[Contender], Contender]]:
    with ExitStack() as drivers:

        def contender(way: Way) -> Contender:
            driver = drivers.enter_context(_driver(place, way))
            return _contender(
                way, way.one, way.one_includes, lambda: Sample(driver.ask("one")[moment])
            )

        yield [contender(way) for way in _ways(place)], contender(_floor())


def _driver(place: Place, way: Way) -> Driver:
    folder = place.folder / f"{way.module}-{way.environment.peer or 'ours'}"
    return Driver(way.environment, way.module, folder)


def _contender(way: Way, name: str, includes: str, run: Any) -> Contender:
    environment = way.environment
    return Contender(name, run, includes, environment.peer, environment.absent)
