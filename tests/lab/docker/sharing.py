"""Who uses an engine: the first starts it, the last one ends it; if all were killed, a guard does.

`python -m lab.docker.sharing FOLDER [remove]` is that guard. Users hold a shared lock on a file of
the engine's folder, which the kernel drops with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lab import unavailable
from lab.docker import images
from lab.docker.engine import Engine, discard
from lab.packages import cache, locked, provide

_PROGRAMS = ("dockerd", "docker", "busybox")
_PACKAGES = ("docker.io", "containerd", "runc", "iptables", "busybox-static")
# A network each.
_SHARED_POOL = "10.213.0.0/17"
_PRIVATE_POOL = "10.213.128.0/17"
_TESTS = Path(__file__).parents[2]


@contextlib.contextmanager
def shared_engine() -> Iterator[Engine]:
    """The engine of this machine's test runs."""
    _provide_engine()
    engine = Engine(cache() / "docker", _SHARED_POOL)
    engine.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _using(engine) as is_first:
        with locked(_start_lock(engine)):
            if not engine.alive:
                (engine.folder / "pid").unlink(missing_ok=True)
                engine.start()
                _start_guard(engine)
            if is_first:
                engine.remove_all()  # what a killed run left
            images.provide(engine)
        yield engine


@contextlib.contextmanager
def private_engine(*options: str) -> Iterator[Engine]:
    """An engine for one test, which may do with it what it likes."""
    _provide_engine()
    with locked(cache() / "private.lock"):  # one at a time: they share a network
        # A short path: those of its sockets have at most 104 characters.
        engine = Engine(Path(tempfile.mkdtemp(prefix="tao-engine-")), _PRIVATE_POOL)
        try:
            with _using(engine):
                _start_guard(engine, "remove")
                engine.start(*options)
                images.provide(engine)
                yield engine
        finally:
            discard(engine.folder)


def _provide_engine() -> None:
    if os.geteuid() != 0:
        unavailable("docker", "the lab's own daemon needs root", "run the tests as root")
    provide(_PROGRAMS, _PACKAGES)


@contextlib.contextmanager
def _using(engine: Engine) -> Iterator[bool]:
    """Be a user of the engine; says whether we are the only one."""
    users = _open_users(engine)
    with locked(_start_lock(engine)):
        is_first = _is_unused(users)
        fcntl.flock(users, fcntl.LOCK_SH)
    try:
        yield is_first
    finally:
        with locked(_start_lock(engine)):
            if _is_unused(users):
                _end(engine)
            os.close(users)  # still under the lock: the next may be the last


def _open_users(engine: Engine) -> int:
    return os.open(engine.folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)


def _start_lock(engine: Engine) -> Path:
    return engine.folder / "start.lock"


def _is_unused(users: int) -> bool:
    """Does nobody else use the engine? Changes our own lock."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end(engine: Engine) -> None:
    if engine.alive:
        engine.remove_all()
        # Their bridges are the machine's, and would stay.
        engine.docker("network", "prune", "--force", check=False)
    engine.stop()


def _start_guard(engine: Engine, *words: str) -> None:
    subprocess.Popen(
        [sys.executable, "-m", "lab.docker.sharing", str(engine.folder), *words],
        cwd=_TESTS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _guard(folder: Path, *, remove: bool) -> None:
    engine = Engine(folder)
    with contextlib.suppress(FileNotFoundError):  # its users have removed it
        users = _open_users(engine)
        while True:
            time.sleep(1)
            with locked(_start_lock(engine)):
                if _is_unused(users):
                    _end(engine)
                    break
        if remove:
            discard(folder)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), remove="remove" in sys.argv[2:])
