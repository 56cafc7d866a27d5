"""The lock for network file systems: who holds it, and when it may be broken."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tao_sdk import file_locks
from tao_sdk.errors import StoreBusyError, StoreError
from tao_sdk.job_store import JobStore, network_lock
from tao_sdk.job_store.deadline import Deadline
from tao_sdk.job_store.network_lock import NetworkLock
from tao_sdk.process_identity import ProcessIdentity, start_time, this_host


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def lock_file(store: Path) -> Path:
    return store.with_name("jobs.db-access")


def leave_lock(store: Path, owner: str) -> None:
    lock_file(store).write_text(owner)


def gone_process() -> ProcessIdentity:
    """A process that has ended; its identity was read while it ran."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessIdentity(this_host(), process.pid, start_time(process.pid) or "")
    process.communicate(b"\n")
    return identity


def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Deadline:
    monkeypatch.setenv("TAO_SDK_BUSY_SECONDS", str(seconds))
    return Deadline.from_settings()


def try_to_hold(lock: NetworkLock, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock.held(patience(monkeypatch, 0.05)):
        pass


def test_it_is_private_names_its_owner_and_goes_away(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        with NetworkLock(store).held(patience(monkeypatch, 5)) as ticket:
            assert lock_file(store).read_text() == str(ProcessIdentity.current())
            assert lock_file(store).stat().st_mode & 0o777 == 0o600
            assert ticket.holds_lock
    finally:
        os.umask(before)
    assert list(store.parent.iterdir()) == []


def test_a_living_holder_is_waited_for(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with NetworkLock(store).held(patience(monkeypatch, 5)):
        with pytest.raises(StoreBusyError, match=f"held by .*{os.getpid()}.*remove the file"):
            try_to_hold(NetworkLock(store, foreign_silence=0), monkeypatch)
        assert lock_file(store).exists()
    with NetworkLock(store).held(patience(monkeypatch, 5)):
        pass


def test_the_lock_of_a_dead_process_of_this_host_is_broken_at_once(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_lock(store, str(gone_process()))
    with NetworkLock(store).held(patience(monkeypatch, 5)) as ticket:
        assert ticket.holds_lock


def test_a_reused_process_id_does_not_keep_the_lock(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_lock(store, str(ProcessIdentity(this_host(), os.getpid(), "long ago")))
    with NetworkLock(store).held(patience(monkeypatch, 5)):
        pass


@pytest.mark.parametrize("owner", ["elsewhere/boot/pid:[1]|1|99", "garbage", ""])
def test_a_lock_that_cannot_be_examined_is_broken_after_a_long_silence_only(
    store: Path, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    leave_lock(store, owner)
    with pytest.raises(StoreBusyError):
        try_to_hold(NetworkLock(store, foreign_silence=60), monkeypatch)
    with NetworkLock(store, foreign_silence=0.01).held(patience(monkeypatch, 30)):
        assert lock_file(store).read_text() == str(ProcessIdentity.current())


def test_silence_is_measured_by_the_file_server(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host with a wrong clock may set any modification time; it proves nothing."""
    leave_lock(store, "elsewhere/boot/pid:[1]|1|99")
    os.utime(lock_file(store), (0, 0))
    with pytest.raises(StoreBusyError):
        try_to_hold(NetworkLock(store, foreign_silence=60), monkeypatch)


def test_breakers_do_not_break_each_other(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = patience(monkeypatch, 60)
    inside = 0
    most = 0
    counter = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            with NetworkLock(store).held(deadline):
                with counter:
                    inside += 1
                    most = max(most, inside)
                with counter:
                    inside -= 1

    leave_lock(store, str(gone_process()))
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_holder_notices_that_it_lost_the_lock(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NetworkLock(store).held(patience(monkeypatch, 5)) as ticket:
        lock_file(store).unlink()
        leave_lock(store, "elsewhere/boot/pid:[1]|1|99")
        assert not ticket.holds_lock
    assert lock_file(store).exists(), "the new holder's lock must stay"


def test_a_leftover_ticket_of_the_same_name_is_not_mistaken_for_the_lock(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process may have had our id, and its ticket may still be linked to the lock."""
    with NetworkLock(store).held(patience(monkeypatch, 5)) as ticket:
        name = ticket.path
    prefix, _, number = name.name.rpartition(".")
    leftover = name.with_name(f"{prefix}.{int(number) + 1}")
    leftover.write_text("elsewhere/boot/pid:[1]|1|99")
    os.link(leftover, lock_file(store))
    monkeypatch.setattr(network_lock, "_ticket_numbers", iter([int(number) + 1]))
    with pytest.raises(StoreBusyError):
        try_to_hold(NetworkLock(store), monkeypatch)


def test_a_swept_ticket_is_drawn_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = NetworkLock(store)
    with lock.held(patience(monkeypatch, 5)) as first:
        lock_file(store).unlink()
        first.path.unlink()
        assert not first.link()
        assert first.link()
        assert first.holds_lock


def test_a_store_that_lost_its_lock_does_not_commit(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "network")
    jobs = JobStore(store)
    jobs.create_job("job-1", "dino", "train", "local")

    def write_late() -> None:
        with jobs._database.write() as connection:
            connection.execute("UPDATE jobs SET message = 'late'")
            lock_file(store).unlink()

    with pytest.raises(StoreBusyError, match="taken over by another host"):
        write_late()
    row = jobs.get_job("job-1")
    assert row is not None
    assert row["message"] == ""


class TestWithoutFileLocks:
    """Some Lustre mounts answer `flock` with ENOSYS."""

    @pytest.fixture(autouse=True, params=[errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
    def refuse(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*_: int) -> None:
            raise OSError(request.param, os.strerror(request.param))

        monkeypatch.setattr(file_locks, "_flock", refused)

    def test_the_lock_of_a_killed_process_is_broken(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leave_lock(store, str(gone_process()))
        with NetworkLock(store).held(patience(monkeypatch, 5)) as ticket:
            assert ticket.holds_lock
        assert [left.name for left in store.parent.iterdir()] == ["jobs.db-breaker"]

    def test_so_is_the_turn_of_a_killed_breaker(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leave_lock(store, str(gone_process()))
        store.with_name("jobs.db-breaking").write_text(str(gone_process()))
        with NetworkLock(store).held(patience(monkeypatch, 5)):
            pass
        assert [left.name for left in store.parent.iterdir()] == ["jobs.db-breaker"]

    def test_a_living_breaker_is_waited_for(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leave_lock(store, str(gone_process()))
        store.with_name("jobs.db-breaking").write_text(str(ProcessIdentity.current()))
        with pytest.raises(StoreBusyError):
            try_to_hold(NetworkLock(store), monkeypatch)
        assert lock_file(store).exists()

    def test_many_break_it_and_one_at_a_time_holds_it(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leave_lock(store, str(gone_process()))
        inside, most = 0, 0

        def hold() -> None:
            nonlocal inside, most
            with NetworkLock(store).held(Deadline.from_settings()):
                inside += 1
                most = max(most, inside)
                inside -= 1

        threads = [threading.Thread(target=hold) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1
        assert [left.name for left in store.parent.iterdir()] == ["jobs.db-breaker"]

    def test_a_store_for_local_disks_says_what_to_do(
        self, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_STORE_MODE", "wal")
        with pytest.raises(StoreError, match=r"refuses file locks.*TAO_SDK_STORE_MODE=network"):
            JobStore(store).list_jobs()
