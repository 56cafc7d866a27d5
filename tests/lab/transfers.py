"""What tests of downloads and uploads have in common."""

from __future__ import annotations

import random
import stat
import threading
from pathlib import Path


class Tally:
    """Progress that is counted."""

    def __init__(self) -> None:
        self.bytes = self.files = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int, /) -> None:
        with self._lock:
            self.bytes += nbytes

    def file_done(self) -> None:
        with self._lock:
            self.files += 1


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes in which a swapped or missing piece shows."""
    return random.Random(f"{seed} {size}").randbytes(size)


def below(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones included."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder: content, mode and time of change."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name, seen = str(path.relative_to(folder)), path.lstat()
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", stat.S_IMODE(seen.st_mode), seen.st_mtime_ns)
        else:
            data = path.read_bytes()
            found[name] = ("file", data, stat.S_IMODE(seen.st_mode), seen.st_mtime_ns)
    return found
