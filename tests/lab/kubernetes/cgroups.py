"""The control groups of a cluster's nodes."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

from lab.processes import wait_until

_ROOT = Path("/sys/fs/cgroup")
_NEEDED = ("memory", "cpu", "cpuset", "pids")


def available() -> bool:
    """Version 1 (or both): what was tried."""
    return all(os.access(_ROOT / name, os.W_OK) for name in _NEEDED)


def make(group: str) -> None:
    """Have that group, and those above it, in every hierarchy."""
    for hierarchy in _hierarchies():
        place = hierarchy
        for part in Path(group).parts:
            place = place / part
            place.mkdir(exist_ok=True)
            if (place / "cpuset.cpus").exists():  # a group without them takes no process
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (place / name).write_text((place.parent / name).read_text())


def remove(group: str) -> None:
    """Remove a group whose processes are ending, with all below it."""
    # In the unified one, too, which runc has put it into.
    for place in _ROOT.glob(f"*/{group}"):
        wait_until(partial(_is_removed, place), f"{place} is still in use")


def _hierarchies() -> list[Path]:
    # Some names are links to others.
    return sorted({tasks.parent.resolve() for tasks in _ROOT.glob("*/tasks")})


def _is_removed(place: Path) -> bool:
    """Remove it; the files in a group go with it."""
    try:
        for folder, _, _ in os.walk(place, topdown=False):
            Path(folder).rmdir()
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOENT):
            raise
    return not place.exists()
