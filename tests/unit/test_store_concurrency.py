"""Many processes, threads and forks on one store; and processes that die in the middle."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tao_sdk
from tao_sdk.errors import StoreBusyError, StoreError
from tao_sdk.job_store import JobStore, NewJob, StatusUpdate

MODES = ("wal", "network")
PACKAGE_ROOT = str(Path(tao_sdk.__file__).parents[1])

# Three writes for each job: intent, confirmation, end.
WRITER = """
import sys
from tao_sdk.job_store import JobStore, NewJob, StatusUpdate

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
store = JobStore(path)
for number in range(count):
    job = f"{name}-{number}"
    store.begin_submissions([NewJob(job, "dino", "train", "local", "docker", "token", "owner")])
    assert store.confirm_submission(job, backend_job_id=job, native={"id": job})
    assert store.apply_updates([StatusUpdate(job, status="Complete")]) == {job: "Complete"}
store.close()
"""


def start(code: str, *arguments: object, mode: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "TAO_SDK_STORE_MODE": mode}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def new_job(job_id: str) -> NewJob:
    return NewJob(job_id, "dino", "train", "local", "docker", "token", "owner")


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", request.param)
    return str(request.param)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Started by a test; none outlives it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def hammer(path: Path, mode: str, workers: int, jobs: int) -> None:
    """Let `workers` processes create the store and write `jobs` jobs each, all at once."""
    writers = [start(WRITER, path, f"w{n}", jobs, mode=mode) for n in range(workers)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    errors = [writer.communicate()[1] for writer in writers]
    assert [error for error in errors if error] == []
    with JobStore(path) as store:
        rows = store.list_jobs(status="Complete")
        assert len(rows) == workers * jobs
        assert {row["phase"] for row in rows} == {"submitted"}
        kinds = [event["kind"] for event in store.events(limit=10 * workers * jobs)]
    assert sorted(set(kinds)) == ["status", "submitted", "submitting"]
    assert len(kinds) == 3 * workers * jobs


def test_no_write_is_lost_among_many_processes(tmp_path: Path, mode: str) -> None:
    """Lesson D1: no "database is locked", also while the file is being created."""
    hammer(tmp_path / "jobs.db", mode, workers=8, jobs=20)


@pytest.mark.soak
def test_no_write_is_lost_among_32_processes(tmp_path: Path, mode: str) -> None:
    """Lesson D1 at full size: 1,600 of 1,600 jobs."""
    hammer(tmp_path / "jobs.db", mode, workers=32, jobs=50)


# Changes every row, far beyond the page cache, so that half of the unfinished transaction stands
# in the file itself; then waits to be killed.
DYING_WRITER = """
import sys
from tao_sdk.job_store import JobStore

store = JobStore(sys.argv[1])
with store._database.write() as connection:
    connection.execute("PRAGMA cache_size = 5")
    connection.execute("UPDATE jobs SET message = 'unfinished', image = hex(zeroblob(500))")
    print("in the middle", flush=True)
    sys.stdin.readline()
