"""Who uses a cluster: the first starts it, the last one ends it; if all were killed, a guard does.

`python -m lab.sharing MODULE FOLDER [remove]` is that guard; the module has the function
`cluster_in`, by which a cluster can be ended whoever started it. Users hold a shared lock on a file
of the folder that says where the cluster is; the kernel drops the lock with them. `used`,
`start_guard` and `guard` are the same for whatever else is shared through a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from lab.packages import cache, locked

_TESTS = Path(__file__).parents[1]
REMOVE = "remove"
"""Tells a guard that the folder goes with what is in it."""


class Startable(Protocol):
    """A cluster in a folder."""

    def up(self) -> None: ...
    def down(self) -> None:
        """End everything, whoever started it, and remove all that it left."""


Cluster = TypeVar("Cluster", bound=Startable)


@contextlib.contextmanager
def shared(module: str, label: str, make: Callable[[Path], Cluster]) -> Iterator[Cluster]:
    """The cluster with this label that all test processes of this machine share."""
    kind = _kind(module)
    folder = cache() / kind / label
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _cluster(_Place(module, folder), make) as cluster:
        yield cluster


@contextlib.contextmanager
def private(module: str, make: Callable[[Path], Cluster]) -> Iterator[Cluster]:
    """A cluster for one test, which may do with it what it likes."""
    folder = Path(tempfile.mkdtemp(prefix=f"tao-{_kind(module)}-private-"))
    try:
        with _cluster(_Place(module, folder), make, REMOVE) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder)


class _Place:
    """The folder through which test processes agree on a cluster."""

    def __init__(self, module: str, folder: Path) -> None:
        self.module = module
        self.folder = folder
        self._record = folder / "cluster"

    def found(self) -> Path:
        """Where the cluster is."""
        return Path(self._record.read_text())

    def holds(self, cluster: Path) -> bool:
        return self._record.exists() and self.found() == cluster

    def new(self) -> Path:
        """A folder for a new cluster."""
        # Not in /tmp, which jobs may be given: what a job is not given it must not find.
        folder = Path(tempfile.mkdtemp(prefix=f"tao-{_kind(self.module)}-", dir="/var/tmp"))
        self._record.write_text(str(folder))
        return folder

    def end(self) -> None:
        """End the cluster, or what is left of one whose users were killed."""
        if self._record.exists():
            importlib.import_module(self.module).cluster_in(self.found()).down()
            self._record.unlink()


@contextlib.contextmanager
def _cluster(place: _Place, make: Callable[[Path], Cluster], *words: str) -> Iterator[Cluster]:
    """Be a user of the cluster."""

    def begin(is_first: bool) -> None:
        if is_first:
            place.end()
            cluster = make(place.new())
            start_guard("lab.sharing", place.module, str(place.folder), *words)
            cluster.up()

    with used(place.folder, begin, place.end):
        yield make(place.found())


@contextlib.contextmanager
def used(folder: Path, begin: Callable[[bool], None], end: Callable[[], None]) -> Iterator[None]:
    """Be a user of what is in the folder: the last one ends it.

    What `begin` is told is whether we are the first one. Nobody else begins or ends meanwhile.
    """
    users = _open_users(folder)
    try:
        with locked(_start_lock(folder)):
            is_first = _is_unused(users)
            fcntl.flock(users, fcntl.LOCK_SH)
            begin(is_first)
        yield
    finally:
        with locked(_start_lock(folder)):
            try:
                if _is_unused(users):
                    end()
            finally:
                os.close(users)  # still under the lock: the next may be the last


def start_guard(module: str, *words: str) -> None:
    """Start the guard that this module is as a program; it outlives us."""
    subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=_TESTS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def guard(folder: Path, is_there: Callable[[], bool], end: Callable[[], None]) -> None:
    """Wait until what is in the folder is no longer there, or has no users: then end it."""
    with contextlib.suppress(FileNotFoundError):  # its users have removed it
        users = _open_users(folder)
        while is_there():
            with locked(_start_lock(folder)):
                if is_there() and _is_unused(users):
                    end()
                    os.close(users)  # still under the lock: the next user is the first one
                    return
            time.sleep(1)


def _open_users(folder: Path) -> int:
    return os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)


def _start_lock(folder: Path) -> Path:
    return folder / "start.lock"


def _is_unused(users: int) -> bool:
    """Does nobody else use it? Changes our own lock."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kind(module: str) -> str:
    """`slurm` of `lab.slurm.sharing`."""
    return module.split(".")[1]


def _guard_cluster(place: _Place, *, remove: bool) -> None:
    def end() -> None:
        place.end()
        if remove:
            shutil.rmtree(place.folder)

    with contextlib.suppress(FileNotFoundError):  # its users have ended it
        cluster = place.found()
        guard(place.folder, lambda: place.holds(cluster), end)


if __name__ == "__main__":
    _guard_cluster(_Place(sys.argv[1], Path(sys.argv[2])), remove=REMOVE in sys.argv[3:])
