"""GPU leases: by everyone on the machine, gone with their holder, served in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk.platforms.local.leases import GpuLeases, release

KEYS = ["a", "b", "c"]

HOLDER = """
import sys
from tao_sdk.platforms.local.leases import GpuLeases
leases = GpuLeases(sys.argv[1])
ticket = leases.join_queue("holder") if sys.argv[2] == "ticket" else None
taken = {} if ticket else leases.try_take(["a", "b", "c"], int(sys.argv[2]), None)
print(len(taken), flush=True)
sys.stdin.read()
"""


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
    first = leases.try_take(KEYS, 2, None)
    assert list(first) == ["a", "b"]
    assert leases.free(KEYS) == ["c"]
    assert leases.try_take(KEYS, 2, None) == {}
    assert leases.free(KEYS) == ["c"], "a failed attempt keeps nothing"
    release(first)
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
    taken = leases.try_take(KEYS, 1, None)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=tuple(taken.values()))
    release(taken)
    assert leases.free(KEYS) == ["b", "c"]
    child.communicate()
    assert leases.free(KEYS) == KEYS


def test_strictly_in_order(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path / "l")
    large, small = leases.join_queue("large"), leases.join_queue("small")
    assert (leases.place(large), leases.place(small), leases.place(None)) == (0, 1, 2)
    busy = leases.try_take(KEYS, 1, large)
    assert leases.try_take(KEYS, 3, large) == {}
    assert leases.try_take(KEYS, 1, small) == {}, "a large job is not starved by small ones"
    assert leases.try_take(KEYS, 1, None) == {}, "nor by those who do not queue"
    release(busy)
    assert len(leases.try_take(KEYS, 3, large)) == 3
    large.close()
    assert leases.place(small) == 0


def test_a_dead_ticket_does_not_block_the_queue(tmp_path: Path) -> None:
    holder = start_holder(tmp_path / "l", "ticket")
    leases = GpuLeases(tmp_path / "l")
    mine = leases.join_queue("mine")
    assert leases.place(mine) == 1
    holder.kill()
    holder.wait()
    assert leases.place(mine) == 0
    assert len(leases.try_take(KEYS, 3, mine)) == 3


def test_shared_by_all_users(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        leases = GpuLeases(tmp_path / "l")
        taken = leases.try_take(KEYS, 1, None)
        release(taken)
    finally:
        os.umask(previous)
    assert (tmp_path / "l").stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "l" / "gpu-a.lock").stat().st_mode & 0o777 == 0o666


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    leases = GpuLeases(tmp_path / "l")
    (tmp_path / "l" / "gpu-a.lock").symlink_to(victim)
    with pytest.raises(OSError, match=r"symbolic|loop"):
        leases.try_take(["a"], 1, None)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="TAO_GPU_LEASE_DIR"):
        GpuLeases(tmp_path / "file")
