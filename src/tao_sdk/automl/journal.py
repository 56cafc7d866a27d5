"""The file in which a search is kept: Optuna's journal, one JSON object in each line.

Optuna's own file storage cannot be read again after a write was cut off in the middle of a line,
and a process that is killed with its lock stalls the next one for half a minute. This one takes the
lock that job stores use on network file systems, and removes an unfinished last line before the
next write: what was not acknowledged never happened. `optuna-dashboard` reads the file as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from tao_sdk.errors import StoreError
from tao_sdk.job_store.deadline import Deadline
from tao_sdk.job_store.network_lock import NetworkLock

__all__ = ["Journal", "JournalError"]

_PRIVATE = 0o600


class JournalError(StoreError):
    """The journal cannot be read or written."""


class Journal(BaseJournalBackend):
    """The journal of one workspace; any number of processes may read it."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self._lock = NetworkLock(path)
        self._offsets = [0]
        """Where each line that has been read begins; the last entry is where the next will."""
        if create:
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, _PRIVATE))
            except OSError as error:
                raise JournalError(f"cannot write {path}: {error.strerror}") from error

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The entries from this number on. A last line without its end is not there yet."""
        start = min(log_number_from, len(self._offsets) - 1)
        try:
            with self.path.open("rb") as file:
                file.seek(self._offsets[start])
                content = file.read()
        except OSError as error:
            raise JournalError(f"cannot read {self.path}: {error.strerror}") from error
        # A list, so that nothing is read halfway when a caller stops.
        return iter(list(self._entries(content, start, log_number_from)))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add entries; when this returns they are on the disk."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._lock.held(Deadline.from_settings()), self._opened() as descriptor:
            end = os.lseek(descriptor, 0, os.SEEK_END)
            end = self._without_torn_line(descriptor, end)
            try:
                _write_all(descriptor, text.encode("utf-8"))
                os.fsync(descriptor)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, end)
                raise JournalError(f"cannot write {self.path}: {error.strerror}") from error

    def _entries(self, content: bytes, start: int, first: int) -> Iterator[dict[str, Any]]:
        offset = self._offsets[start]
        for number, line in enumerate(content.splitlines(keepends=True), start):
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            if number + 1 == len(self._offsets):
                self._offsets.append(offset)
            if number >= first:
                yield self._entry(line, number)

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise JournalError(
                f"{self.path} is damaged in line {number + 1}; nothing was changed. Restore the "
                "file from a copy, or keep its lines before that one"
            )
        return entry

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {error.strerror}") from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _without_torn_line(self, descriptor: int, end: int) -> int:
        """Cut off what a killed writer left of a line; returns where the file ends."""
        kept = end
        while kept > 0:
            begin = max(0, kept - 65536)
            block = os.pread(descriptor, kept - begin, begin)
            newline = block.rfind(b"\n")
            if newline >= 0:
                kept = begin + newline + 1
                break
            kept = begin
        if kept != end:
            os.ftruncate(descriptor, kept)
        return kept


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
