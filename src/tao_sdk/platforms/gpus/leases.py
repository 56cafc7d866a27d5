"""GPU leases of this machine, shared by all users, processes and stores.

A lease is an open lock on a file per GPU. The kernel drops it when the last process that holds it
is gone, so no crash leaves a GPU taken; a job inherits the lock, so a killed supervisor does not
free a GPU that the job still uses. Waiting jobs hold a ticket (again a locked file) and are served
strictly in order: a large job is not starved by small ones. The ports on which the ranks of a job
meet are leased in the same way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_SHARED_FOLDER = 0o1777
_SHARED_FILE = 0o666
# From the usual rendezvous port upwards, below those that the kernel gives to outgoing connections.
_MEETING_PORTS = range(29500, 30500)


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

    def try_take(self, keys: Sequence[str], count: int, ticket: Ticket | None) -> dict[str, int]:
        """Lease `count` of the GPUs named, all or none: {key: descriptor}, {} when it must wait."""
        with self.exclusively():
            if self._place(keys, ticket) > 0:
                return {}
            taken = self._lock_free(keys, count)
            if len(taken) == count:
                return taken
            release(taken)
            return {}

    def retake(self, keys: Sequence[str]) -> dict[str, int]:
        """Lock those of these GPUs that nobody holds, for a job that runs on them already.

        Whoever waits for them is not asked: they are in use, and only the lock was lost.
        """
        with self.exclusively():
            return self._lock_free(keys, len(keys))

    def free(self, keys: Sequence[str]) -> list[str]:
        """Which of these GPUs nobody holds at this moment."""
        with self.exclusively():
            return [key for key in keys if _is_unlocked(self._lock_file(key))]

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

    def _lock_free(self, keys: Sequence[str], at_most: int) -> dict[str, int]:
        taken: dict[str, int] = {}
        for key in keys:
            if len(taken) == at_most:
                break
            descriptor = _open_shared(self._lock_file(key))
            if _try_lock(descriptor):
                taken[key] = descriptor
            else:
                os.close(descriptor)
        return taken

    def _lock_file(self, key: str) -> Path:
        return self._folder / f"gpu-{key.replace('/', '_')}.lock"

    def _place(self, keys: Sequence[str], ticket: Ticket | None) -> int:
        wanted = set(keys)
        before = 0
        for path in sorted(self._queue.iterdir()):
            if ticket is not None and path.name == ticket.name:
                break
            waiting_for = _read_if_held(path)
            if waiting_for is None:
                # Its owner died. What cannot be removed (another user's) just does not count.
                with contextlib.suppress(PermissionError, IsADirectoryError):
                    path.unlink(missing_ok=True)
            elif wanted & waiting_for:
                before += 1
        return before

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """One process at a time reads or changes who holds what."""
        descriptor = _open_shared(self._folder / "leases.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def look_for_free(folder: Path, keys: Sequence[str]) -> list[str]:
    """Which of these GPUs nobody holds at this moment; makes no folder."""
    # Where there is none, nothing was ever leased.
    if not (folder / "leases.lock").exists() or not (folder / "queue").is_dir():
        return list(keys)
    return GpuLeases(folder).free(keys)


def lock(descriptor: int) -> None:
    """Hold a file for as long as this process has it open."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def is_held(path: Path) -> bool:
    """Does a process of this machine, in whatever pid namespace, hold that file?"""
    return not _is_unlocked(path, os.O_RDONLY)


def release(taken: dict[str, int]) -> None:
    """Give leases back (closing is enough: a lock lives as long as its last holder)."""
    for descriptor in taken.values():
        os.close(descriptor)


def _is_unlocked(path: Path, access: int = os.O_RDWR) -> bool:
    try:
        descriptor = os.open(path, access | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False  # somebody's; better to wait than to share a GPU
    try:
        return _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _read_if_held(path: Path) -> set[str] | None:
    """The lines of a ticket whose owner lives; None for anything else that lies there."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, encoding="utf-8", errors="replace") as ticket:
        return None if _try_lock(descriptor) else set(ticket.read().splitlines())


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    # First without O_CREAT: the kernel refuses that flag for another user's file in a sticky
    # folder (fs.protected_regular), and the file usually exists.
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, _SHARED_FILE)
        with contextlib.suppress(PermissionError):  # another user was quicker; it has the mode
            os.fchmod(descriptor, _SHARED_FILE)
        return descriptor
