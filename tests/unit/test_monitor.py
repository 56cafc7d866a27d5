"""One watch loop for all jobs; hooks; the state file."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.paced import Cluster, FakeClock, PacedSDK, add_jobs
from tao_sdk import Job, JobMonitor, JobStatus, JobStore
from tao_sdk.monitor import Hooks, _PlatformLoop, _Watched, epochs_in
from tao_sdk.platforms.conformance import eventually


class Lines:
    def __init__(self, lines: Sequence[str], cursor: str, tail: int | None) -> None:
        start = int(cursor) if cursor else max(0, len(lines) - tail) if tail is not None else 0
        self._lines = lines[start:]
        self.cursor = str(start + len(self._lines))

    def __iter__(self):  # type: ignore[no-untyped-def]  # short, and only here
        return iter(self._lines)


class ScriptedSDK:
    """An SDK whose answers the test decides; what the monitor needs and nothing else."""

    platform = "scripted"

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.log: list[str] = []
        self.polls: list[list[str]] = []
        self.before_answer: Callable[[], None] = lambda: None

    def get_statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        self.polls.append(list(job_ids))
        self.before_answer()
        rows = self.store.jobs_by_id(list(job_ids))
        return {job_id: JobStatus(job_id, rows[job_id]["status"]) for job_id in job_ids}

    def stream_logs(
        self, job_id: str, *, follow: bool = True, tail: int | None = None, cursor: str = ""
    ) -> Lines:
        return Lines(list(self.log), cursor, tail)


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "jobs.db")


@pytest.fixture
def monitor(tmp_path: Path, store: JobStore):  # type: ignore[no-untyped-def]  # short, and only here
    monitor = JobMonitor(0.01, 2, tmp_path / "session.json", store)
    yield monitor
    monitor.stop()


def job(name: str, status: str = "Pending") -> Job:
    return Job(name, "net", "train", "w", backend_type="scripted", status=status)


def active(tmp_path: Path) -> list[str]:
    data = json.loads((tmp_path / "session.json").read_text())
    return [entry["job_id"] for entry in data["active_jobs"]]


def test_hooks_are_called_once_per_state(monitor: JobMonitor, store: JobStore) -> None:
    sdk = ScriptedSDK(store)
    seen: list[str] = []
    done = threading.Event()
    hooks = {
        "on_running": lambda job: seen.append(f"running {job.id} {job.status}"),
        "on_complete": lambda job: (seen.append(f"complete {job.id} {job.status}"), done.set()),
        "on_error": lambda job: seen.append("error"),
    }
    monitor.watch(job("a"), hooks, sdk)
    monitor.start()
    monitor.start()
    store.update_job_status("a", "Running")
    eventually(lambda: seen == ["running a Running"])
    store.update_job_status("a", "Complete")
    assert done.wait(30)
    polls = len(sdk.polls)
    assert seen == ["running a Running", "complete a Complete"]
    monitor.watch(job("b"), {}, sdk)
    eventually(lambda: len(sdk.polls) > polls + 2)
    assert all(ids == ["b"] for ids in sdk.polls[polls + 1 :])


def test_all_jobs_in_one_poll(monitor: JobMonitor, store: JobStore) -> None:
    """Lesson D9: a hundred jobs are one round trip."""
    sdk = ScriptedSDK(store)
    for number in range(100):
        monitor.watch(job(f"j{number}"), {}, sdk)
    monitor.start()
    eventually(lambda: any(len(ids) == 100 for ids in sdk.polls))


def test_a_hook_that_fails_stops_nothing(
    monitor: JobMonitor, store: JobStore, caplog: pytest.LogCaptureFixture
) -> None:
    sdk = ScriptedSDK(store)
    done = threading.Event()

    def bad(_job: Job) -> None:
        raise RuntimeError("a bug of the user")

    monitor.watch(job("a"), {"on_complete": bad}, sdk)
    monitor.watch(job("b"), {"on_complete": lambda job: done.set()}, sdk)
    store.update_job_status("a", "Complete")
    store.update_job_status("b", "Complete")
    monitor.start()
    assert done.wait(30)
    eventually(lambda: "a bug of the user" in caplog.text)


def test_a_hanging_platform_delays_no_other(monitor: JobMonitor, store: JobStore) -> None:
    """Lesson D9: one hung call must not stall the rest."""
    hanging, quick = ScriptedSDK(store), ScriptedSDK(store)
    release, done = threading.Event(), threading.Event()
    hanging.before_answer = lambda: release.wait(30)  # type: ignore[assignment]  # what it returns is not looked at
    try:
        monitor.watch(job("stuck"), {}, hanging)
        monitor.start()
        eventually(lambda: hanging.polls)
        monitor.watch(job("free"), {"on_complete": lambda job: done.set()}, quick)
        store.update_job_status("free", "Complete")
        assert done.wait(30)
        assert len(hanging.polls) == 1
    finally:
        release.set()


def test_a_bad_poll_is_not_the_end(monitor: JobMonitor, store: JobStore) -> None:
    sdk = ScriptedSDK(store)
    done = threading.Event()

    def fail_once() -> None:
        if len(sdk.polls) == 1:
            raise RuntimeError("once")

    sdk.before_answer = fail_once
    monitor.watch(job("a"), {"on_error": lambda job: done.set()}, sdk)
    store.update_job_status("a", "Error")
    monitor.start()
    assert done.wait(30)


def test_epoch_milestones(monitor: JobMonitor, store: JobStore) -> None:
    sdk = ScriptedSDK(store)
    seen: list[tuple[int, int]] = []
    monitor.watch(
        job("a"), {"on_epoch_milestone": lambda job, epoch, total: seen.append((epoch, total))}, sdk
    )
    store.update_job_status("a", "Running")
    monitor.start()
    sdk.log.extend(["Epoch 1/6: loss", "Epoch 2/6: loss"])
    eventually(lambda: seen == [(2, 6)])
    sdk.log.extend(["Epoch 2/6: again", "epoch 3/6", "Epoch 4/6", "Epoch 5/6", "Epoch 6/6"])
    eventually(lambda: seen == [(2, 6), (4, 6), (6, 6)])
    row = store.get_job("a")
    assert row is not None
    eventually(lambda: (store.get_job("a") or {})["last_epoch"] == 6)


def test_no_milestone_is_missed_however_much_is_logged(
    monitor: JobMonitor, store: JobStore
) -> None:
    sdk = ScriptedSDK(store)
    seen: list[int] = []
    sdk.log.extend(["Epoch 2/6", *("step" for _ in range(1000))])
    monitor.watch(
        job("a"), {"on_epoch_milestone": lambda job, epoch, total: seen.append(epoch)}, sdk
    )
    store.update_job_status("a", "Running")
    monitor.start()
    eventually(lambda: seen == [2])


def test_epoch_lines() -> None:
    lines = ["Epoch 3/10", "[epoch: 4]", "epoch=5 loss", "Epochs 9", "reopech 3", "nothing"]
    assert list(epochs_in(lines)) == [(3, 10), (4, 0), (5, 0)]


def test_an_ended_job_is_not_watched(monitor: JobMonitor, store: JobStore) -> None:
    sdk = ScriptedSDK(store)
    monitor.watch(job("a", status="Complete"), {"on_complete": lambda job: None}, sdk)
    monitor.watch(job("b"), {}, sdk)
    monitor.start()
    eventually(lambda: sdk.polls)
    assert all(ids == ["b"] for ids in sdk.polls)


def test_the_state_file_never_replaces_a_store(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    with JobStore(path) as store:
        store.create_job("mine", "", "", "", backend_type="scripted")
        JobMonitor(state_file=path).watch(job("other"), {}, ScriptedSDK(store))
        assert {row["job_id"] for row in store.list_jobs()} == {"mine", "other"}
    assert (tmp_path / "odd.json.json").is_file()


def test_state_file_is_the_stores_truth(
    monitor: JobMonitor, store: JobStore, tmp_path: Path
) -> None:
    """Lessons D10, D11: another process's jobs are in it, ended ones are not."""
    sdk = ScriptedSDK(store)
    other = JobMonitor(30, 10, tmp_path / "session.json", store)
    other.watch(job("theirs"), {}, ScriptedSDK(store))
    monitor.watch(job("mine"), {}, sdk)
    assert sorted(active(tmp_path)) == ["mine", "theirs"]
    monitor.start()
    store.update_job_status("mine", "Complete")
    eventually(lambda: active(tmp_path) == ["theirs"])
    assert (tmp_path / "session.json").stat().st_mode & 0o777 == 0o600
    monitor.unwatch("theirs")
    again = JobStore(tmp_path / "again.db")
    assert again.import_from_state_file(tmp_path / "session.json") == 1


