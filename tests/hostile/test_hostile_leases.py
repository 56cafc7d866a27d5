"""Any user of a machine can write to its lease folders: they stop no jobs of others by that, read
or change no files of theirs, and no GPU is given twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fuzzing import counts
from other_users import User, memory_mib, needs_root, public_folder, users

from tao_sdk.errors import TaoError
from tao_sdk.platforms.gpus.lease_folder import MAX_FILES, LeasesUnavailableError
from tao_sdk.platforms.gpus.leases import GpuLease, GpuLeases, Ticket

pytestmark = needs_root
ALICE, BOB, MALLORY = 1001, 1002, 1003
KEYS = ["a", "b"]
NAMES = [
    ".",
    "leases.lock",
    "gpu-a.lock",
    "gpu-b.lock",
    "port-29500.lock",
    "taken",
    "queue",
    "taken/forged",
    "queue/00000000000000000000-first",
    "queue/forged",
]
_held: list[GpuLease] = []
_tickets: list[Ticket] = []
_open: list[int] = []


@pytest.fixture
def public() -> Iterator[Path]:
    with public_folder() as folder:
        yield folder


@pytest.fixture
def folders(public: Path) -> str:
    """Two lease folders, as by default."""
    return f"{public / 'lock'}:{public / 'tmp'}"


# ---------------------------------------------------------------- what the users do


def leases(folders: str) -> GpuLeases:
    return GpuLeases(folders, patience=0.05)


def take(folders: str, keys: list[str] = KEYS, count: int = 1) -> list[str]:
    lease = leases(folders).try_take(keys, count, None)
    if lease is None:
        return []
    _held.append(lease)
    return list(lease.keys)


def restore(folders: str) -> list[str]:
    return [key for lease in _held for key in leases(folders).restore(lease)]


def let_go(_: str = "") -> None:
    for held in _held:
        held.release()
    for ticket in _tickets:
        ticket.close()
    _held.clear()
    _tickets.clear()


def queue_up(folders: str) -> None:
    _tickets.append(leases(folders).join_queue("job", KEYS))


def look(folders: str) -> tuple[list[str], int, list[str]]:
    return tuple(leases(folders).look(KEYS, None))


def look_only(folders: str) -> list[str]:
    return GpuLeases(folders, patience=0.05).free(KEYS, make=False)


def port(folders: str) -> None:
    _, descriptors = leases(folders).take_port()
    for descriptor in descriptors:
        os.close(descriptor)


def make(folders: str) -> None:
    leases(folders).make()


# ---------------------------------------------------------------- what Mallory does


def lock_it(path: Path) -> None:
    _open.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    fcntl.flock(_open[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path, 0o666)
    path.chmod(0o666)


def sparse(path: Path, _: Path) -> None:
    with path.open("xb") as file:
        file.truncate(4 << 30)
    path.chmod(0o666)


def forged(path: Path, _: Path) -> None:
    lines = random.choice(
        ["nan\na\nb", "-1\na", "1e999\na\nb", "0\n" + "\n" * 60_000, "\x00\ud800"]
    )
    with path.open("x", errors="surrogatepass") as file:
        file.write(lines)
    path.chmod(0o666)


def forge_many(path: Path) -> None:
    """Live leases of GPUs that do not exist."""
    keys = "\n".join(f"{number:x}" for number in range(13_000))
    for number in range(60):
        (path / str(number)).write_text(f"0.001\n{keys}")
        (path / str(number)).chmod(0o666)
        lock_it(path / str(number))


def link(path: Path, precious: Path) -> None:
    path.symlink_to(random.choice([precious, precious / "file", Path("/dev/zero"), path]))


def hard_link(path: Path, precious: Path) -> None:
    path.hardlink_to(precious / "file")


def folder(path: Path, _: Path) -> None:
    path.mkdir()
    path.chmod(random.choice([0o700, 0o777, 0o1777]))


def closed(path: Path, _: Path) -> None:
    path.touch()
    path.chmod(random.choice([0, 0o600, 0o444]))


def chmod(path: Path, _: Path) -> None:
    path.chmod(random.choice([0o700, 0o777, 0o1777]))


def delete(path: Path, _: Path) -> None:
    path.unlink()


def rename(path: Path, _: Path) -> None:
    path.rename(path.with_name(f"renamed-{path.name}"))


def flood(path: Path, _: Path) -> None:
    for number in range(MAX_FILES + 1):
        (path / f"{number}").touch()


def nothing(*_: Path) -> None:
    pass


ATTACKS: list[Callable[[Path, Path], None]] = [
    pipe,
    sparse,
    forged,
    link,
    hard_link,
    folder,
    closed,
    chmod,
    delete,
    rename,
    nothing,
]


def attack(place: str, precious: str, seed: int) -> str:
    """One random attack; what it was, or "" if the kernel refused it."""
    random.seed(seed)
    name, act = random.choice(NAMES), random.choice(ATTACKS)
    path = Path(place, name)
    if random.random() < 0.03:
        path, act = Path(place, "queue"), flood
    done = []
    with contextlib.suppress(OSError):
        act(path, Path(precious))
        done.append(act.__name__)
    if random.random() < 0.5:
        with contextlib.suppress(OSError):
            lock_it(path)
            done.append("locked")
    return f"{' '.join(done)} {name}" if done else ""


def stop_attacking() -> None:
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()


# ---------------------------------------------------------------- one attack at a time


def test_a_held_common_lock_names_its_holder(folders: str) -> None:
    with users(ALICE, MALLORY) as [alice, mallory]:
        alice.do(make, folders)
        assert alice.do(take, folders) == ["a"]
        mallory.do(lock_it, Path(folders.split(":")[1], "leases.lock"))
        for act in (take, queue_up, look, look_only, port):
            with pytest.raises(LeasesUnavailableError, match=rf"locked by process {mallory.pid} "):
                alice.do(act, folders)
        mallory.do(stop_attacking)
        assert alice.do(take, folders) == ["b"]


@pytest.mark.parametrize("name", ["leases.lock", "taken", "queue", "."])
@pytest.mark.parametrize("plant", [pipe, link, closed, folder], ids=lambda act: act.__name__)
def test_a_folder_squatted_in_part_is_not_used_by_anyone(
    public: Path, folders: str, plant: Callable[[Path, Path], None], name: str
) -> None:
    """Or it is used by all: which of the two does not depend on the user."""
    public.joinpath("precious").mkdir()
    with users(ALICE, BOB, MALLORY) as [alice, bob, mallory]:
        if name != ".":
            mallory.do(squat, public / "lock")
        mallory.do(plant, public / "lock" / name, public / "precious")
        for one, other in ((alice, bob), (bob, alice)):
            try:
                assert one.do(take, folders, KEYS, 2) == KEYS
            except LeasesUnavailableError as error:
                assert str(public / "lock") in str(error)  # noqa: PT017 - either is right
            else:
                assert other.do(take, folders) == []
                one.do(let_go)


def squat(path: Path) -> None:
    path.mkdir()
    path.chmod(0o1777)


def test_both_folders_squatted_is_a_sentence(folders: str) -> None:
    with users(ALICE, MALLORY) as [alice, mallory]:
        for place in folders.split(":"):
            mallory.do(closed, Path(place), Path())
        for act in (take, look, queue_up, make):
            with pytest.raises(LeasesUnavailableError, match="set TAO_GPU_LEASE_DIR to one folder"):
                alice.do(act, folders)
        with pytest.raises(LeasesUnavailableError, match="is not a folder"):
            alice.do(look_only, folders)


@pytest.mark.parametrize("inner", ["taken", "queue"])
def test_no_file_behind_a_link_is_deleted(public: Path, folders: str, inner: str) -> None:
    precious = public / "precious"
    precious.mkdir()
    (precious / "file").write_text("work of a year")
    os.chown(precious, ALICE, ALICE)
    os.chown(precious / "file", ALICE, ALICE)
    with users(ALICE, MALLORY) as [alice, mallory]:
        for place in map(Path, folders.split(":")):
            mallory.do(squat, place)
            (place / inner).symlink_to(precious)
            os.chown(place / inner, MALLORY, MALLORY, follow_symlinks=False)
        with pytest.raises(LeasesUnavailableError):
            alice.do(take, folders)
    assert (precious / "file").read_text() == "work of a year"


def test_the_mode_of_a_linked_file_stays(public: Path, folders: str) -> None:
    mine = public / "mine"
    mine.touch(0o600)
    os.chown(mine, ALICE, ALICE)
    with users(ALICE) as [alice]:
        alice.do(make, folders)
        (public / "lock" / "gpu-a.lock").hardlink_to(mine)  # allowed where hard links are
        alice.do(take, folders)
    assert mine.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("plant", [pipe, sparse, link, folder, closed], ids=lambda a: a.__name__)
def test_an_odd_lock_file_means_a_busy_gpu_and_why_is_said(
    public: Path, folders: str, plant: Callable[[Path, Path], None]
) -> None:
    with users(ALICE, MALLORY) as [alice, mallory]:
        alice.do(make, folders)
        odd = public / "lock" / "gpu-a.lock"
        mallory.do(plant, odd, public)
        if plant is sparse:
            mallory.do(lock_it, odd)
        if plant is closed:
            os.chmod(odd, 0)  # noqa: PTH101 - whatever it chose
        assert alice.do(take, folders) == ["b"]
        _, _, obstacles = alice.do(look, folders)
        expected = f"of {MALLORY} holds it" if plant is sparse else "is no lock file"
        assert expected in obstacles[0]


def test_a_sparse_ticket_costs_no_memory(public: Path, folders: str) -> None:
    with users(ALICE, MALLORY) as [alice, mallory]:
        alice.do(make, folders)
        before = alice.do(memory_mib)
        for inner in ("taken", "queue"):
            mallory.do(sparse, public / "tmp" / inner / "0", public)
            mallory.do(lock_it, public / "tmp" / inner / "0")
        assert alice.do(take, folders) == ["a"]
        assert alice.do(memory_mib) < before + 50


def test_leases_of_gpus_that_do_not_exist_cost_no_memory(public: Path, folders: str) -> None:
    with users(ALICE, MALLORY) as [alice, mallory]:
        alice.do(make, folders)
        before = alice.do(memory_mib)
        mallory.do(forge_many, public / "tmp" / "taken")
        assert alice.do(take, folders, ["GPU-1"]) == ["GPU-1"]
        assert alice.do(memory_mib) < before + 50


def test_too_many_files_are_a_sentence(public: Path, folders: str) -> None:
    with users(ALICE, MALLORY) as [alice, mallory]:
        alice.do(make, folders)
        mallory.do(flood, public / "tmp" / "queue", public)
        with pytest.raises(LeasesUnavailableError, match="more than 4,096 files"):
            alice.do(take, folders)


@pytest.mark.parametrize("everywhere", [False, True])
def test_deleted_lock_files_are_made_again(public: Path, folders: str, everywhere: bool) -> None:
    """The owner of the folders deletes all of them, while a job holds the GPUs."""
    with users(ALICE, BOB, MALLORY) as [alice, bob, mallory]:
        mallory.do(make, folders)
        assert alice.do(take, folders, KEYS, 2) == KEYS
        for place in (public / "lock", public / "tmp")[: 2 if everywhere else 1]:
            for name in ("leases.lock", "gpu-a.lock", "gpu-b.lock"):
                mallory.do(delete, place / name, public)
            for path in (place / "taken").iterdir():
                mallory.do(delete, path, public)
        if not everywhere:
            assert bob.do(take, folders) == [], "the other folder has the lease"
        assert alice.do(restore, folders) == []
        assert bob.do(take, folders) == []
        assert bob.do(look, folders)[0] == []
        alice.do(let_go)
        assert bob.do(take, folders, KEYS, 2) == KEYS


def test_a_gpu_lost_before_it_was_taken_back_is_named(public: Path, folders: str) -> None:
    with users(ALICE, BOB, MALLORY) as [alice, bob, mallory]:
        mallory.do(make, folders)
        assert alice.do(take, folders, KEYS, 2) == KEYS
        for place in (public / "lock", public / "tmp"):
            mallory.do(rename, place, public)
        assert bob.do(take, folders) == ["a"]
        assert alice.do(restore, folders) == ["a"]
        assert bob.do(take, folders) == [], "what was free is held again"


# ---------------------------------------------------------------- many at random


@counts(25, 1_500)
def test_random_attacks(count: int) -> None:
    tried, ends, refusals, largest = Counter[str](), Counter[str](), Counter[str](), 0
    for number in range(count):
        with public_folder() as public, users(ALICE, BOB, MALLORY) as everybody:
            # They begin with what the test's own process has.
            begun = [user.do(memory_mib) for user in everybody[:2]]
            _one_round(public, everybody, number, tried, ends, refusals)
            ended = [user.do(memory_mib) for user in everybody[:2]]
            largest = max(
                largest, *(after - before for after, before in zip(ended, begun, strict=True))
            )
    print(
        f"lease folders: {count} rounds, {tried.total()} attacks {dict(tried.most_common(12))}…; "
        f"operations of others: {dict(ends)}; refusals: {dict(refusals.most_common(8))}; "
        f"largest growth of a process {largest} MiB"
    )
    assert largest < 500


def _one_round(
    public: Path,
    everybody: list[User],
    number: int,
    tried: Counter[str],
    ends: Counter[str],
    refusals: Counter[str],
) -> None:
    alice, bob, mallory = everybody
    chance = random.Random(number)
    precious = public / "precious"
    precious.mkdir()
    (precious / "file").write_text("work of a year")
    for path in (precious, precious / "file"):
        os.chown(path, ALICE, ALICE)
    before = (precious.stat().st_mode, (precious / "file").stat().st_mode)
    places = [str(public / "lock"), str(public / "tmp")]
    folders = ":".join(places)
    with contextlib.suppress(TaoError):
        chance.choice(everybody[:2] if chance.random() < 0.7 else [mallory]).do(make, folders)
    has: dict[User, list[str]] = {alice: [], bob: []}
    for _ in range(8):
        if chance.random() < 0.5:
            what = mallory.do(attack, chance.choice(places), str(precious), chance.getrandbits(32))
            if what:
                tried[what] += 1
        user = chance.choice([alice, bob])
        act = chance.choice([take, take, queue_up, look, look_only, restore, port, let_go])
        try:
            answer = user.do(act, folders)
            ends[act.__name__] += 1
        except LeasesUnavailableError as error:
            refusals[" ".join(str(error).replace(str(public), "").split()[:8])] += 1
            ends["refused"] += 1
            continue
        if act is take:
            has[user] += answer
        if act is let_go:
            has[user] = []
    assert (precious / "file").read_text() == "work of a year", number
    assert (precious.stat().st_mode, (precious / "file").stat().st_mode) == before, number
    assert [path.name for path in precious.iterdir()] == ["file"], number
    if not any(word in what for what in tried for word in ("delete", "rename", "chmod")):
        assert not set(has[alice]) & set(has[bob]), number
