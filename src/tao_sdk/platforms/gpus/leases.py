"""GPU leases of this machine, shared by all users, processes and stores.

The files of a lease folder:

* `leases.lock`: locked while a process reads or changes leases.
* `gpu-<key>.lock`: one per GPU, with a shared lock for every lease of it, whole or in part.
  Early versions lock it exclusively for a whole GPU, so both see each other's leases.
* `taken/<name>`: one per lease, locked by all processes that hold it; the fraction and the keys.
* `queue/<ticket>`: one per waiting job, locked by it; the keys. Waiting jobs are served strictly
  in order, so that small ones do not starve a large one.
* `port-<n>.lock`: the ports on which the ranks of a job meet, leased likewise.

The kernel drops a lock with the last process that holds it, so no crash leaves a GPU taken; a job
inherits its locks, so a killed supervisor does not free a GPU that the job still uses. A GPU is
busy if either its own file or that of a lease says so: one of them may have been deleted. If both
were, the job's supervisor makes them again.

Several folders: a lease is in each that can be used, so processes that know only one of them see
it. Earlier versions know only the one in /tmp, which programs that clean up may empty.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tao_sdk.platforms.gpus.lease_folder import LeaseFolder, LeasesUnavailableError, try_lock

_ROUNDING = 1e-6
# From the usual rendezvous port upwards, below those that the kernel gives to outgoing connections.
_MEETING_PORTS = range(29500, 30500)
_PATIENCE_SECONDS = 5.0


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


class GpuLease:
    """Leased GPUs: by this process, and by those that inherit the descriptors."""

    def __init__(self, name: str, fraction: float = 1.0) -> None:
        self.name = name
        self.fraction = fraction
        self.keys: list[str] = []
        self.files: dict[tuple[Path, str], int] = {}
        """Folder and name of each locked file, and its descriptor."""

    @property
    def descriptors(self) -> list[int]:
        return list(self.files.values())

    def release(self) -> None:
        """Give the lease back (closing is enough: a lock lives as long as its last holder)."""
        for descriptor in self.files.values():
            os.close(descriptor)
        self.files = {}
        self.keys = []

    def hold(self, folder: LeaseFolder, name: str, descriptor: int) -> None:
        replaced = self.files.pop((folder.path, name), None)
        if replaced is not None:
            os.close(replaced)
        self.files[folder.path, name] = descriptor

    def holds(self, folder: LeaseFolder, name: str) -> bool:
        """Whether the file of that name is the one that is locked."""
        descriptor = self.files.get((folder.path, name))
        return descriptor is not None and folder.is_current(name, descriptor)

    def lines(self) -> list[str]:
        return [str(self.fraction), *self.keys]


class Ticket:
    """A place in the queue; given up by `close()` or by dying."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: list[tuple[Path, int]] = []

    def close(self) -> None:
        for path, descriptor in self.files:
            with contextlib.suppress(OSError):  # dead as soon as it is closed
                path.unlink()
            os.close(descriptor)
        self.files = []


class Outlook(NamedTuple):
    """What a job that wants GPUs finds."""

    free: list[str]
    ahead: int
    """Live tickets for any of the GPUs before this one (or in all)."""
    obstacles: list[str]
    """Why GPUs are busy that no lease names."""


