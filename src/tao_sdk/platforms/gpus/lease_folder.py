"""One folder of lock files that every user of the machine may write to.

Any user can put anything there, delete what is theirs, and hold any lock. So files are opened
relative to the folder, never through a link, and count only if they are regular; what is read is
bounded; no lock is awaited without a deadline; and a lock counts only if its file is still the one
that has the name. `leases.py` gives the files their meaning.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from tao_sdk.errors import BackendUnreachableError

MAX_FILES = 4096
"""Waiting jobs, or leases, of a machine."""
_MAX_BYTES = 64 * 1024
_SHARED_FOLDER = 0o1777
_SHARED_FILE = 0o666
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 5
_MAKING_SECONDS = 1.0


class LeasesUnavailableError(BackendUnreachableError):
    """The GPU leases of this machine cannot be read or changed at this moment."""


class LeaseFolder:
    """An open lease folder: `taken/` and `queue/` in it are open, too."""

    def __init__(self, path: Path, *, make: bool, for_all: bool) -> None:
        """Open the folder, and `make` it if it is missing. Raises `OSError` if it is unusable.

        `for_all` demands that every user can use it: whether it is used must not depend on the
        user, because two users who choose different folders would get the same GPU.
        """
        self.path = path
        self._stack = contextlib.ExitStack()
        with self._stack:
            self._root = self._open_folder(str(path), None, make, for_all)
            self._inner: dict[str, int] = {}
            for name in ("taken", "queue"):
                with contextlib.suppress(*(() if make else (FileNotFoundError,))):
                    self._inner[name] = self._open_folder(name, self._root, make, for_all)
            with contextlib.suppress(FileNotFoundError):
                found = os.stat("leases.lock", dir_fd=self._root, follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode):
                    raise PermissionError(f"{path}/leases.lock is not a file")
            self._stack = self._stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def _open_folder(self, name: str, parent: int | None, make: bool, for_all: bool) -> int:
        shown = self.path if parent is None else self.path / name
        is_made = False
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
                is_made = True
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=parent)
        except NotADirectoryError as error:  # also for a link
            raise NotADirectoryError(f"{shown} is not a folder") from error
        self._stack.callback(os.close, descriptor)
        is_wrong = functools.partial(_has_wrong_mode, descriptor, for_all)
        # Whatever the umask is; and another process of ours may have been killed before this step.
        if is_made or (make and is_wrong() and os.fstat(descriptor).st_uid == os.geteuid()):
            os.fchmod(descriptor, _SHARED_FOLDER)
        give_up = time.monotonic() + _MAKING_SECONDS
        while is_wrong() and time.monotonic() < give_up and _is_new(descriptor):
            time.sleep(0.01)  # its maker is about to set the mode
        if is_wrong():
            raise PermissionError(
                f"{shown} must have mode 1777, as /tmp has: its owner or an administrator can run "
                f"`chmod 1777 {shown}`"
            )
        return descriptor

    # ------------------------------------------------------------------ the common lock

    @contextlib.contextmanager
    def exclusively(self, deadline: float, pause: Callable[[float], object]) -> Iterator[None]:
        """Only one process at a time reads or changes leases.

        Raises `LeasesUnavailableError` when another process holds the lock until the deadline, or
        when the lock was lost before the end: then what was done does not count.
        """
        while True:
            try:
                descriptor = self.open_lock("leases.lock")
            except OSError as error:
                raise LeasesUnavailableError(
                    f"{self.path}/leases.lock cannot be locked ({error.strerror or error}): its "
                    "owner or an administrator can remove it"
                ) from error
            try:
                if try_lock(descriptor) and self.is_current("leases.lock", descriptor):
                    yield
                    if self.is_current("leases.lock", descriptor):
                        return
                    raise LeasesUnavailableError(f"{self.path}/leases.lock was replaced; try again")
                holder = holder_of(descriptor) if time.monotonic() >= deadline else ""
            finally:
                os.close(descriptor)
            if holder:
                raise LeasesUnavailableError(
                    f"{self.path}/leases.lock is locked by {holder}; no GPU can be leased until "
                    "that process lets go of it or is ended"
                )
            pause(random.uniform(0.001, 0.02))  # noqa: S311 - to fall out of step

    # ------------------------------------------------------------------ files

    def open_lock(self, name: str) -> int:
        """Open a lock file, which is made if it is missing."""
        # First without O_CREAT: the kernel refuses that flag for another user's file in a sticky
        # folder (fs.protected_regular), and the file usually exists.
        with contextlib.suppress(FileNotFoundError):
            return self._open_regular(name)
        try:
            return self._create(name)
        except FileExistsError:
            return self._open_regular(name)

    def is_current(self, name: str, descriptor: int) -> bool:
        """Whether this open file still has that name: a deleted one locks nothing."""
        folder, base = self._place(name)
        try:
            found = os.stat(base, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(descriptor))

    def lock(self, name: str, kind: int) -> int | None:
        """A lock of that kind on a lock file; None if another process holds it, or if the file is
        none of ours: better to wait than to share a GPU.
        """
        try:
            descriptor = self.open_lock(name)
        except OSError:
            if self.exists(name):
                return None
            raise
        # A shared lock is left in the end, so that jobs that this job starts can join.
        if (
            try_lock(descriptor, kind)
            and try_lock(descriptor, fcntl.LOCK_SH)
            and self.is_current(name, descriptor)
        ):
            return descriptor
        os.close(descriptor)
        return None

    def write_held(self, name: str, lines: list[str]) -> int:
        """Make a file that this process holds for as long as it keeps the descriptor."""
        for _ in range(_TRIES):
            descriptor = self._create(name)
            try:
                os.write(descriptor, "\n".join(lines).encode())
                if try_lock(descriptor, fcntl.LOCK_SH) and self.is_current(name, descriptor):
                    return descriptor
                self.remove(name)
            except OSError:  # a full disk
                self.remove(name)
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise LeasesUnavailableError(f"another process takes {self.path / name} away again")

    def read_held(self, name: str) -> list[str] | None:
        """The lines of a file that a live process holds; None for anything else."""
        try:
            descriptor = self._open_regular(name)
        except OSError:
            return None
        try:
            if try_lock(descriptor):
                return None
            return os.read(descriptor, _MAX_BYTES).decode("utf-8", "replace").split("\n")
        finally:
            os.close(descriptor)

    def live_files(self, inner: str, *, tidy: bool = True) -> Iterator[tuple[str, list[str]]]:
        """Names and lines of the files in `taken` or `queue` whose owners are alive, by name;
        `tidy` removes the others.
        """
        if inner not in self._inner:
            return
        with os.scandir(self._inner[inner]) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_FILES + 1))
        if len(names) > MAX_FILES:
            raise LeasesUnavailableError(
                f"{self.path / inner} has more than {MAX_FILES:,} files; an administrator can "
                "delete those that no process holds"
            )
        for name in names:
            lines = self.read_held(f"{inner}/{name}")
            if lines is not None:
                yield name, lines
            elif tidy:
                self.remove(f"{inner}/{name}")

    def exists(self, name: str) -> bool:
        folder, base = self._place(name)
        try:
            os.stat(base, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def is_unheld(self, name: str) -> bool:
        """Whether this lock could be taken, without making its file."""
        try:
            descriptor = self._open_regular(name)
        except OSError:
            return not self.exists(name)
        try:
            return try_lock(descriptor)
        finally:
            os.close(descriptor)

    def obstacle(self, name: str) -> str:
        """Why this lock cannot be taken, though no lease explains it; "" if it can be."""
        try:
            descriptor = self._open_regular(name)
        except OSError as error:
            if not self.exists(name):
                return ""
            return f"{self.path / name} is no lock file ({error.strerror or error})"
        try:
            return "" if try_lock(descriptor) else f"{holder_of(descriptor)} holds it"
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Delete a file, if we may: a folder or another user's file stays, and does not count."""
        folder, base = self._place(name)
        with contextlib.suppress(PermissionError, IsADirectoryError, FileNotFoundError):
            os.unlink(base, dir_fd=folder)

    def _open_regular(self, name: str) -> int:
        folder, base = self._place(name)
        try:
            descriptor = os.open(base, os.O_RDWR | _FLAGS, dir_fd=folder)
        except PermissionError:  # a lock needs no more than this
            descriptor = os.open(base, os.O_RDONLY | _FLAGS, dir_fd=folder)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError("not a regular file")

    def _create(self, name: str) -> int:
        folder, base = self._place(name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
        descriptor = os.open(base, flags, _SHARED_FILE, dir_fd=folder)
        os.fchmod(descriptor, _SHARED_FILE)  # whatever the umask is
        return descriptor

    def _place(self, name: str) -> tuple[int, str]:
        inner, _, base = name.rpartition("/")
        return (self._inner[inner] if inner else self._root), base


def _has_wrong_mode(folder: int, for_all: bool) -> bool:
    """Whether not all users can use it, or any user may delete the files of another."""
    mode = os.fstat(folder).st_mode
    sticky = mode & stat.S_ISVTX or not mode & stat.S_IWOTH
    return not sticky or (for_all and mode & _SHARED_FOLDER != _SHARED_FOLDER)


def _is_new(folder: int) -> bool:
    return abs(time.time() - os.fstat(folder).st_ctime) < _MAKING_SECONDS


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Take a lock of that kind, if no other process holds one against it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder_of(descriptor: int) -> str:
    """Which process holds the lock of this file, as far as the kernel tells."""
    found = os.fstat(descriptor)
    # The device has another number there on some file systems: then no process is named.
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks", encoding="utf-8") as locks:
            rows = [line.split() for line in locks]
    except OSError:  # another system
        rows = []
    for row in rows:
        if "FLOCK" in row and "->" not in row and row[5] == place and row[4] != "0":
            return _process(int(row[4]))
    return "a process that cannot be seen from here"


def _process(pid: int) -> str:
    import pwd  # only for this message

    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"a child of process {pid}, which has ended"
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    printable = "".join(filter(str.isprintable, name))
    return f"process {pid} ({printable}) of {user}"
