"""Logs that a platform returns chunk by chunk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Protocol

from tao_sdk.platforms.backend import LogChunk

CHUNK_BYTES = 256 * 1024
_SHORTEST_PAUSE = 0.05


class ReadsChunk(Protocol):
    """Return about `limit` bytes of log, at most, from `cursor` on.

    An empty cursor is the start of the log, or of its last `tail` lines. A last line without a
    newline may still grow: it is returned only with `flush`.
    """

    def __call__(self, *, cursor: str, tail: int | None, limit: int, flush: bool) -> LogChunk: ...


class PolledLog:
    """The source of a log that is read with one request for each chunk."""

    ends_with_job = False

    def __init__(self, read: ReadsChunk, *, rank: int = 0, longest_pause: float = 1.0) -> None:
        self.rank = rank
        self.read = read
        self.longest_pause = longest_pause

    def open(self, position: str, *, tail: int | None, follow: bool) -> PolledReader:
        return PolledReader(self, position, tail=tail, follow=follow)


class PolledReader(Iterator[LogChunk]):
    """Requests chunk after chunk; when following, with a growing delay at the end of the log."""

    def __init__(self, log: PolledLog, position: str, *, tail: int | None, follow: bool) -> None:
        self._log = log
        self._cursor = position
        self._tail = tail
        self._follow = follow
        self._is_first = True
        self._at_end = False
        self._pause = 0.0
        self._closed = threading.Event()

    def __next__(self) -> LogChunk:
        while not (self._at_end or self._closed.wait(self._pause)):
            chunk = self._log.read(
                cursor=self._cursor, tail=self._tail, limit=CHUNK_BYTES, flush=not self._follow
            )
            is_first, self._is_first = self._is_first, False
            self._cursor, self._tail = chunk.cursor, None
            self._at_end = not (chunk.more or self._follow)
            if chunk.more:
                self._pause = 0.0
            elif chunk.lines:
                self._pause = _SHORTEST_PAUSE
            else:
                longer = max(_SHORTEST_PAUSE, self._pause * 1.5)
                self._pause = min(longer, self._log.longest_pause)
            if chunk.lines or is_first:
                return chunk
        raise StopIteration

    def close(self) -> None:
        self._closed.set()