"""


def test_killed_writer_leaves_no_trace_and_blocks_nobody(
    tmp_path: Path, mode: str, processes: list[subprocess.Popen[str]]
) -> None:
    path = tmp_path / "jobs.db"
    with JobStore(path) as store:
        store.begin_submissions([new_job(f"job-{n}") for n in range(500)])
    victim = start(DYING_WRITER, path, mode=mode)
    processes.append(victim)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "in the middle\n", victim.communicate()[1]
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    with JobStore(path) as store:
        rows = store.list_jobs()
        assert len(rows) == 500
        assert {row["message"] for row in rows} == {""}
        assert store.confirm_submission("job-0", backend_job_id="c0", native={})
    assert not [left.name for left in tmp_path.iterdir() if "ticket" in left.name]


def test_killed_waiter_leaves_no_ticket_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: list[subprocess.Popen[str]]
) -> None:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "network")
    path = tmp_path / "jobs[1].db"
    store = JobStore(path)

    def tickets() -> list[str]:
        return [file.name for file in tmp_path.iterdir() if "-ticket." in file.name]

    with store._database.write():
        waiter = start(WRITER, path, "w", 1, mode="network")
        processes.append(waiter)
        assert waiter.stdin is not None
        waiter.stdin.write("go\n")
        waiter.stdin.flush()
        # Both tickets with their owners' names: one killed earlier is told by its age alone.
        wait_until(lambda: len([name for name in tickets() if (tmp_path / name).read_text()]) == 2)
        waiter.kill()
        waiter.wait()
    JobStore(path).list_jobs()
    assert tickets() == []


def test_waiting_ends_with_an_error_that_says_what_to_do(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    holder, other = JobStore(path), JobStore(path)
    other.list_jobs()
    monkeypatch.setenv("TAO_SDK_BUSY_SECONDS", "0.05")
    with holder._database.write(), pytest.raises(StoreBusyError, match="TAO_SDK_BUSY_SECONDS"):
        other.create_job("job-1", "dino", "train", "local")
    other.create_job("job-1", "dino", "train", "local")
    assert holder.get_job("job-1") is not None


def test_a_writer_that_gave_up_does_not_keep_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "wal")
    path = tmp_path / "jobs.db"
    holder, impatient = JobStore(path), JobStore(path)
    impatient.list_jobs()
    with holder._database.write():
        monkeypatch.setenv("TAO_SDK_BUSY_SECONDS", "0.05")
        with pytest.raises(StoreBusyError):
            impatient.create_job("job-1", "dino", "train", "local")
        monkeypatch.delenv("TAO_SDK_BUSY_SECONDS")
    # Its abandoned place in the queue comes up now, and must be passed on.
    for number in range(20):
        holder.create_job(f"later-{number}", "dino", "train", "local")
    assert len(holder.list_jobs()) == 20


def test_a_busy_foreign_reader_of_the_file_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that knows nothing of our gate is still respected, through SQLite's own lock."""
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "wal")
    path = tmp_path / "jobs.db"
    store = JobStore(path)
    store.list_jobs()
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    monkeypatch.setenv("TAO_SDK_BUSY_SECONDS", "0.05")
    with pytest.raises(StoreBusyError):
        store.create_job("job-1", "dino", "train", "local")
    foreign.execute("ROLLBACK")
    foreign.close()
    store.create_job("job-1", "dino", "train", "local")


def test_one_store_object_serves_many_threads(tmp_path: Path, mode: str) -> None:
    store = JobStore(tmp_path / "jobs.db")
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(10):
                store.create_job(f"{name}-{number}", "dino", "train", "local")
                store.apply_updates([StatusUpdate(f"{name}-{number}", status="Running")])
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.list_jobs(status="Running")) == 80


def in_child(work: Callable[[], object]) -> int:
    """Fork, do `work` in the child, and return the child's exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the child must not run on into the test suite
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_and_its_parent_both_go_on(tmp_path: Path, mode: str) -> None:
    store = JobStore(tmp_path / "jobs.db")
    store.create_job("before", "dino", "train", "local")

    def work() -> None:
        store.create_job("child", "dino", "train", "local")
        assert store.get_job("before") is not None

    assert in_child(work) == 0
    store.create_job("parent", "dino", "train", "local")
    assert {row["job_id"] for row in store.list_jobs()} == {"before", "child", "parent"}


def test_a_child_holds_locks_of_its_own_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had the child inherited SQLite's idea of the parent's locks, the parent's exit would remove
    the write-ahead log under it and its later writes would be lost."""
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "wal")
    path = tmp_path / "jobs.db"
    script = """
import os, sys
from tao_sdk.job_store import JobStore

store = JobStore(sys.argv[1])
store.create_job("parent", "dino", "train", "local")
parent_waits, child_goes = os.pipe()
child_waits, parent_gone = os.pipe()
if os.fork() == 0:
    os.close(parent_gone)
    store.create_job("child-1", "dino", "train", "local")
    os.write(child_goes, b"x")
    os.read(child_waits, 1)                 # end of file: the parent has exited
    JobStore(sys.argv[1]).create_job("other", "dino", "train", "local")
    store.create_job("child-2", "dino", "train", "local")
    store.close()
    os._exit(0)
os.read(parent_waits, 1)
store.create_job("parent-2", "dino", "train", "local")
store.close()
"""
    process = start(script, path, mode="wal")
    assert process.communicate() == ("", "")
    expected = {"parent", "child-1", "parent-2", "other", "child-2"}
    store = JobStore(path)
    wait_until(lambda: {row["job_id"] for row in store.list_jobs()} == expected)


def test_forking_while_another_thread_writes(tmp_path: Path, mode: str) -> None:
    store = JobStore(tmp_path / "jobs.db")
    stop = threading.Event()
    written = 0

    def write_on() -> None:
        nonlocal written
        while not stop.is_set():
            store.create_job(f"thread-{written}", "dino", "train", "local")
            written += 1

    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        for number in range(10):
            name = f"child-{number}"
            work = lambda name=name: store.create_job(name, "dino", "train", "local")  # noqa: E731 - named where it is used
            assert in_child(work) == 0
    finally:
        stop.set()
        thread.join()
    assert len(store.list_jobs()) == written + 10


