"""Whether Slurm can use this machine's control groups, and what it leaves behind in them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from lab.processes import wait_until

_ROOT = Path("/sys/fs/cgroup")
_NEEDED = ("memory", "freezer", "cpuset")


def available() -> bool:
    """Version 1 (or both): for version 2 this Slurm needs systemd."""
    return all(os.access(_ROOT / name, os.W_OK) for name in _NEEDED)


def thaw_groups_of(nodes: Iterable[str]) -> None:
    """Let frozen processes of nodes go on: they could not end otherwise."""
    for group in _groups_of(nodes):
        for state in group.rglob("freezer.state"):
            state.write_text("THAWED")


def remove_groups_of(nodes: Iterable[str]) -> None:
    """Remove the groups of nodes whose processes are ending."""
    for group in _groups_of(nodes):
        wait_until(partial(_remove, group), f"{group} is still in use")


def _groups_of(nodes: Iterable[str]) -> list[Path]:
    return [group for node in nodes for group in _ROOT.glob(f"*/slurm_{node}")]


def _remove(group: Path) -> bool:
    """Says whether it is gone; the files in a group go with it."""
    try:
        for place, _, _ in os.walk(group, topdown=False):
            Path(place).rmdir()
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOENT):
            raise
    return not group.exists()
