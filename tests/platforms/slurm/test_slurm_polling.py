"""How often a cluster is asked by those who wait: pure, and by several processes on a real one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from slurm_jobs import start
from slurm_lab import SlurmPlatformLab

from lab.paced import FakeClock
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.slurm import SlurmSDK
from tao_sdk.platforms.slurm.backend import SlurmBackend
from tao_sdk.platforms.slurm.client import Login, SshTransport
from tao_sdk.platforms.slurm.cluster_settings import from_environment
from tao_sdk.platforms.slurm.polling import (
    MAX_PAUSE_SECONDS,
    AcceptedAge,
    SharedQueue,
    SlurmBackoff,
    pause_after,
)
from tao_sdk.watcher import Watcher


class Waiter:
    """A process that waits for jobs, as far as its polls go."""

    def __init__(self, queue: SharedQueue, clock: FakeClock) -> None:
        self.states: list[JobState] = [JobState.PENDING]
        self.accepted = AcceptedAge()
        self.backoff = SlurmBackoff(lambda: list(self.states), self.accepted, clock.sleep, clock)
        self.queue = queue
        self.asked: list[float] = []

    def poll(self) -> float:
        """Poll once; how long to pause then."""
        newest = self.queue.newest(self.accepted.take())
        if newest is None:
            self.asked.append(self.queue.now())
            self.queue.keep(self.queue.now(), b"")
        else:
            self.accepted.used = newest.age
        return self.backoff.after(0.05)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(tmp_path: Path, clock: FakeClock) -> SharedQueue:
    return SharedQueue(Login("ada", ("login1",)), lambda: tmp_path, clock)


def test_pauses_grow_to_a_minute() -> None:
    pauses = [pause_after(polls) for polls in range(12)]
    assert pauses[:5] == [2, 4, 8, 15, 22.5]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pause_after(10_000) == MAX_PAUSE_SECONDS == 60


def test_a_change_brings_the_pause_back(queue: SharedQueue, clock: FakeClock) -> None:
    waiter = Waiter(queue, clock)
    pauses = []
    for number in range(8):
        if number == 5:
            waiter.states = [JobState.RUNNING]
        pauses.append(waiter.poll())
        waiter.backoff.pause(pauses[-1])
    assert pauses == [2, 4, 8, 15, 22.5, 2, 4, 8]


def test_waiting_for_hours_asks_about_once_a_minute(queue: SharedQueue, clock: FakeClock) -> None:
    waiter = Waiter(queue, clock)
    while clock.now < 1_000 + 4 * 3600:
        waiter.backoff.pause(waiter.poll())
    assert len(waiter.asked) < 4 * 60 + 10


def test_many_that_wait_ask_as_often_as_one(queue: SharedQueue, clock: FakeClock) -> None:
    """They begin at different times, and poll in the order in which their pauses end."""
    waiters = [Waiter(queue, clock) for _ in range(5)]
    due = {number: 1_000 + 0.7 * number for number in range(5)}
    while clock.now < 1_000 + 3600:
        number = min(due, key=lambda one: due[one])
        clock.now = max(clock.now, due[number])
        pause = waiters[number].poll()
        due[number] = clock.now + pause
        before = clock.now
        waiters[number].backoff.pause(pause)
        clock.now = before
    asked = sorted(moment for waiter in waiters for moment in waiter.asked)
    assert len(asked) < 60 + 15
    settled = [moment for moment in asked if moment > 1_200]
    gaps = [later - earlier for earlier, later in itertools.pairwise(settled)]
    assert min(gaps) > 55


def test_who_does_other_things_meanwhile_polls_as_rarely(
    queue: SharedQueue, clock: FakeClock
) -> None:
    """The watcher, and a followed log, which hints at an end."""
    waiter = Waiter(queue, clock)
    due = []
    while clock.now < 1_100:
        if waiter.backoff.is_due():
            due.append(clock.now - 1_000)
        if clock.now == 1_040:
            waiter.states = [JobState.RUNNING]
        clock.now += 0.5
    assert due[:5] == [0, 2, 6, 14, 29]
    assert due[5:8] == [40.5, 42.5, 46.5]


def test_only_a_poll_after_a_pause_uses_an_old_answer(queue: SharedQueue, clock: FakeClock) -> None:
    waiter, other = Waiter(queue, clock), Waiter(queue, clock)
    waiter.poll()
    other.poll()
    assert other.asked == [1_000], "its first poll is an explicit one"
    waiter.backoff.pause(1.0)
    clock.now += 0.5
    waiter.poll()
    assert len(waiter.asked) == 1
    waiter.poll()
    assert len(waiter.asked) == 2


def test_a_wait_that_is_over_accepts_nothing_old(queue: SharedQueue, clock: FakeClock) -> None:
    waiter = Waiter(queue, clock)
    waiter.backoff.pause(waiter.poll())
    clock.now -= 1
    waiter.backoff.close()
    waiter.poll()
    assert len(waiter.asked) == 2


def test_an_answer_that_cannot_be_kept_is_asked_for_again(tmp_path: Path, clock: FakeClock) -> None:
    nowhere = SharedQueue(Login("ada", ("login1",)), lambda: tmp_path / "gone", clock)
    with nowhere.turn():
        nowhere.keep(clock.now, b"")
    assert nowhere.newest(60) is None


def test_the_answer_is_private_and_of_one_cluster(
    queue: SharedQueue, clock: FakeClock, tmp_path: Path
) -> None:
    queue.keep(clock.now, b"77|RUNNING|None|N/A|node7|tao-job-x\n")
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert SharedQueue(Login("ada", ("login2",)), lambda: tmp_path, clock).newest(60) is None
    assert SharedQueue(Login("bob", ("login1",)), lambda: tmp_path, clock).newest(60) is None
    clock.now -= 5
    assert queue.newest(60) is None, "the clock was set back"
    file.write_text("nonsense")
    assert queue.newest(60) is None


class Cluster:
    """A login host in whose queue every job waits; it notes which programs it ran."""

    def __init__(self, jobs: Sequence[JobRef]) -> None:
        lines = (f"{n}|PENDING|None|N/A||tao-job-{job.job_id}" for n, job in enumerate(jobs, 70))
        self.queue = "\n".join(lines).encode()
        self.programs: list[str] = []

    def run(self, program: str, **_: object) -> list[Section]:
        self.programs.append(program)
        return [Section("queue", "", self.queue)]


def test_one_question_for_all_that_wait_and_one_for_each_explicit_look(
    queue: SharedQueue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes with a job each; to observe runs nothing but the program that looks."""
    jobs = [
        JobRef(JobIdentity(f"j{n}", "a"), {"base": "/b", "cluster": "lab", "slurm_job_id": f"7{n}"})
        for n in range(3)
    ]
    cluster = Cluster(jobs)
    monkeypatch.setattr(SshTransport, "run", cluster.run)
    monkeypatch.setattr("tao_sdk.platforms.slurm.backend.SharedQueue", lambda _login: queue)
    monkeypatch.setenv("SLURM_USER", "ada")
    monkeypatch.setenv("SLURM_HOSTNAME", "login1")
    monkeypatch.delenv("SSH_KEY_PATH", raising=False)
    monkeypatch.delenv("SLURM_SSH_CONFIG", raising=False)
    backends = [SlurmBackend(from_environment(), lambda _: None) for _ in jobs]
    backoffs = []
    for backend, job in zip(backends, jobs, strict=True):
        assert backend.observe([job])[job.job_id].state is JobState.PENDING
        backoffs.append(backend.backoff([job.job_id]))
    assert cluster.programs == ["observe"] * 3, "a first look asks"

    pauses = [backoff.after(0.05) for backoff in backoffs]
    assert pauses == [2, 2, 2]
    clock.sleep(2)
    for backend, backoff, job in zip(backends, backoffs, jobs, strict=True):
        backoff.pause(0)  # the clock has moved already
        assert backend.observe([job])[job.job_id].state is JobState.PENDING
    assert cluster.programs == ["observe"] * 4, "one of them asks for all"

    for backend, job in zip(backends, jobs, strict=True):
        backend.observe([job])
    assert cluster.programs == ["observe"] * 7, "an explicit look asks at once"


