"""GPU leases of this machine, shared by all users, processes and stores.

The files of the lease folder:

* `leases.lock`: locked while a process reads or changes leases.
* `gpu-<key>.lock`: one per GPU, with a shared lock for every lease of it, whole or in part.
  Earlier versions lock it exclusively for a whole GPU, so both see each other's leases.
* `taken/<name>`: one per lease, locked by all processes that hold it; the fraction and the keys.
* `queue/<ticket>`: one per waiting job, locked by it; the keys. Waiting jobs are served strictly
  in order, so that small ones do not starve a large one.
* `port-<n>.lock`: the ports on which the ranks of a job meet, leased likewise.

The kernel drops a lock with the last process that holds it, so no crash leaves a GPU taken; a job
inherits its locks, so a killed supervisor does not free a GPU that the job still uses. A GPU is
busy if either its own file or that of a lease says so: one of them may have been deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_SHARED_FOLDER = 0o1777
_SHARED_FILE = 0o666
_LONGEST_FILE = 64 * 1024
_ROUNDING = 1e-6
# From the usual rendezvous port upwards, below those that the kernel gives to outgoing connections.
_MEETING_PORTS = range(29500, 30500)


class OuterLease(NamedTuple):
    """The lease of a job's GPUs, passed to the job for the jobs that it starts itself."""

    name: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{','.join(self.keys)}"

    @classmethod
    def parse(cls, text: str) -> OuterLease | None:
        """Read back `str(lease)`; None for anything else."""
        name, _, keys = text.partition(":")
        return cls(name, tuple(keys.split(","))) if name and keys and "/" not in name else None


class Ticket:
    """A place in the queue; given up by `close()` or by dying."""

    def __init__(self, leases: GpuLeases, path: Path, descriptor: int) -> None:
        self.name = path.name
        self._leases = leases
        self._path = path
        self._descriptor = descriptor

    def close(self) -> None:
        with self._leases.exclusively():
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)


