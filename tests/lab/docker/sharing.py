"""Engines that test processes share, or have for themselves.

`python -m lab.docker.sharing FOLDER [remove]` is the guard of one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab import sharing, unavailable
from lab.docker import images
from lab.docker.engine import Engine, discard
from lab.packages import cache, locked, provide

_PROGRAMS = ("dockerd", "docker", "busybox")
_PACKAGES = ("docker.io", "containerd", "runc", "iptables", "busybox-static")
# A network each.
_SHARED_POOL = "10.213.0.0/17"
_PRIVATE_POOL = "10.213.128.0/17"


@contextlib.contextmanager
def shared_engine() -> Iterator[Engine]:
    """The engine of this machine's test runs."""
    _provide_engine()
    engine = Engine(cache() / "docker", _SHARED_POOL)
    engine.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def begin(is_first: bool) -> None:
        if is_first:
            _start_guard(engine)
        if not engine.alive:
            (engine.folder / "pid").unlink(missing_ok=True)
            engine.start()
        if is_first:
            engine.remove_all()  # what a killed run left
        images.provide(engine)

    with sharing.used(engine.folder, begin, lambda: _end(engine)):
        yield engine


@contextlib.contextmanager
def private_engine(*options: str) -> Iterator[Engine]:
    """An engine for one test, which may do with it what it likes."""
    _provide_engine()
    with locked(cache() / "private.lock"):  # one at a time: they share a network
        # A short path: those of its sockets have at most 104 characters.
        engine = Engine(Path(tempfile.mkdtemp(prefix="tao-engine-")), _PRIVATE_POOL)

        def begin(_: bool) -> None:
            _start_guard(engine, sharing.REMOVE)
            engine.start(*options)
            images.provide(engine)

        try:
            with sharing.used(engine.folder, begin, lambda: _end(engine)):
                yield engine
        finally:
            discard(engine.folder)


def _provide_engine() -> None:
    if os.geteuid() != 0:
        unavailable("docker", "the lab's own daemon needs root", "run the tests as root")
    provide(_PROGRAMS, _PACKAGES)


def _start_guard(engine: Engine, *words: str) -> None:
    sharing.start_guard("lab.docker.sharing", str(engine.folder), *words)


def _end(engine: Engine) -> None:
    if engine.alive:
        engine.remove_all()
        # Their bridges are the machine's, and would stay.
        engine.docker("network", "prune", "--force", check=False)
    engine.stop()


def _guard(engine: Engine, *, remove: bool) -> None:
    def end() -> None:
        _end(engine)
        if remove:
            discard(engine.folder)

    # A test may end its engine and start it again: it is there as long as its folder.
    sharing.guard(engine.folder, engine.folder.exists, end)


if __name__ == "__main__":
    _guard(Engine(Path(sys.argv[1])), remove=sharing.REMOVE in sys.argv[2:])
