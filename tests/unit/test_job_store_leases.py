"""Leases: one process and one thread at a time; a dead owner is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import tao_sdk
from tao_sdk.errors import StoreError
from tao_sdk.job_store import JobStore
from tao_sdk.process_identity import ProcessIdentity

PACKAGE_ROOT = str(Path(tao_sdk.__file__).parents[1])

HOLDER = """
import sys
from tao_sdk.job_store import JobStore

with JobStore(sys.argv[1]).lease("advance/docker", 60) as mine:
    print(mine, flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""


@pytest.fixture(params=["wal", "network"])
def path(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", request.param)
    return tmp_path / "jobs.db"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease until it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def is_free(path: Path, name: str = "advance/docker", seconds: float = 60) -> bool:
    with JobStore(path) as store, store.lease(name, seconds) as mine:
        return mine


def held_by(path: Path, owner: object, until: datetime) -> None:
    """Write the lease of another process."""
    with JobStore(path) as store, store._database.write() as connection:
        connection.execute(
            "INSERT INTO leases VALUES (?, ?, ?)", ("advance/docker", str(owner), until.isoformat())
        )


def in_seconds(seconds: float) -> datetime:
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


def test_a_living_process_keeps_its_lease_until_it_releases_it(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    assert not is_free(path)
    assert is_free(path, "advance/slurm")
    assert holder.communicate("\n")[0] == "released\n"
    assert is_free(path)


def test_the_lease_of_a_killed_process_is_free_at_once(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert is_free(path)


def test_a_stopped_process_keeps_its_lease_until_it_runs_out(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGSTOP)
    assert not is_free(path)
    with JobStore(path) as store, store._database.write() as connection:
        connection.execute("UPDATE leases SET until = ?", (in_seconds(-1).isoformat(),))
    assert is_free(path)
    holder.send_signal(signal.SIGCONT)


def test_the_owner_of_a_lease(path: Path, holder: subprocess.Popen[str]) -> None:
    with JobStore(path) as store:
        assert f"|{holder.pid}|" in store.lease_owner("advance/docker")
        assert store.lease_owner("advance/slurm") == ""
        with store.lease("advance/slurm", 60):
            assert store.lease_owner("advance/slurm") == str(ProcessIdentity.current())
        holder.kill()
        holder.wait()
        assert store.lease_owner("advance/docker") == ""


def test_one_of_many_processes_gets_it(path: Path) -> None:
    JobStore(path).list_jobs()
    code = """
import sys
from tao_sdk.job_store import JobStore
store = JobStore(sys.argv[1])
store.list_jobs()
print("ready", flush=True)
sys.stdin.readline()
with store.lease("advance/docker", 60) as mine:
    print(mine, flush=True)
    sys.stdin.readline()
"""
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    answers = []
    try:
        for process in contenders:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in contenders:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in contenders:
            assert process.stdout is not None
            answers.append(process.stdout.readline())
    finally:
        for process in contenders:
            process.communicate("\n")
    assert sorted(answers) == ["False\n"] * 5 + ["True\n"]


@pytest.mark.parametrize("same_object", [True, False])
def test_threads_of_one_process_exclude_each_other(path: Path, same_object: bool) -> None:
    store = JobStore(path)
    answers: list[bool] = []

    def ask() -> None:
        with (store if same_object else JobStore(path)).lease("advance/docker", 60) as mine:
            answers.append(mine)

    with store.lease("advance/docker", 60) as mine:
        assert mine
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    ask()
    assert answers == [False, True]


def test_an_unknown_machine_keeps_its_lease_until_it_runs_out(path: Path) -> None:
    elsewhere = ProcessIdentity("elsewhere/0123abcd/pid:[1]", 7, "1")
    held_by(path, elsewhere, in_seconds(60))
    assert not is_free(path)
    with JobStore(path) as store, store._database.write() as connection:
        connection.execute("DELETE FROM leases")
    held_by(path, elsewhere, in_seconds(-1))
    assert is_free(path)


def test_the_lease_runs_out_after_the_given_time(path: Path) -> None:
    with JobStore(path) as store:
        with store.lease("advance/docker", 60), store._database.read() as connection:
            found = connection.execute("SELECT owner, until FROM leases").fetchone()
        with store._database.read() as connection:
            assert connection.execute("SELECT * FROM leases").fetchall() == []
    assert found["owner"] == str(ProcessIdentity.current())
    assert in_seconds(50) < datetime.fromisoformat(found["until"]) < in_seconds(61)


def test_a_lease_that_this_process_failed_to_release_is_its_own(path: Path) -> None:
    held_by(path, ProcessIdentity.current(), in_seconds(60))
    assert is_free(path)


def test_a_forked_child_does_not_share_the_lease(path: Path) -> None:
    store = JobStore(path)
    with store.lease("advance/docker", 60) as mine:
        assert mine
        child = os.fork()
        if child == 0:
            with store.lease("advance/docker", 60) as in_child:
                os._exit(1 if in_child else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_error_of_the_body_releases_the_lease_and_passes(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), JobStore(path).lease("advance/docker", 60):
        raise KeyboardInterrupt
    assert is_free(path)


def close_inside(store: JobStore, error: BaseException | None = None) -> None:
    """Make the release fail."""
    with store.lease("advance/docker", 60):
        store.close()
        if error is not None:
            raise error


def test_a_release_that_fails_does_not_hide_the_error_of_the_body(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        close_inside(JobStore(path), KeyboardInterrupt())
    with pytest.raises(StoreError, match="closed"):
        close_inside(JobStore(path))
    assert is_free(path)


def test_leases_of_a_memory_store() -> None:
    store, other = JobStore(":memory:"), JobStore(":memory:")
    with store.lease("a", 60) as mine, store.lease("a", 60) as again, other.lease("a", 60) as its:
        assert (mine, again, its) == (True, False, True)