def test_a_memory_store_survives_a_fork(tmp_path: Path) -> None:
    store = JobStore(":memory:")
    store.create_job("job-1", "dino", "train", "local")

    def work() -> None:
        assert store.get_job("job-1") is not None

    assert in_child(work) == 0


def test_calling_the_store_inside_its_own_transaction_is_refused(tmp_path: Path, mode: str) -> None:
    store = JobStore(tmp_path / "jobs.db")
    store.create_job("job-1", "dino", "train", "local")
    with store._database.write(), pytest.raises(StoreError, match="signal handler"):
        store.create_job("job-2", "dino", "train", "local")
    assert store.get_job("job-1") is not None


def test_writing_to_a_removed_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "wal")
    path = tmp_path / "jobs.db"
    store = JobStore(path)
    store.create_job("job-1", "dino", "train", "local")
    path.unlink()
    with pytest.raises(StoreError, match="removed or replaced"):
        store.create_job("job-2", "dino", "train", "local")


def test_one_claimant_of_many_processes_wins(
    tmp_path: Path, mode: str, processes: list[subprocess.Popen[str]]
) -> None:
    path = tmp_path / "jobs.db"
    with JobStore(path) as store:
        store.begin_submissions([new_job("job-1")])
    claim = """
import sys
from tao_sdk.job_store import JobStore
sys.stdin.readline()
print(JobStore(sys.argv[1]).claim_submission("job-1", "owner", sys.argv[2]))
"""
    processes += [start(claim, path, f"claimant-{n}", mode=mode) for n in range(6)]
    answers = [process.communicate("go\n") for process in processes]
    assert sorted(answer for answer, _ in answers) == ["False\n"] * 5 + ["True\n"]


# Says the name of each job once it is in the store; goes on until it is killed.
ENDLESS_WRITER = """
import itertools, sys
from tao_sdk.job_store import JobStore

store = JobStore(sys.argv[1])
for number in itertools.count():
    job = f"{sys.argv[2]}-{number}"
    store.create_job(job, "dino", "train", "local", specs={"filler": "x" * 3000})
    print(job, flush=True)
"""


def kill_writers(
    path: Path, mode: str, rounds: int, processes: list[subprocess.Popen[str]]
) -> None:
    """Kill three writers in each round, each after some writes, while the others go on."""
    chance = random.Random(rounds)
    acknowledged: set[str] = set()
    for number in range(rounds):
        writers = [start(ENDLESS_WRITER, path, f"r{number}w{n}", mode=mode) for n in range(3)]
        processes += writers
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 12)):
                line = writer.stdout.readline()
                assert line, writer.communicate()[1]
                acknowledged.add(line.strip())
            writer.kill()
            left, errors = writer.communicate()
            assert errors == ""
            acknowledged.update(left.split())
    with JobStore(path) as store:
        stored = {row["job_id"] for row in store.list_jobs()}
        assert acknowledged - stored == set()
        with store._database.read() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_what_was_acknowledged_survives_kills(
    tmp_path: Path, mode: str, processes: list[subprocess.Popen[str]]
) -> None:
    kill_writers(tmp_path / "jobs.db", mode, rounds=3, processes=processes)


@pytest.mark.soak
def test_what_was_acknowledged_survives_many_kills(
    tmp_path: Path, mode: str, processes: list[subprocess.Popen[str]]
) -> None:
    kill_writers(tmp_path / "jobs.db", mode, rounds=40, processes=processes)


OPENING_WRITER = """
import sys
from tao_sdk.job_store import JobStore

sys.stdin.readline()
for number in range(int(sys.argv[3])):
    with JobStore(sys.argv[1]) as store:
        store.create_job(f"{sys.argv[2]}-{number}", "dino", "train", "local")
"""


def test_opening_and_closing_all_the_time(
    tmp_path: Path, mode: str, processes: list[subprocess.Popen[str]]
) -> None:
    """The last one out removes the write-ahead log while the next one comes in."""
    path = tmp_path / "jobs.db"
    processes += [start(OPENING_WRITER, path, f"w{n}", 15, mode=mode) for n in range(6)]
    assert [process.communicate("go\n")[1] for process in processes] == [""] * 6
    assert len(JobStore(path).list_jobs()) == 90
