"""Submissions that are interrupted: every row is settled or released, in bounded time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tao_sdk import LocalSDK
from tao_sdk.errors import BackendUnreachableError, StoreBusyError, StoreError
from tao_sdk.job_store import JobStore
from tao_sdk.platforms import submit
from tao_sdk.platforms.backend import JobRef, Plan, Submission
from tao_sdk.process_identity import ProcessIdentity

LONG = 60
MANY = 40

# Submits many jobs for each line that it reads, and lives on whatever happens to it.
CLIENT = """
import json, signal, sys
from tao_sdk import LocalSDK

state, work, starts, many = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
job = {"command": f'echo started >> "{starts}/$TAO_JOB_ID"', "gpu_count": 0}
sdk = LocalSDK(state_file=state, work_dir=work)
sdk.wait(sdk.create_job(**job).id)
signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in sys.stdin:
    said = {"finished": True}
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("begun", flush=True)
        sdk.create_jobs([job] * many)
    except KeyboardInterrupt as error:
        said = {"finished": False}
        first = error
    while True:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            break
        except KeyboardInterrupt:  # one that came late
            continue
    if not said["finished"]:
        said["job"] = getattr(first, "tao_job_id", "")
        said["uncertain"] = getattr(first, "tao_launch_uncertain", None)
    print(json.dumps(said), flush=True)