class GpuLeases:
    """The leases in one machine-wide folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._queue = self._folder / "queue"
        self._taken = self._folder / "taken"
        for path in (self._folder, self._queue):
            _make_shared_folder(path)

    def join_queue(self, label: str, keys: Sequence[str]) -> Ticket:
        """Take the last place in the queue for these GPUs."""
        with self.exclusively():
            name = f"{time.time_ns():020d}-{label}"
            path = self._queue / name
            descriptor = _open_shared(path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, "\n".join(keys).encode())
            return Ticket(self, path, descriptor)

    def place(self, keys: Sequence[str], ticket: Ticket | None) -> int:
        """How many live tickets for any of these GPUs are before this one (or in all)."""
        with self.exclusively():
            return self._place(keys, ticket)

    def try_take(
        self,
        keys: Sequence[str],
        count: int,
        ticket: Ticket | None,
        fraction: float = 1.0,
        name: str = "",
    ) -> dict[str, int]:
        """Lease `count` of the GPUs named, or that part of each: all or none.

        Returns the descriptors to hold: by GPU key, and that of the lease's own file by `name`
        (a random one by default). {} when it must wait.
        """
        with self.exclusively():
            if self._place(keys, ticket) > 0:
                return {}
            taken = self._lock_free(keys, count, fraction)
            if len(taken) < count:
                release(taken)
                return {}
            return self._write_lease(taken, fraction, name)

    def retake(self, keys: Sequence[str]) -> dict[str, int]:
        """Lease those of these GPUs that are free, for a job that runs on them already.

        Tickets do not count: the GPUs are in use, and only the lock was lost.
        """
        with self.exclusively():
            return self._write_lease(self._lock_free(keys, len(keys), 1.0), 1.0, "")

    def join(self, outer: OuterLease, keys: Sequence[str]) -> dict[str, int]:
        """Hold GPUs of a lease together with the job that has it; {} if that lease has ended."""
        with self.exclusively():
            path = self._taken / outer.name
            lines = _read_if_held(path)
            if lines is None or not set(keys) <= set(lines[1:]):
                return {}
            taken = {outer.name: _open_shared(path)}
            taken.update((key, _open_shared(self._lock_file(key))) for key in keys)
            if all(_try_lock(descriptor, fcntl.LOCK_SH) for descriptor in taken.values()):
                return taken
            release(taken)
            return {}

    def free(self, keys: Sequence[str], fraction: float = 1.0) -> list[str]:
        """Which of these GPUs (or that part of which) could be leased at this moment."""
        with self.exclusively():
            used = self._used(tidy=False)
            return [
                key
                for key in keys
                if (_fits(used[key], fraction) if key in used else self._is_unheld(key))
            ]

    def take_port(self) -> tuple[int, int]:
        """Lease a port for the ranks of a job to meet on: (port, descriptor).

        Without a lease two jobs could find the same port free before either listens on it, and
        the ranks of one would join the other.
        """
        with self.exclusively():
            for port in _MEETING_PORTS:
                descriptor = _open_shared(self._folder / f"port-{port}.lock")
                if _try_lock(descriptor) and _can_listen(port):
                    return port, descriptor
                os.close(descriptor)
        raise OSError(f"no port from {_MEETING_PORTS[0]} to {_MEETING_PORTS[-1]} is free")

    def _lock_free(self, keys: Sequence[str], at_most: int, fraction: float) -> dict[str, int]:
        used = self._used()
        taken: dict[str, int] = {}
        for key in keys:
            if len(taken) == at_most:
                break
            descriptor = self._lock_gpu(key, used.get(key, 0.0), fraction)
            if descriptor is not None:
                taken[key] = descriptor
        return taken

    def _lock_gpu(self, key: str, used: float, fraction: float) -> int | None:
        """A shared lock on a GPU of which `used` is leased; None when it is busy."""
        path = self._lock_file(key)
        try:
            descriptor = _open_shared(path)
        except OSError:
            if os.path.lexists(path):
                return None  # not a file of ours: better to wait than to share a GPU
            raise
        if used:
            free = _fits(used, fraction) and _try_lock(descriptor, fcntl.LOCK_SH)
        else:
            # An exclusive lock shows that no other process holds any; with a shared one, jobs that
            # this job starts can join.
            free = _try_lock(descriptor) and _try_lock(descriptor, fcntl.LOCK_SH)
        if free:
            return descriptor
        os.close(descriptor)
        return None

    def _used(self, *, tidy: bool = True) -> dict[str, float]:
        """How much of each GPU is leased, as the files of live leases have it."""
        used: dict[str, float] = {}
        for _, (fraction, *keys) in _live_files(self._taken, tidy=tidy):
            for key in keys:
                used[key] = used.get(key, 0.0) + _parse_fraction(fraction)
        return used

    def _write_lease(self, taken: dict[str, int], fraction: float, name: str) -> dict[str, int]:
        if not taken:
            return {}
        name = name or os.urandom(16).hex()
        locks = dict(taken)
        try:
            _make_shared_folder(self._taken)
            descriptor = locks[name] = _open_shared(self._taken / name)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            os.truncate(descriptor, 0)
            os.write(descriptor, "\n".join([str(fraction), *taken]).encode())
        except OSError:  # a full disk
            release(locks)
            raise
        return locks

    def _is_unheld(self, key: str) -> bool:
        return _is_unlocked(self._lock_file(key))

    def _lock_file(self, key: str) -> Path:
        return self._folder / f"gpu-{key.replace('/', '_')}.lock"

    def _place(self, keys: Sequence[str], ticket: Ticket | None) -> int:
        wanted = set(keys)
        before = 0
        for name, waiting_for in _live_files(self._queue):
            if ticket is not None and name == ticket.name:
                break
            if wanted.intersection(waiting_for):
                before += 1
        return before

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Only one process at a time reads or changes leases."""
        descriptor = _open_shared(self._folder / "leases.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def look_for_free(folder: Path, keys: Sequence[str]) -> list[str]:
    """Which of these GPUs could be leased at this moment; makes no folder."""
    # Where there is none, nothing was ever leased.
    if not (folder / "leases.lock").exists() or not (folder / "queue").is_dir():
        return list(keys)
    return GpuLeases(folder).free(keys)


def has_ended(folder: str | Path, lease: OuterLease) -> bool:
    """Whether no process holds this lease any more; makes no folder."""
    return not is_held(Path(folder) / "taken" / lease.name)


def lock(descriptor: int) -> None:
    """Hold a file for as long as this process has it open."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def is_held(path: Path) -> bool:
    """Whether a process of this machine, in any pid namespace, holds that file."""
    return not _is_unlocked(path, os.O_RDONLY)


def release(taken: Mapping[str, int]) -> None:
    """Give leases back (closing is enough: a lock lives as long as its last holder)."""
    for descriptor in taken.values():
        os.close(descriptor)


def _is_unlocked(path: Path, access: int = os.O_RDWR) -> bool:
    try:
        descriptor = os.open(path, access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # another user's, or not a file: better to wait than to share a GPU
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _live_files(folder: Path, *, tidy: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Names and lines of the files whose owners are alive, by name; `tidy` removes the others."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        lines = _read_if_held(path)
        if lines is not None:
            yield path.name, lines
        if lines is not None or not tidy:
            continue
        # A folder, or another user's file, cannot be removed; it does not count all the same.
        with contextlib.suppress(PermissionError, IsADirectoryError):
            path.unlink(missing_ok=True)


def _read_if_held(path: Path) -> list[str] | None:
    """The lines of a file that a live process holds; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or _try_lock(descriptor):
            return None
        return os.read(descriptor, _LONGEST_FILE).decode("utf-8", "replace").split("\n")
    finally:
        os.close(descriptor)


def _fits(used: float, fraction: float) -> bool:
    return used + fraction <= 1 + _ROUNDING


def _parse_fraction(text: str) -> float:
    """The fraction that a lease file names; a whole GPU where it is no number."""
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 1.0


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _can_listen(port: int) -> bool:
    import socket  # here, because only jobs of several nodes need it

    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _make_shared_folder(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(_SHARED_FOLDER)
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise NotADirectoryError(f"{path} must be a folder for GPU leases; set TAO_GPU_LEASE_DIR")


def _open_shared(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # First without O_CREAT: the kernel refuses that flag for another user's file in a sticky
    # folder (fs.protected_regular), and the file usually exists.
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, _SHARED_FILE)
        with contextlib.suppress(PermissionError):  # another user was quicker; it has the mode
            os.fchmod(descriptor, _SHARED_FILE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a file; remove it, or set TAO_GPU_LEASE_DIR")
    return descriptor
