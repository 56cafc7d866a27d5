"""GPU leases: shared by all users, gone with their holder, served in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk.platforms.gpus.lease_folder import LeasesUnavailableError
from tao_sdk.platforms.gpus.leases import GpuLease, GpuLeases, Ticket, is_held

KEYS = ["a", "b", "c"]

HOLDER = """
import sys
from tao_sdk.platforms.gpus.leases import GpuLeases
leases = GpuLeases(sys.argv[1])
if sys.argv[2] == "ticket":
    held = leases.join_queue("holder", ["a", "b", "c"])
else:
    held = leases.try_take(["a", "b", "c"], int(sys.argv[2]), None)
print(held, flush=True)
sys.stdin.read()
"""


def gpus(lease: GpuLease | None) -> list[str]:
    return [] if lease is None else lease.keys


def taken(leases: GpuLeases, count: int) -> GpuLease:
    lease = leases.try_take(KEYS, count, None)
    assert lease is not None
    return lease


def place(leases: GpuLeases, keys: list[str], ticket: Ticket | None) -> int:
    return leases.look(keys, ticket).ahead


def start_holder(folder: Path, what: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_all_or_none(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path / "l")
    first = taken(leases, 2)
    assert gpus(first) == ["a", "b"]
    assert leases.free(KEYS) == ["c"]
    assert leases.try_take(KEYS, 2, None) is None
    assert leases.free(KEYS) == ["c"], "a failed attempt keeps nothing"
    first.release()
    assert leases.free(KEYS) == KEYS


def test_another_process_is_respected_and_its_death_frees(tmp_path: Path) -> None:
    holder = start_holder(tmp_path / "l", "2")
    leases = GpuLeases(tmp_path / "l")
    assert leases.free(KEYS) == ["c"]
    holder.kill()
    holder.wait()
    assert leases.free(KEYS) == KEYS


def test_a_child_that_inherits_the_lease_keeps_it(tmp_path: Path) -> None:
    """A killed supervisor does not free a GPU that its job still uses."""
    leases = GpuLeases(tmp_path / "l")
    lease = taken(leases, 1)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=lease.descriptors)
    lease.release()
    assert leases.free(KEYS) == ["b", "c"]
    child.communicate()
    assert leases.free(KEYS) == KEYS


def test_strictly_in_order(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path / "l")
    large, small = leases.join_queue("large", KEYS), leases.join_queue("small", KEYS)
    assert (place(leases, KEYS, large), place(leases, KEYS, small), place(leases, KEYS, None)) == (
        0,
        1,
        2,
    )
    busy = leases.try_take(KEYS, 1, large)
    assert busy is not None
    assert leases.try_take(KEYS, 3, large) is None
    assert leases.try_take(KEYS, 1, small) is None, "small jobs do not starve a large one"
    assert leases.try_take(KEYS, 1, None) is None, "nor by jobs that do not queue"
    busy.release()
    assert gpus(leases.try_take(KEYS, 3, large)) == KEYS
    large.close()
    assert place(leases, KEYS, small) == 0


def test_a_dead_ticket_does_not_block_the_queue(tmp_path: Path) -> None:
    holder = start_holder(tmp_path / "l", "ticket")
    leases = GpuLeases(tmp_path / "l")
    mine = leases.join_queue("mine", KEYS)
    assert place(leases, KEYS, mine) == 1
    holder.kill()
    holder.wait()
    assert place(leases, KEYS, mine) == 0
    assert gpus(leases.try_take(KEYS, 3, mine)) == KEYS


def test_shared_by_all_users(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        leases = GpuLeases(tmp_path / "l")
        taken(leases, 1).release()
    finally:
        os.umask(previous)
    assert (tmp_path / "l").stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "l" / "gpu-a.lock").stat().st_mode & 0o777 == 0o666


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    leases = GpuLeases(tmp_path / "l")
    leases.make()
    (tmp_path / "l" / "gpu-a.lock").symlink_to(victim)
    assert leases.try_take(["a"], 1, None) is None
    assert victim.read_text() == "precious"
    (tmp_path / "file").touch()
    with pytest.raises(LeasesUnavailableError, match="TAO_GPU_LEASE_DIR"):
        GpuLeases(tmp_path / "file").make()


def test_only_those_who_want_the_same_gpus_are_before(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path / "l")
    waiting = leases.join_queue("for a", ["a"])
    busy = leases.try_take(["a"], 1, waiting)
    assert busy
    other = leases.join_queue("for b", ["b"])
    assert place(leases, ["b"], other) == 0
    assert leases.try_take(["b"], 1, other)
    assert place(leases, ["a", "c"], None) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two other users")
def test_a_dead_ticket_of_another_user_blocks_no_job(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    leases = GpuLeases(tmp_path / "l")
    leases.make()
    dead = tmp_path / "l" / "queue" / "00000000000000000001-dead"
    dead.write_text("a")
    os.chown(dead, 1001, 1001)
    dead.chmod(0o666)
    pid = os.fork()
    if pid == 0:  # as another user, in the sticky folder
        try:
            os.setgid(1002)
            os.setuid(1002)
            os._exit(0 if leases.try_take(["a"], 1, None) else 3)
        finally:
            os._exit(4)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_held_file_tells_that_its_holder_lives(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    path.touch()
    assert not is_held(path)
    program = (
        "import os, sys; from tao_sdk.platforms.gpus.leases import lock\n"
        f"lock(os.open({str(path)!r}, os.O_WRONLY)); print(flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert is_held(path)
    holder.kill()
    holder.wait()
    assert not is_held(path)


def test_strange_things_in_the_queue_stop_no_job(tmp_path: Path) -> None:
    """All users can write to the folder: a file there is a ticket only while it is held."""
    leases = GpuLeases(tmp_path / "l")
    leases.make()
    queue = tmp_path / "l" / "queue"
    (queue / "000-folder").mkdir()
    (queue / "001-bytes").write_bytes(b"\xff\xfe")
    (queue / "002-link").symlink_to(tmp_path / "nothing")
    os.mkfifo(queue / "003-pipe")
    mine = leases.join_queue("mine", KEYS)
    assert place(leases, KEYS, mine) == 0
    assert leases.try_take(KEYS, 3, mine)
