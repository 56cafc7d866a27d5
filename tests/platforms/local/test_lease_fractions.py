"""Parts of GPUs, and leases beside those of the version before."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tao_sdk.platforms.gpus.leases import (
    GpuLease,
    GpuLeases,
    OuterLease,
    has_ended,
    look_for_free,
)

KEYS = ["a", "b"]


def take(
    leases: GpuLeases, keys: list[str], count: int, fraction: float = 1.0, name: str = ""
) -> GpuLease:
    lease = leases.try_take(keys, count, None, fraction, name)
    assert lease is not None
    return lease


# How the version before leased whole GPUs.
BEFORE = """
import fcntl, os, sys
def take(folder, keys, count):
    os.makedirs(folder + "/queue", exist_ok=True)
    mutex = os.open(folder + "/leases.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.flock(mutex, fcntl.LOCK_EX)
    taken = {}
    for key in keys:
        if len(taken) == count:
            break
        lock = os.open(folder + f"/gpu-{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken[key] = lock
        except BlockingIOError:
            os.close(lock)
    if len(taken) < count:
        for lock in taken.values():
            os.close(lock)
        taken = {}
    os.close(mutex)
    return taken
"""
HOLD_BEFORE = BEFORE + "print(len(take(sys.argv[1], ['a', 'b'], 1)), flush=True); sys.stdin.read()"


@contextmanager
def held_by_the_version_before(folder: Path) -> Iterator[bool]:
    """Whether it got one of the two GPUs; given back at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_BEFORE, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline() == "1\n"
    finally:
        process.communicate()


def test_two_halves_share_a_gpu_and_a_third_waits(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path)
    first = take(leases, ["a"], 1, 0.5)
    assert leases.free(["a"]) == [], "a GPU in part use is not free"
    second = take(leases, ["a"], 1, 0.5)
    assert first
    assert second
    assert leases.try_take(["a"], 1, None, 0.5) is None
    assert leases.try_take(["a"], 1, None) is None
    first.release()
    assert leases.try_take(["a"], 1, None) is None, "the other half is in use"
    assert leases.try_take(["a"], 1, None, 0.75) is None
    third = take(leases, ["a"], 1, 0.25)
    assert third
    second.release()
    third.release()
    assert leases.free(["a"]) == ["a"]
    assert leases.try_take(["a"], 1, None)


def test_whole_gpus_are_not_shared(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path)
    whole = take(leases, ["a"], 1)
    assert leases.try_take(["a"], 1, None, 0.1) is None
    assert take(leases, KEYS, 1, 0.1).keys == ["b"]
    whole.release()


def test_tenths_add_up_to_one(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path)
    assert all(leases.try_take(["a"], 1, None, 0.1) for _ in range(10))
    assert leases.try_take(["a"], 1, None, 0.1) is None


def test_a_part_is_kept_by_a_child_and_freed_with_it(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path)
    taken = take(leases, ["a"], 1, 0.6)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=taken.descriptors)
    taken.release()
    assert leases.try_take(["a"], 1, None, 0.5) is None
    child.communicate()
    assert leases.try_take(["a"], 1, None, 0.5)
    assert len(list((tmp_path / "taken").iterdir())) == 1, "the file of the dead one is removed"


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_the_version_before_sees_our_leases(tmp_path: Path, fraction: float) -> None:
    leases = GpuLeases(tmp_path)
    both = take(leases, KEYS, 2, fraction)
    assert both
    with held_by_the_version_before(tmp_path) as got_one:
        assert not got_one
    both.release()
    with held_by_the_version_before(tmp_path) as got_one:
        assert got_one


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_we_see_leases_of_the_version_before(tmp_path: Path, fraction: float) -> None:
    with held_by_the_version_before(tmp_path) as got_one:
        assert got_one
        leases = GpuLeases(tmp_path)
        assert look_for_free(tmp_path, KEYS) == ["b"]
        assert leases.try_take(["a"], 1, None, fraction) is None
        assert leases.try_take(KEYS, 2, None, fraction) is None
        take(leases, ["b"], 1, fraction).release()
        assert leases.free(KEYS) == ["b"]
    assert leases.try_take(KEYS, 2, None, fraction)


def shared(folder: Path) -> Path:
    """A folder as the first job of a machine makes it."""
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


class TestTwoFolders:
    """A lease is in each folder; earlier versions know only the second one."""

    @pytest.fixture
    def folders(self, tmp_path: Path) -> str:
        return f"{shared(tmp_path / 'lock')}:{shared(tmp_path / 'tmp')}"

    @pytest.mark.parametrize("fraction", [1.0, 0.5])
    def test_an_earlier_version_sees_our_leases_and_our_place(
        self, folders: str, tmp_path: Path, fraction: float
    ) -> None:
        leases, earlier = GpuLeases(folders), GpuLeases(tmp_path / "tmp")
        lease = take(leases, KEYS, 2, fraction)
        assert earlier.try_take(["a"], 1, None) is None
        with held_by_the_version_before(tmp_path / "tmp") as got_one:
            assert not got_one
        ticket = leases.join_queue("ours", KEYS)
        lease.release()
        assert earlier.try_take(["a"], 1, None) is None, "we are before it"
        ticket.close()
        take(earlier, KEYS, 2).release()

    @pytest.mark.parametrize("fraction", [1.0, 0.5])
    def test_we_see_those_of_an_earlier_version(
        self, folders: str, tmp_path: Path, fraction: float
    ) -> None:
        leases, earlier = GpuLeases(folders), GpuLeases(tmp_path / "tmp")
        lease = take(earlier, ["a"], 1, fraction)
        assert look_for_free(folders, KEYS) == ["b"]
        assert leases.try_take(["a"], 1, None) is None
        assert (leases.try_take(["a"], 1, None, 0.5) is None) is (fraction == 1)
        lease.release()
        with held_by_the_version_before(tmp_path / "tmp") as got_one:
            assert got_one
            assert leases.try_take(KEYS, 2, None, fraction) is None

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a folder of another user")
    @pytest.mark.parametrize("flaw", ["no parent", "a file", "not for all", "not sticky"])
    def test_a_folder_that_cannot_be_used_is_left_out(
        self, folders: str, tmp_path: Path, flaw: str
    ) -> None:
        place = tmp_path / "lock"
        place.rmdir()
        if flaw == "no parent":
            folders = f"{tmp_path / 'none' / 'lock'}:{tmp_path / 'tmp'}"
        elif flaw == "a file":
            place.touch()
        else:
            place.mkdir()
            place.chmod(0o1770 if flaw == "not for all" else 0o777)
            os.chown(place, 1001, 1001)
        lease = take(GpuLeases(folders), ["a"], 1)
        assert {folder for folder, _ in lease.files} == {tmp_path / "tmp"}
        assert not (tmp_path / "none").exists()

    def test_the_maker_sets_a_mode_that_a_killed_process_did_not(
        self, folders: str, tmp_path: Path
    ) -> None:
        (tmp_path / "lock").chmod(0o755)
        lease = take(GpuLeases(folders), ["a"], 1)
        assert len({folder for folder, _ in lease.files}) == 2

    def test_an_outer_lease_of_an_earlier_version_is_joined(
        self, folders: str, tmp_path: Path
    ) -> None:
        outer = OuterLease("outer", ("a",))
        lease = take(GpuLeases(tmp_path / "tmp"), ["a"], 1, name="outer")
        assert not has_ended(folders, outer)
        inner = GpuLeases(folders).join(outer, ["a"])
        assert inner is not None
        lease.release()
        assert look_for_free(folders, KEYS) == ["b"]
        inner.release()
        assert has_ended(folders, outer)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("deleted", ["gpu-a.lock", "taken/mine"])
def test_a_deleted_file_means_a_busy_gpu(tmp_path: Path, deleted: str, fraction: float) -> None:
    leases = GpuLeases(tmp_path)
    taken = take(leases, ["a"], 1, fraction, name="mine")
    (tmp_path / deleted).unlink()
    assert leases.free(["a"]) == []
    assert leases.try_take(["a"], 1, None) is None
    assert leases.try_take(["a"], 1, None, 0.7) is None
    taken.release()
    assert leases.try_take(["a"], 1, None)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_an_odd_file_means_a_busy_gpu(tmp_path: Path, kind: str) -> None:
    leases = GpuLeases(tmp_path)
    odd = tmp_path / "gpu-a.lock"
    if kind == "folder":
        odd.mkdir()
    elif kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to(tmp_path / "elsewhere")
    assert leases.free(KEYS) == ["b"]
    assert take(leases, KEYS, 1).keys == ["b"]
    assert leases.try_take(["a"], 1, None, 0.5) is None
    assert not (tmp_path / "elsewhere").exists()


def test_an_unreadable_fraction_counts_as_a_whole_gpu(tmp_path: Path) -> None:
    leases = GpuLeases(tmp_path)
    taken = take(leases, ["a"], 1, 0.1, name="mine")
    (tmp_path / "taken" / "mine").write_text("a newer version says more\na")
    assert leases.try_take(["a"], 1, None, 0.1) is None
    taken.release()


class TestJoining:
    """A job that was started by another one holds that one's GPUs as well."""

    def test_while_the_outer_lease_lives(self, tmp_path: Path) -> None:
        leases = GpuLeases(tmp_path)
        outer = OuterLease("outer", ("a", "b"))
        assert has_ended(tmp_path, outer)
        taken = take(leases, KEYS, 2, name="outer")
        assert not has_ended(tmp_path, outer)
        inner = leases.join(outer, ["a"])
        assert inner is not None
        assert inner.keys == ["a"]
        taken.release()
        assert leases.free(KEYS) == [], "the inner job has outlived the outer one"
        assert leases.try_take(["a"], 1, None) is None
        with held_by_the_version_before(tmp_path) as got_one:
            assert got_one, "only the GPU that the inner job does not use"
        inner.release()
        assert has_ended(tmp_path, outer)
        assert leases.free(KEYS) == KEYS

    def test_not_when_it_has_ended_or_is_another(self, tmp_path: Path) -> None:
        leases = GpuLeases(tmp_path)
        outer = OuterLease("outer", ("a",))
        assert leases.join(outer, ["a"]) is None
        take(leases, ["a"], 1, name="outer").release()
        anothers = take(leases, ["a"], 1, name="another")
        assert leases.join(outer, ["a"]) is None
        assert leases.join(OuterLease("another", ("a", "b")), ["b"]) is None, "not its GPU"
        anothers.release()

    def test_its_text(self) -> None:
        outer = OuterLease("name", ("GPU-1", "GPU-2"))
        assert OuterLease.parse(str(outer)) == outer
        for text in ("", "name", "name:", ":GPU-1", "../name:GPU-1"):
            assert OuterLease.parse(text) is None


WORKER = (
    BEFORE
    + """
import json, random, time
from tao_sdk.platforms.gpus.leases import GpuLeases
folder, old, seed, log = sys.argv[1], sys.argv[2] == "old", int(sys.argv[3]), sys.argv[4]
chance = random.Random(seed)
leases = GpuLeases(folder)
out = os.open(log, os.O_WRONLY | os.O_APPEND)
def note(sign, keys, fraction):
    line = json.dumps([time.monotonic(), sign * fraction, [k for k in keys if k in ("a", "b")]])
    os.write(out, line.encode() + b"\\n")
done = 0
while done < 15:
    count, fraction = chance.choice([1, 2]), 1.0 if old else chance.choice([0.25, 0.5, 1.0])
    keys = ["a", "b"]
    taken = take(folder, keys, count) if old else leases.try_take(keys, count, None, fraction)
    if not taken:
        time.sleep(0.002)
        continue
    got = taken if old else taken.keys
    note(1, got, fraction)
    time.sleep(chance.random() * 0.005)
    note(-1, got, fraction)
    if old:
        for lock in taken.values():
            os.close(lock)
    else:
        taken.release()
    done += 1
"""
)


def test_many_processes_of_both_versions_never_double_book(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    log = tmp_path / "log"
    log.touch()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "l"), kind, str(seed + n), str(log)]
        )
        for n, kind in enumerate(["old", "new", "new", "new", "old", "new"])
    ]
    deadline = time.monotonic() + 120
    for worker in workers:
        assert worker.wait(max(0.1, deadline - time.monotonic())) == 0
    in_use = dict.fromkeys(KEYS, 0.0)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 6 * 15 * 2
    # Notes are made while the lease is held, so their order in time is that of the leases.
    for _, change, keys in sorted(lines):
        for key in keys:
            in_use[key] += change
            assert 0 <= in_use[key] <= 1, f"seed {seed}"


FULL_DISK = """
import resource, sys
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.gpus.leases import GpuLeases
leases = GpuLeases(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    leases.try_take(["a"], 1, None)
except BackendUnreachableError:
    print(*leases.free(["a"]))
"""


def test_a_full_disk_leaves_the_gpu_free(tmp_path: Path) -> None:
    """Also for a client that lives on."""
    words = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "a\n"