class TestPace:
    """Of a platform that has one: time passes only where the test lets it."""

    @pytest.fixture
    def cluster(self, tmp_path: Path) -> Cluster:
        return Cluster(FakeClock(), tmp_path)

    @pytest.fixture
    def state_file(self, tmp_path: Path) -> Path:
        return tmp_path / "run.json"

    @pytest.fixture
    def watching(self, cluster: Cluster, state_file: Path):  # type: ignore[no-untyped-def]  # short, and only here
        """Begins to watch a job in a process of its own, as far as its polls go."""
        opened: list[PacedSDK] = []

        def begin(name: str, hooks: Hooks | None = None) -> _PlatformLoop:
            sdk = PacedSDK(cluster, state_file)
            opened.append(sdk)
            add_jobs(sdk.store, name)
            monitor = JobMonitor(30, 10, state_file.with_name(f"{name}.json"), sdk.store)
            loop = _PlatformLoop(monitor, sdk, cluster.clock)
            job = sdk.get_job(name)
            assert job is not None
            loop.add(_Watched(job, hooks or {}, "Pending"))
            return loop

        yield begin
        for sdk in opened:
            sdk.close()

    @staticmethod
    def run(loops: Sequence[_PlatformLoop], clock: FakeClock, seconds: float) -> None:
        """Let the loops do what their threads do."""
        until = clock.now + seconds
        due = dict.fromkeys(loops, clock.now)
        while clock.now < until:
            for loop in loops:
                if clock.now >= due[loop]:
                    pause = loop.look()
                    due[loop] = clock.now + (seconds if pause is None else pause)
            clock.now = min(until, min(due.values()))

    def test_several_processes_ask_as_rarely_as_one_that_waits(
        self, cluster: Cluster, watching: Callable[..., _PlatformLoop]
    ) -> None:
        loops = [watching(f"job-{number}") for number in range(4)]
        self.run(loops, cluster.clock, 1800)
        # Each asks at once, and after 2, 4, 8, ... s one of them for all.
        assert len(cluster.asked) < 4 + 30 + 10

    def test_hooks_are_called_within_the_pace(
        self, cluster: Cluster, watching: Callable[..., _PlatformLoop]
    ) -> None:
        clock, called = cluster.clock, []
        hooks = {"on_complete": lambda job: called.append(clock.now)}
        cluster.ends = {"early": clock.now + 3, "late": clock.now + 1000}
        self.run([watching("early", hooks), watching("late", hooks)], clock, 1100)
        early, late = (moment - 1_000 for moment in called)
        assert 3 <= early <= 3 + 5
        assert 1000 <= late <= 1000 + 62

    def test_logs_are_read_at_the_interval_and_tell_of_an_end(
        self, cluster: Cluster, watching: Callable[..., _PlatformLoop]
    ) -> None:
        clock, called = cluster.clock, []
        cluster.log_shows_ends = True
        hooks = {
            "on_epoch_milestone": lambda job, epoch, total: called.append((epoch, clock.now)),
            "on_complete": lambda job: called.append(("complete", clock.now)),
        }
        loop = watching("long", hooks)
        self.run([loop], clock, 1000)
        cluster.log += ["Epoch 10/20"]
        self.run([loop], clock, 40)
        cluster.ends = {"long": clock.now}
        before = len(cluster.asked)
        self.run([loop], clock, 40)
        (epoch, seen), (state, ended) = called
        assert (epoch, state) == (10, "complete")
        assert seen - 2_000 <= 32
        assert ended - 2_040 <= 32
        assert len(cluster.asked) <= before + 2

    @pytest.mark.parametrize("has_backend", [True, False])
    def test_another_platform_is_polled_every_interval(
        self, monitor: JobMonitor, store: JobStore, has_backend: bool
    ) -> None:
        sdk = ScriptedSDK(store)
        if has_backend:
            sdk.backend = SimpleNamespace(poll_seconds=0.1)  # type: ignore[attr-defined]  # only here
        loop = _PlatformLoop(monitor, sdk)
        assert loop.look() is None
        store.create_job("a", "", "", "", backend_type="scripted")
        loop.add(_Watched(job("a"), {}, "Pending"))
        monitor.poll_interval = 30
        assert [loop.look(), loop.look()] == [30, 30]
        assert len(sdk.polls) == 2