class GpuLeases:
    """The leases in the machine-wide folders."""

    def __init__(
        self,
        folders: str | Path,
        patience: float = _PATIENCE_SECONDS,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`folders` as in TAO_GPU_LEASE_DIR. No lock is awaited for longer than `patience` seconds,
        which pass in `pause`.
        """
        self._paths = [Path(text) for text in str(folders).split(os.pathsep) if text]
        self._patience = patience
        self._pause = pause

    def make(self) -> None:
        """Make the folders. Raises `LeasesUnavailableError` if none can be used."""
        with self._open(make=True):
            pass

    def join_queue(self, label: str, keys: Sequence[str]) -> Ticket:
        """Take the last place in the queue for these GPUs."""
        ticket = Ticket(f"{time.time_ns():020d}-{label}")
        try:
            with self._exclusively() as folders:
                for folder in folders:
                    descriptor = folder.write_held(f"queue/{ticket.name}", list(keys))
                    ticket.files.append((folder.path / "queue" / ticket.name, descriptor))
        except BaseException:
            ticket.close()
            raise
        return ticket

    def look(self, keys: Sequence[str], ticket: Ticket | None, fraction: float = 1.0) -> Outlook:
        """What a job that wants (that part of) these GPUs has before it."""
        with self._exclusively() as folders:
            used = _used(folders, keys, tidy=False)
            free = _free(folders, keys, used, fraction)
            odd = (
                folder.obstacle(_lock_name(key))
                for key in keys
                if key not in free and key not in used
                for folder in folders
            )
            return Outlook(free, _place(folders, keys, ticket), [text for text in odd if text])

    def try_take(
        self,
        keys: Sequence[str],
        count: int,
        ticket: Ticket | None,
        fraction: float = 1.0,
        name: str = "",
    ) -> GpuLease | None:
        """Lease `count` of the GPUs named, or that part of each: all or none; None when it must
        wait. The lease has a random name by default.
        """
        lease = _new_lease(name, fraction)
        with _released_on_error(lease), self._exclusively() as folders:
            if _place(folders, keys, ticket) == 0:
                _lock_free(lease, folders, keys, count)
            if lease.keys and len(lease.keys) == count:
                _write_lease(lease, folders)
            else:
                lease.release()
        return lease if lease.keys else None

    def retake(self, keys: Sequence[str]) -> GpuLease | None:
        """Lease those of these GPUs that are free, for a job that runs on them already.

        Tickets do not count: the GPUs are in use, and only the lock was lost.
        """
        lease = _new_lease()
        with _released_on_error(lease), self._exclusively() as folders:
            _lock_free(lease, folders, keys, len(keys))
            if lease.keys:
                _write_lease(lease, folders)
        return lease if lease.keys else None

    def restore(self, lease: GpuLease) -> list[str]:
        """Make again what was deleted of a lease whose job runs.

        Returns the GPUs that another job leased meanwhile.
        """
        files = [*map(_lock_name, lease.keys), f"taken/{lease.name}"]
        with self._open(make=True) as folders:
            if all(lease.holds(folder, name) for folder in folders for name in files):
                return []
        lost: set[str] = set()
        with self._exclusively() as folders:
            used = _used(folders, lease.keys, tidy=False, other_than=lease.name)
            for folder in folders:
                for key in lease.keys:
                    name = _lock_name(key)
                    if lease.holds(folder, name):
                        continue
                    descriptor = folder.lock(name, fcntl.LOCK_SH)
                    if descriptor is not None:
                        lease.hold(folder, name, descriptor)
                    if descriptor is None or not _fits(used.get(key, 0.0), lease.fraction):
                        lost.add(key)
                if not lease.holds(folder, files[-1]):
                    lease.hold(folder, files[-1], _hold_again(lease, folder, files[-1]))
        return sorted(lost)

    def join(self, outer: OuterLease, keys: Sequence[str]) -> GpuLease | None:
        """Hold GPUs of a lease together with the job that has it; None if that has ended."""
        lease = GpuLease(outer.name)
        with _released_on_error(lease), self._exclusively() as folders:
            for folder in folders:
                lines = folder.read_held(f"taken/{outer.name}")
                if lines is None or not set(keys) <= set(lines[1:]):
                    continue
                lease.fraction = _parse_fraction(lines[0])
                for name in (f"taken/{outer.name}", *map(_lock_name, keys)):
                    descriptor = folder.lock(name, fcntl.LOCK_SH)
                    if descriptor is None:
                        lease.release()
                        return None
                    lease.hold(folder, name, descriptor)
                lease.keys = list(keys)
        return lease if lease.keys else None

    def free(self, keys: Sequence[str], fraction: float = 1.0, *, make: bool = True) -> list[str]:
        """Which of these GPUs (or that part of which) could be leased at this moment."""
        with self._exclusively(make=make) as folders:
            return _free(folders, keys, _used(folders, keys, tidy=False), fraction)

    def take_port(self) -> tuple[int, list[int]]:
        """Lease a port for the ranks of a job to meet on: (port, descriptors).

        Without a lease two jobs could find the same port free before either listens on it, and
        the ranks of one would join the other.
        """
        with self._exclusively() as folders:
            for port in _MEETING_PORTS:
                locks = [folder.lock(f"port-{port}.lock", fcntl.LOCK_EX) for folder in folders]
                held = [descriptor for descriptor in locks if descriptor is not None]
                if len(held) == len(folders) and _can_listen(port):
                    return port, held
                for descriptor in held:
                    os.close(descriptor)
        raise LeasesUnavailableError(
            f"no port from {_MEETING_PORTS[0]} to {_MEETING_PORTS[-1]} is free: set MASTER_PORT"
        )

    @contextlib.contextmanager
    def _open(self, *, make: bool) -> Iterator[list[LeaseFolder]]:
        """The folders that can be used; none is an error if they are to be made."""
        for_all = len(self._paths) > 1
        with contextlib.ExitStack() as stack:
            folders, flaws = [], []
            for path in self._paths:
                try:
                    folder = LeaseFolder(path, make=make, for_all=for_all)
                except OSError as error:
                    if make or not isinstance(error, FileNotFoundError):
                        flaws.append(f"{path}: {error.strerror}" if error.strerror else str(error))
                    continue
                stack.callback(folder.close)
                # Without it, nothing was ever leased in this folder.
                if make or folder.exists("leases.lock"):
                    folders.append(folder)
            if len(flaws) == len(self._paths):
                raise LeasesUnavailableError(
                    f"no folder for GPU leases can be used: {'; '.join(flaws)}. An administrator "
                    "can remove what is in the way; or set TAO_GPU_LEASE_DIR to one folder for all "
                    "users of this machine"
                )
            yield folders

    @contextlib.contextmanager
    def _exclusively(self, *, make: bool = True) -> Iterator[list[LeaseFolder]]:
        """The folders, while only this process reads or changes leases."""
        deadline = time.monotonic() + self._patience
        try:
            with contextlib.ExitStack() as stack:
                folders = stack.enter_context(self._open(make=make))
                for folder in folders:
                    stack.enter_context(folder.exclusively(deadline, self._pause))
                yield folders
        except OSError as error:
            where = os.pathsep.join(map(str, self._paths))
            raise LeasesUnavailableError(f"the GPU leases in {where}: {error}") from error


def look_for_free(folders: str | Path, keys: Sequence[str]) -> list[str]:
    """Which of these GPUs could be leased at this moment; makes no folder."""
    return GpuLeases(folders).free(keys, make=False)


def has_ended(folders: str | Path, lease: OuterLease) -> bool:
    """Whether no process holds this lease any more; makes no folder."""
    paths = [Path(text) for text in str(folders).split(os.pathsep) if text]
    return not any(is_held(path / "taken" / lease.name) for path in paths)


def lock(descriptor: int) -> None:
    """Hold a file for as long as this process has it open."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def is_held(path: Path) -> bool:
    """Whether a process of this machine, in any pid namespace, holds that file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's, or not a file
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def _new_lease(name: str = "", fraction: float = 1.0) -> GpuLease:
    return GpuLease(name or os.urandom(16).hex(), fraction)


@contextlib.contextmanager
def _released_on_error(lease: GpuLease) -> Iterator[None]:
    """An attempt that fails, at a full disk for example, leaves no GPU taken."""
    try:
        yield
    except BaseException:
        lease.release()
        raise


def _lock_free(
    lease: GpuLease, folders: Sequence[LeaseFolder], keys: Sequence[str], at_most: int
) -> None:
    """Lock up to that many of these GPUs which are free."""
    used = _used(folders, keys)
    for key in keys:
        if len(lease.keys) < at_most and _lock_gpu(lease, folders, key, used.get(key, 0.0)):
            lease.keys.append(key)


def _lock_gpu(lease: GpuLease, folders: Sequence[LeaseFolder], key: str, used: float) -> bool:
    """Lock a GPU of which `used` is leased; False when it is busy."""
    if not _fits(used, lease.fraction):
        return False
    # An exclusive lock shows that no other process holds any.
    kind = fcntl.LOCK_SH if used else fcntl.LOCK_EX
    locked: list[tuple[LeaseFolder, int]] = []
    for folder in folders:
        descriptor = folder.lock(_lock_name(key), kind)
        if descriptor is None:
            for _, held in locked:
                os.close(held)
            return False
        locked.append((folder, descriptor))
    for folder, descriptor in locked:
        lease.hold(folder, _lock_name(key), descriptor)
    return True


def _write_lease(lease: GpuLease, folders: Sequence[LeaseFolder]) -> None:
    name = f"taken/{lease.name}"
    for folder in folders:
        lease.hold(folder, name, folder.write_held(name, lease.lines()))


def _hold_again(lease: GpuLease, folder: LeaseFolder, name: str) -> int:
    """Make the deleted file of a lease, unless another job with the same lease just did."""
    present = folder.read_held(name)
    if present is not None and set(lease.keys) <= set(present[1:]):
        descriptor = folder.lock(name, fcntl.LOCK_SH)
        if descriptor is not None:
            return descriptor
    folder.remove(name)
    return folder.write_held(name, lease.lines())


def _used(
    folders: Sequence[LeaseFolder],
    wanted: Sequence[str],
    *,
    tidy: bool = True,
    other_than: str = "",
) -> dict[str, float]:
    """How much of each of these GPUs is leased, as the files of live leases have it."""
    leases: dict[tuple[str, str], float] = {}
    for folder in folders:
        for name, (fraction, *keys) in folder.live_files("taken", tidy=tidy):
            # Any user can name as many GPUs as they like: the others are not kept.
            for key in set(wanted).intersection(keys):
                leases[name, key] = _parse_fraction(fraction)
    used: dict[str, float] = {}
    for (name, key), fraction_leased in leases.items():
        if name != other_than:
            used[key] = used.get(key, 0.0) + fraction_leased
    return used


def _free(
    folders: Sequence[LeaseFolder], keys: Sequence[str], used: dict[str, float], fraction: float
) -> list[str]:
    return [
        key
        for key in keys
        if (
            _fits(used[key], fraction)
            if key in used
            else all(folder.is_unheld(_lock_name(key)) for folder in folders)
        )
    ]


def _place(folders: Sequence[LeaseFolder], keys: Sequence[str], ticket: Ticket | None) -> int:
    wanted = set(keys)
    before = {
        name
        for folder in folders
        for name, waiting_for in folder.live_files("queue")
        if wanted.intersection(waiting_for) and (ticket is None or name < ticket.name)
    }
    return len(before)


def _lock_name(key: str) -> str:
    return f"gpu-{key.replace('/', '_')}.lock"


def _fits(used: float, fraction: float) -> bool:
    return used + fraction <= 1 + _ROUNDING


def _parse_fraction(text: str) -> float:
    """The fraction that a lease file names; a whole GPU where it is no number."""
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 1.0


def _can_listen(port: int) -> bool:
    import socket  # here, because only jobs of several nodes need it

    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
