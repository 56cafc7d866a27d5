"""The log of a worker as it is written: one stream instead of one question after the other.

The server sends a worker's log from its first line, and goes on until the worker ends. Lines that
were read before are skipped by their number; the last of them must be the one that is known, or
this is not the log that was read, and nobody believes the stream.
"""

from __future__ import annotations

import codecs
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager

from tao_sdk.errors import TaoError

_log = logging.getLogger("tao_sdk.lepton")
# What is read ahead of whoever follows.
_MOST_LINES = 10_000
_PAUSE_SECONDS = 0.2

Opener = Callable[[], AbstractContextManager[Iterator[bytes]]]


class LiveTail:
    """Follows the log of one worker, in a thread of its own."""

    def __init__(self, opener: Opener, skip: int, last: str) -> None:
        self._opener = opener
        self._skip = skip
        self._last = last
        self._lines: queue.Queue[str] = queue.Queue(_MOST_LINES)
        self._held: list[str] = []
        self._closed = threading.Event()
        self._over = threading.Event()
        threading.Thread(target=self._follow, name="tao-lepton-live", daemon=True).start()

    @property
    def over(self) -> bool:
        """Has it ended, and was everything taken?"""
        return self._over.is_set() and self._lines.empty()

    def take(self, limit: int) -> list[str]:
        """The lines that have come, up to about so many bytes.

        An empty one at the end is left for later: a record may follow.
        """
        found, self._held = self._held, []
        while limit > 0:
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                break
            limit -= len(line) + 1
            found.append(line)
        if found and not found[-1] and not self.over:
            self._held = [found.pop()]
        return found

    def close(self) -> None:
        self._closed.set()

    def _follow(self) -> None:
        try:
            with self._opener() as pieces:
                for number, line in enumerate(whole_lines(pieces), 1):
                    if self._closed.is_set() or not self._took(number, line):
                        return
        except (TaoError, OSError) as error:
            _log.info("a log is read from what the server keeps: %s", error)
        finally:
            self._over.set()

    def _took(self, number: int, line: str) -> bool:
        if number < self._skip:
            return True
        if number == self._skip:
            return line == self._last
        while not self._closed.is_set():
            try:
                self._lines.put(line, timeout=_PAUSE_SECONDS)
                return True
            except queue.Full:
                continue
        return False


def whole_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Lines from bytes that are cut anywhere; one without an end may still grow."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    held = ""
    for piece in pieces:
        *whole, held = (held + decode(piece)).split("\n")
        yield from whole
