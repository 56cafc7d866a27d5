"""GPU leases of this machine, shared by all users, processes and stores.

A lease is an open lock on a file per GPU. The kernel drops it when the last process that holds it
is gone, so no crash leaves a GPU taken; a job inherits the lock, so a killed supervisor does not
free a GPU that the job still uses. Waiting jobs hold a ticket (again a locked file) and are served
strictly in order: a large job is not starved by small ones.
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


class Ticket:
    """A place in the queue; given up by `close()` or by dying."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.name = path.name
        self._path = path
        self._descriptor = descriptor

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


class GpuLeases:
    """The leases in one machine-wide folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._queue = self._folder / "queue"
        for path in (self._folder, self._queue):
            _make_shared_folder(path)

    def join_queue(self, label: str) -> Ticket:
        """Take the last place in the queue."""
        with self._exclusively():
            name = f"{time.time_ns():020d}-{label}"
            path = self._queue / name
            descriptor = _open_shared(path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return Ticket(path, descriptor)

    def place(self, ticket: Ticket | None) -> int:
        """How many live tickets are before this one (or in all, without one)."""
        with self._exclusively():
            return self._place(ticket)

    def try_take(self, keys: Sequence[str], count: int, ticket: Ticket | None) -> dict[str, int]:
        """Lease `count` of the GPUs named, all or none: {key: descriptor}, {} when it must wait."""
        with self._exclusively():
            if self._place(ticket) > 0:
                return {}
            taken: dict[str, int] = {}
            for key in keys:
                descriptor = _open_shared(self._lock_file(key))
                if _try_lock(descriptor):
                    taken[key] = descriptor
                else:
                    os.close(descriptor)
                if len(taken) == count:
                    return taken
            release(taken)
            return {}

    def free(self, keys: Sequence[str]) -> list[str]:
        """Which of these GPUs nobody holds at this moment."""
        with self._exclusively():
            return [key for key in keys if _is_unlocked(self._lock_file(key))]

    def _lock_file(self, key: str) -> Path:
        return self._folder / f"gpu-{key.replace('/', '_')}.lock"

    def _place(self, ticket: Ticket | None) -> int:
        before = 0
        for path in sorted(self._queue.iterdir()):
            if ticket is not None and path.name == ticket.name:
                break
            if _is_unlocked(path):
                path.unlink(missing_ok=True)  # its owner died
            else:
                before += 1
        return before

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        descriptor = _open_shared(self._folder / "leases.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def release(taken: dict[str, int]) -> None:
    """Give leases back (closing is enough: a lock lives as long as its last holder)."""
    for descriptor in taken.values():
        os.close(descriptor)


def _is_unlocked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
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
