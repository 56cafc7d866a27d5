"""A job's log as an iterator: its sources merged, resumable, followed until the job ends.

A backend names the sources of a log (`Backend.log_sources`), one per rank or stream. Merging them,
the `[rank n]` prefixes, a `tail` over all of them and cursors are written here, once.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine, LogReader, LogSource
from tao_sdk.platforms.common.log_lines import rank_prefix

_SEPARATOR = "|"
_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
# For sources that end with their job: an end is seen at once, and this finds what they missed.
_SELDOM = 5.0
_CHUNKS_AHEAD = 4
_CLOSING_SECONDS = 1.0


class LogStream(Iterator[str]):
    """Lines of a log. `cursor` always points behind the last line that was handed out.

    Keep `cursor` and pass it to `stream_logs(cursor=)` to go on later, from any process. Lines
    come without their newline; a line longer than a chunk comes in pieces. One thread reads; any
    may close.
    """

    def __init__(
        self,
        sources: Sequence[LogSource],
        *,
        tail: int | None = None,
        cursor: str = "",
        has_ended: Callable[[], bool] | None = None,
    ) -> None:
        """With `has_ended`, the log is followed until that says so."""
        self._positions = cursor.split(_SEPARATOR) if cursor else [""] * len(sources)
        if len(self._positions) != len(sources):
            raise ValidationError(f"cursor {cursor!r} does not belong to this log")
        shares = _shares(None if cursor else tail, len(sources))
        self._prefixes = [rank_prefix(source.rank, len(sources)) for source in sources]
        self._lines: Iterator[LogLine] = iter(())
        self._number, self._reached = 0, self._positions[0]
        reading = _Reading(list(map(_Unread, sources, self._positions, shares)), has_ended)
        self._chunks = reading.chunks()
        self._close = weakref.finalize(self, reading.close)

    @property
    def cursor(self) -> str:
        return _SEPARATOR.join(self._positions) if any(self._positions) else ""

    def __next__(self) -> str:
        while True:
            for line in self._lines:
                self._positions[self._number] = line.cursor
                return self._prefixes[self._number] + line.text
            if not self._close.alive:
                raise StopIteration
            self._positions[self._number] = self._reached
            self._number, chunk = next(self._chunks)
            self._lines, self._reached = iter(chunk.lines), chunk.cursor

    def close(self) -> None:
        """End here. `cursor` stays, to go on from."""
        self._close()
        self._lines = iter(())


def _shares(tail: int | None, sources: int) -> list[int | None]:
    """`tail` counts the lines of the whole log, so the sources share it."""
    if tail is None:
        return [None] * sources
    if tail < 0:
        raise ValidationError(f"tail: {tail} is less than 0")
    return [tail // sources + (number < tail % sources) for number in range(sources)]


class _Unread(NamedTuple):
    """What is left to be read of a source."""

    source: LogSource
    position: str
    tail: int | None

    def open(self, *, follow: bool) -> LogReader:
        return self.source.open(self.position, tail=self.tail, follow=follow)

    def behind(self, chunk: LogChunk) -> _Unread:
        return _Unread(self.source, chunk.cursor, None)


class _Reading:
    """The sources of one log while they are read. After a fork, each process reads by itself."""

    def __init__(self, unread: list[_Unread], has_ended: Callable[[], bool] | None) -> None:
        self._unread = unread
        self._has_ended = has_ended
        self._closed = False
        self._open: LogReader | _Follower | None = None
        self._opened_in = 0

    def close(self) -> None:
        """From any thread: one that waits for a chunk comes back at once."""
        self._closed = True
        self._close_open()

    def chunks(self) -> Iterator[tuple[int, LogChunk]]:
        """What is to be read, each chunk with the number of its source."""
        if self._has_ended is not None:
            yield from self._follow(self._has_ended)
        for number in range(len(self._unread)):
            yield from self._read_to_the_end(number)

    def _read_to_the_end(self, number: int) -> Iterator[tuple[int, LogChunk]]:
        while not self._closed:
            reader = self._unread[number].open(follow=False)
            self._open, self._opened_in = reader, os.getpid()
            is_whole = True
            for chunk in reader:
                self._unread[number] = self._unread[number].behind(chunk)
                yield number, chunk
                if self._closed or self._is_forked():
                    is_whole = False
                    break
            self._close_open()
            if is_whole:
                return

    def _follow(self, has_ended: Callable[[], bool]) -> Iterator[tuple[int, LogChunk]]:
        """What comes until the job has ended. The very last lines may be left unread."""
        announced = all(rest.source.ends_with_job for rest in self._unread)
        shortest, longest = (_SELDOM, _SELDOM) if announced else (_SHORTEST_PAUSE, _LONGEST_PAUSE)
        pause = shortest
        follower = self._start_follower()
        while not self._closed:
            if self._is_forked():
                follower = self._start_follower()
            arrived = follower.next(pause)
            if arrived is not None and arrived.chunk is not None:
                number, chunk = arrived.number, arrived.chunk
                self._unread[number] = self._unread[number].behind(chunk)
                yield number, chunk
                pause = shortest
            elif self._closed or has_ended():
                break
            elif arrived is not None:  # a source ended: its job has, or a connection broke
                pause = _SHORTEST_PAUSE
            else:
                pause = min(pause * 1.5, longest)
        self._close_open()

    def _start_follower(self) -> _Follower:
        self._close_open()
        follower = _Follower(self._unread)
        self._open, self._opened_in = follower, os.getpid()
        return follower

    def _is_forked(self) -> bool:
        return self._opened_in != os.getpid()

    def _close_open(self) -> None:
        if self._open is None:
            return
        if self._is_forked():
            # The parent closes it. It may have locks that a thread of the parent held.
            _of_the_parent.append(self._open)
        else:
            self._open.close()


_of_the_parent: list[object] = []


class _Arrived(NamedTuple):
    number: int
    chunk: LogChunk | None
    """None: the source has nothing more for now."""


class _Follower:
    """Follows sources side by side, each in a thread, a few chunks ahead of its caller."""

    def __init__(self, unread: Sequence[_Unread]) -> None:
        self._changed = threading.Condition()
        self._ahead: deque[_Arrived | BaseException] = deque()
        self._readers: list[LogReader] = []
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(number, rest), name="tao-log", daemon=True)
            for number, rest in enumerate(unread)
        ]
        for thread in self._threads:
            thread.start()

    def next(self, seconds: float) -> _Arrived | None:
        """What arrives within so many seconds; None when nothing does, or it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._ahead or self._closed, seconds)
            if self._closed or not self._ahead:
                return None
            arrived = self._ahead.popleft()
            self._changed.notify_all()
        if isinstance(arrived, BaseException):
            raise arrived
        return arrived

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            readers = tuple(self._readers)
        for reader in readers:
            reader.close()
        for thread in self._threads:
            thread.join(_CLOSING_SECONDS)

    def _run(self, number: int, rest: _Unread) -> None:
        try:
            while not self._closed:
                rest = self._read(number, rest)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, _LONGEST_PAUSE)
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            self._hand_on(error)

    def _read(self, number: int, rest: _Unread) -> _Unread:
        """Read until the source ends or cannot be reached; what is left to be read."""
        with closing(rest.open(follow=True)) as reader:
            self._readers.append(reader)
            try:
                # Closed before it could be seen among the readers, it is not begun.
                for chunk in reader if not self._closed else ():
                    rest = rest.behind(chunk)
                    self._hand_on(_Arrived(number, chunk))
                    if self._closed:
                        break
            except BackendUnreachableError:
                return rest
            finally:
                self._readers.remove(reader)
        self._hand_on(_Arrived(number, None))
        return rest

    def _hand_on(self, arrived: _Arrived | BaseException) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._ahead) < _CHUNKS_AHEAD or self._closed)
            self._ahead.append(arrived)
            self._changed.notify_all()


def in_pieces(lines: Iterable[str], size: int) -> Iterator[str]:
    """Lines put together to texts of about `size` characters."""
    held: list[str] = []
    length = 0
    for line in lines:
        held.append(line + "\n")
        length += len(line) + 1
        if length >= size:
            yield "".join(held)
            held, length = [], 0
    if held:
        yield "".join(held)