def test_processes_that_wait_share_an_answer(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Three wait for a job each, which stays in the queue; a look by hand asks at once."""
    jobs = [start(sdk, "true", partition="closed") for _ in range(3)]
    program = (
        "import sys\n"
        "from tao_sdk.errors import WaitTimeoutError\n"
        "try: sdk.wait(sys.argv[1], timeout=15)\n"
        "except WaitTimeoutError: pass\n"
        "print(list(sdk.backend.transport.calls).count('observe'))"
    )
    waiting = [lab.start_python(program, job.id) for job in jobs]
    counts = []
    for process in waiting:
        told, wrong = process.communicate(timeout=60)
        assert process.returncode == 0, wrong
        counts.append(json.loads(told))
    # Each asks at first. Then one of them asks after 2, 4 and 8 s, for all.
    assert sum(counts) <= 3 + 4, counts
    before = len(sdk.backend.transport.calls)
    sdk.get_job_status(jobs[0].id)
    assert len(sdk.backend.transport.calls) == before + 1


def test_following_a_log_asks_rarely_and_ends_in_time(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Its job runs until the test has seen enough reads; then the batch script's end is a hint."""
    job = start(sdk, "until [ -e ../go ]; do sleep 0.1; done; echo over")
    calls = sdk.backend.transport.calls
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(lambda: list(sdk.stream_logs(job.id)))
        eventually(lambda: list(calls).count("logs") >= 12, 120)
        assert list(calls).count("observe") <= 6, list(calls)
        (lab.slurm.shared / "results" / "go").touch()
        assert followed.result(60) == ["over"]


def test_the_watcher_asks_rarely(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    start(sdk, "true", partition="closed")
    watcher = Watcher(lab.state_file, lambda _: None, lambda _: None)
    for _ in range(5):
        assert watcher.look() == 1
    [watching] = watcher._sdks.values()
    assert list(watching.backend.transport.calls).count("observe") == 1