"""


class Client:
    """Such a process, and what came of its jobs."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state.json"
        self.work = folder / "work"
        self.starts = folder / "starts"
        self.starts.mkdir()
        words = [self.state, self.work, self.starts, MANY]
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def submit(self, *gaps: float) -> dict[str, Any]:
        """One round, with signals after these gaps; what the client says of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "begun\n"
        begun = time.monotonic()
        for gap in gaps:
            time.sleep(gap)  # the fault to inject, not a wait
            self.process.send_signal(signal.SIGINT)
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return {**said, "seconds": time.monotonic() - begun}

    def sdk(self) -> LocalSDK:
        return LocalSDK(state_file=self.state, work_dir=self.work)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path)
    yield client
    client.process.kill()
    client.process.communicate()


def stranded(store: JobStore) -> list[str]:
    """Rows that no process will settle for as long as their owner lives."""
    rows = store.unsettled_submissions("local")
    return [row["job_id"] for row in rows if row["owner"]]


def check_all_ended_rightly(client: Client) -> Counter[str]:
    """Started once or never, as the store says."""
    with client.sdk() as sdk:
        ids = [job.id for job in sdk.list_jobs()]
        ends = sdk.wait_all(ids, timeout=LONG)
        rows = sdk.store.jobs_by_id(ids)
    for job_id, end in ends.items():
        path = client.starts / job_id
        starts = path.read_text().count("started") if path.exists() else 0
        assert starts == (1 if end.status == "Complete" else 0), rows[job_id]
        assert end.status in ("Complete", "Canceled", "Error")
    return Counter(end.status for end in ends.values())


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_at_random_moments_strands_no_row(client: Client, signals: int) -> None:
    chance = random.Random(signals)
    longest = client.submit()["seconds"]
    interrupted = 0
    for _ in range(20):
        gaps = [chance.uniform(0, longest)]
        gaps += [chance.uniform(0, longest / 4) for _ in range(signals - 1)]
        said = client.submit(*gaps)
        interrupted += not said["finished"]
        with client.sdk() as sdk:
            assert stranded(sdk.store) == [], said
        assert said["seconds"] < longest + submit.SETTLE_SECONDS
    assert interrupted >= 5
    ends = check_all_ended_rightly(client)
    assert ends["Complete"] > MANY


def test_what_an_interrupt_left_can_be_cancelled_at_once(client: Client) -> None:
    longest = client.submit()["seconds"]
    said = client.submit(longest / 4)
    begun = time.monotonic()
    with client.sdk() as sdk:
        assert all(sdk.cancel_job(job.id) for job in sdk.list_jobs())
    assert time.monotonic() - begun < 20 * longest + LONG / 4, said


class Interrupts:
    """The signal of Ctrl-C, as often as wanted, to this process."""

    @staticmethod
    def once() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.fixture
def sdk(tmp_path: Path) -> Iterator[LocalSDK]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with LocalSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "work") as sdk:
        sdk.wait(sdk.create_job(command="true", gpu_count=0).id)
        yield sdk
    signal.signal(signal.SIGINT, before)


def new(count: int) -> list[dict[str, Any]]:
    return [{"command": "true", "gpu_count": 0}] * count


def notes(error: BaseException) -> tuple[str, bool]:
    return error.tao_job_id, error.tao_launch_uncertain  # type: ignore[attr-defined]  # notes on it


class Stuck:
    """A platform that answers only when the test is over."""

    def __init__(self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.asked: list[str] = []
        self._real = sdk.backend.submit
        monkeypatch.setattr(sdk.backend, "submit", self._submit)

    def _submit(self, plan: Plan) -> Submission:
        self.asked.append(plan.job_id)
        if len(self.asked) == 1:
            threading.Timer(0.2, Interrupts.once).start()
        assert self.open.wait(LONG)
        return self._real(plan)


@pytest.fixture
def stuck(sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    stuck = Stuck(sdk, monkeypatch)
    yield stuck
    stuck.open.set()


def test_a_platform_that_does_not_answer_is_not_waited_for_long(
    sdk: LocalSDK, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "SETTLE_SECONDS", 0.3)
    with pytest.raises(KeyboardInterrupt) as caught:
        sdk.create_jobs(new(MANY))
    assert notes(caught.value)[1]
    assert stranded(sdk.store) == []
    begun = set(stuck.asked)
    for row in sdk.store.list_jobs(limit=MANY):
        released, rejected = ("submitting", "Pending"), ("rejected", "Canceled")
        expected = released if row["job_id"] in begun else rejected
        assert (row["phase"], row["status"]) == expected
        if row["job_id"] not in begun:
            assert row["message"] == "not submitted: interrupted"


def test_a_second_ctrl_c_ends_the_wait_and_releases_all(sdk: LocalSDK, stuck: Stuck) -> None:
    second = threading.Timer(0.6, Interrupts.once)
    second.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sdk.create_jobs(new(MANY))
    second.join()
    assert time.monotonic() - begun < submit.SETTLE_SECONDS
    assert stranded(sdk.store) == []


def test_what_is_accepted_after_the_release_is_confirmed(
    sdk: LocalSDK, stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "SETTLE_SECONDS", 0.1)
    with pytest.raises(KeyboardInterrupt):
        sdk.create_jobs(new(2))
    ids = list(stuck.asked)
    stuck.open.set()
    assert {end.status for end in sdk.wait_all(ids, timeout=LONG).values()} <= {
        "Complete",
        "Error",  # settled as never submitted before the platform took it
    }


Settle = Callable[[Sequence[JobRef]], Mapping[str, Submission | None]]


@pytest.mark.parametrize(
    "error", [RuntimeError("a mistake"), BackendUnreachableError("away"), StoreBusyError("busy")]
)
@pytest.mark.parametrize("count", [1, 2])
def test_no_other_error_replaces_the_interrupt(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch, error: Exception, count: int
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    def fails(_: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        raise error

    monkeypatch.setattr(sdk.backend, "submit" if count == 1 else "submit_together", interrupted)
    monkeypatch.setattr(sdk.backend, "settle", fails)
    with pytest.raises(KeyboardInterrupt) as caught:
        sdk.create_jobs(new(count)) if count > 1 else sdk.create_job(**new(1)[0])
    assert notes(caught.value)[1]
    assert stranded(sdk.store) == []
    monkeypatch.undo()
    assert len(sdk.reconcile()) >= 1
    assert {row["phase"] for row in sdk.store.list_jobs(limit=1)} == {"rejected"}


def test_a_store_that_fails_on_the_way_releases_the_rows(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(sdk.store, "confirm_submission", fails)
    with pytest.raises(StoreError, match="full"):
        sdk.create_job(**new(1)[0])
    jobs = sdk.create_jobs(new(2))
    assert stranded(sdk.store) == []
    assert len(sdk.store.unsettled_submissions("local")) == 3
    monkeypatch.undo()
    assert {end.status for end in sdk.wait_all([job.id for job in jobs]).values()} == {"Complete"}
    assert sdk.store.unsettled_submissions("local") == []


def test_rows_that_could_not_be_released_are_settled_later(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for as long as the call lasts: the jobs run, and their rows say nothing."""

    def fails(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(sdk.store, "confirm_submission", fails)
        full.setattr(sdk.store, "release_submissions", fails)
        full.setattr(sdk.store, "release_submission", fails)
        jobs = sdk.create_jobs(new(2))
    assert len(stranded(sdk.store)) == 2
    assert {end.status for end in sdk.wait_all([job.id for job in jobs]).values()} == {"Complete"}


def test_a_plan_submitted_twice_leaves_the_first_submission_alone(sdk: LocalSDK) -> None:
    plan = sdk.plan(**new(1)[0])
    sdk.store.begin_submissions([sdk._submitter._new_job(plan)])
    with pytest.raises(StoreError, match="already in the store"):
        sdk.submit(plan)
    (row,) = sdk.store.unsettled_submissions("local")
    assert row["owner"] == str(ProcessIdentity.current())


class TestWithdrawing:
    """What `provide` got for jobs that are not submitted after all is given back: it may cost."""

    @pytest.fixture
    def withdrawn(self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        found: list[str] = []

        def withdraw(plans: Sequence[Plan]) -> None:
            found.extend(plan.job_id for plan in plans)

        monkeypatch.setattr(sdk.backend, "withdraw", withdraw)
        return found

    def test_rows_that_cannot_be_written(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch, withdrawn: list[str]
    ) -> None:
        def fails(*_: object) -> None:
            raise StoreError("the disk is full")

        plan = sdk.plan(**new(1)[0])
        monkeypatch.setattr(sdk.store, "begin_submissions", fails)
        with pytest.raises(StoreError, match="full"):
            sdk.submit(plan)
        assert withdrawn == [plan.job_id]

    def test_a_plan_that_was_submitted_before(self, sdk: LocalSDK, withdrawn: list[str]) -> None:
        plan = sdk.plan(**new(1)[0])
        sdk.submit(plan)
        assert withdrawn == []
        with pytest.raises(StoreError, match="already in the store"):
            sdk.submit(plan)
        assert withdrawn == [plan.job_id]

    def test_an_interrupt_before_the_platform_is_asked(
        self, sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch, withdrawn: list[str]
    ) -> None:
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        plan = sdk.plan(**new(1)[0])
        monkeypatch.setattr(sdk.store, "begin_submissions", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sdk.submit(plan)
        assert withdrawn == [plan.job_id]


def test_interrupted_reconciling_gives_back_what_it_took_over(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sdk.plan(**new(1)[0])
    sdk.store.begin_submissions([sdk._submitter._new_job(plan)._replace(owner="")])

    def interrupted(_: Sequence[JobRef]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sdk.backend, "settle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sdk.reconcile()
    assert stranded(sdk.store) == []


def test_a_forked_child_is_no_owner_of_what_its_parent_submits(sdk: LocalSDK) -> None:
    plan = sdk.plan(**new(1)[0])
    sdk.store.begin_submissions([sdk._submitter._new_job(plan)])
    child = os.fork()
    if child == 0:
        os._exit(len(sdk.store.release_submissions([plan.job_id], str(ProcessIdentity.current()))))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_jobs_are_submitted_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with LocalSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "work") as sdk:
        sdk.wait(sdk.create_job(command="true", gpu_count=0).id)
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refuse)
            jobs = sdk.create_jobs([{"command": "true", "gpu_count": 0}] * 3)
            done: list[str] = []
            submit._despite_interrupts(lambda: done.append("released"))
        assert done == ["released"]
        ended = sdk.wait_all([job.id for job in jobs], timeout=LONG)
    assert {status.status for status in ended.values()} == {"Complete"}
