"""A watcher that outlives the command that started it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tao_sdk
from tao_sdk.cli.session import Place
from tao_sdk.watcher import is_watched

# Not `-m`: that would let files of the current folder stand in for modules of Python.
_START = (
    "import sys; sys.path = [p for p in sys.path if p]; sys.path.append(sys.argv.pop(1)); "
    "from tao_sdk.cli import main; sys.exit(main())"
)
_LARGEST_LOG = 1024 * 1024


@dataclass(frozen=True)
class WatchProcess:
    """A watcher that was started, or (without a process) was there before."""

    process: int | None
    log: Path


def start_watcher(place: Place, interval: float | None = None) -> WatchProcess:
    """Have the store of `place` watched until no job of it is open."""
    store = place.store.path
    log = Path(f"{store}.watch.log")
    if is_watched(store):
        return WatchProcess(None, log)
    too_large = log.exists() and log.stat().st_size > _LARGEST_LOG
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if too_large else 0)
    descriptor = os.open(log, flags, 0o600)
    package_parent = str(Path(tao_sdk.__file__).parent.parent)
    pace = [] if interval is None else ["--interval", str(interval)]
    try:
        started = subprocess.Popen(
            [sys.executable, "-c", _START, package_parent, *place.options, "watch", *pace],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    return WatchProcess(started.pid, log)
