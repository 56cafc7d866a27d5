"""The programs that the lab needs: found, installed where that is asked for, or said to miss."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import unavailable

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
# A program that ends with the test process that started it, however that ends.
TIED = ("setpriv", "--pdeathsig", "TERM", "--")


def provide(programs: Sequence[str], packages: Sequence[str], lab: str = "docker") -> None:
    """Have these programs, or skip with what would help."""
    if not _missing(programs):
        return
    if os.environ.get("TAO_LAB_INSTALL") != "1" or os.geteuid() != 0 or not find("apt-get"):
        unavailable(
            lab,
            f"{', '.join(_missing(programs))}: not installed",
            f"TAO_LAB_INSTALL=1 as root on Debian, or: apt-get install {' '.join(packages)}",
        )
    with locked(cache() / "install.lock"):
        if not _missing(programs):
            return  # another test process was quicker
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update", "-qq"], ["install", "-y", "-qq", *packages]):
            done = subprocess.run(
                ["apt-get", *words], env=environment, capture_output=True, text=True, timeout=900
            )
            assert done.returncode == 0, done.stderr


def find(program: str) -> str:
    """The program's path; "" when it is not there."""
    return shutil.which(program, path=PATH) or ""


def cache() -> Path:
    """Where the lab keeps its engine and images between runs."""
    place = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tao-sdk-lab"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return place


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _missing(programs: Sequence[str]) -> list[str]:
    return [program for program in programs if not find(program)]
