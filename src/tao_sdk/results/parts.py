"""Files that have come in part."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tao_sdk.results.sources import Entry


class Parts:
    """A folder with content that has come. Named by its version, so the next pull can go on."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        folder.mkdir(exist_ok=True)

    def path_of(self, entry: Entry) -> Path:
        version = (self._address, entry.path, entry.size, entry.mtime_ns)
        name = hashlib.sha256(repr(version).encode()).hexdigest()[:32]
        return self._folder / name

    def size_of(self, entry: Entry) -> int:
        """How many bytes of it are here."""
        try:
            return self.path_of(entry).stat().st_size
        except FileNotFoundError:
            return 0

    def is_whole(self, entry: Entry) -> bool:
        return self.size_of(entry) == entry.size and self.path_of(entry).exists()

    def drop(self, entry: Entry) -> int:
        """Remove it; how many bytes of it were here."""
        size = self.size_of(entry)
        self.path_of(entry).unlink(missing_ok=True)
        return size
