"""A job's log as an iterator: its sources merged, resumable, followed until the job ends.

A backend names the sources of a log (`Backend.log_sources`), one per rank or stream. Merging them,
the `[rank n]` prefixes, a `tail` over all of them and cursors are written here, once.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple, TypeVar

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.backend import LogChunk, LogReader, LogSource
from tao_sdk.platforms.common.log_lines import rank_prefix

_SEPARATOR = "|"
_LONGEST_POSITION = 4000
_LONGEST_TAIL = 2**31 - 1
"""More lines than a log has; platforms take no larger number."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# Sources that end with their job announce its end; a poll from time to time finds what they missed.
_SAFETY_POLL_SECONDS = 5.0
_REOPEN_SECONDS = 1.0
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
        if_unknown: Callable[[], object] = lambda: None,
        poll_seconds: float = _LONGEST_PAUSE,
        owner: object = None,
    ) -> None:
        """With `has_ended`, the log is followed until that says so.

        `poll_seconds` is the longest pause between two such questions. `if_unknown` may raise
        instead of a log that ends, or fails, without a line. `owner` lives as long as the stream.
        """
        self._positions = cursor.split(_SEPARATOR) if cursor else [""] * len(sources)
        is_long = any(len(position) > _LONGEST_POSITION for position in self._positions)
        if is_long or len(self._positions) != len(sources):
            raise ValidationError(f"cursor {cursor[:200]!r} does not belong to this log")
        shares = _shares(None if cursor else tail, len(sources))
        self._prefixes = [rank_prefix(source.rank, len(sources)) for source in sources]
        self._number = 0
        self._chunk = LogChunk((), more=True, cursor=self._positions[0])
        self._lines = iter(self._chunk.lines)
        self._reading = _Reading(
            list(map(_Unread, sources, self._positions, shares)),
            has_ended,
            min(poll_seconds, _LONGEST_PAUSE),
        )
        self._is_unknown, self._if_unknown = not cursor, if_unknown
        self._close = weakref.finalize(self, self._reading.close)
        self._owner = owner

    @property
    def cursor(self) -> str:
        return _SEPARATOR.join(self._positions) if any(self._positions) else ""

    def __next__(self) -> str:
        while self._close.alive:
            for line in self._lines:
                self._positions[self._number] = line.cursor
                return self._prefixes[self._number] + line.text
            # A chunk may end behind its last line, and an empty one moves the position, too.
            self._positions[self._number] = self._chunk.cursor
            try:
                found = self._reading.next_chunk()
            except Exception:
                was_closed = not self._close.alive
                self.close()
                if was_closed:
                    break
                self._raise_if_unknown()
                raise
            if found is None:
                if self._close.alive:
                    self._raise_if_unknown()
                break
            self._number, self._chunk = found
            self._lines = iter(self._chunk.lines)
            self._is_unknown = self._is_unknown and not self._chunk.lines
        raise StopIteration

    def _raise_if_unknown(self) -> None:
        if self._is_unknown:
            self._if_unknown()

    def close(self) -> None:
        """End here. `cursor` stays, to go on from."""
        self._close()


def _shares(tail: int | None, sources: int) -> list[int | None]:
    """`tail` counts the lines of the whole log, so the sources share it."""
    if tail is None:
        return [None] * sources
    if tail < 0:
        raise ValidationError(f"tail: {tail} is less than 0")
    tail = min(tail, _LONGEST_TAIL)
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

    def __init__(
        self,
        unread: list[_Unread],
        has_ended: Callable[[], bool] | None,
        longest_pause: float,
    ) -> None:
        self._unread = unread
        self._left = deque(range(len(unread)))
        self._shared_tail = deque(
            number for number in self._left if len(unread) > 1 and unread[number].tail is not None
        )
        self._has_ended = has_ended
        self._schedule = _StatusSchedule(
            longest_pause, announced=all(rest.source.ends_with_job for rest in unread)
        )
        self._closed = False
        self._opened: LogReader | _Follower | None = None
        self._opened_in = 0

    def close(self) -> None:
        """From any thread: one that waits for a chunk comes back at once."""
        self._closed = True
        self._close_opened()

    def next_chunk(self) -> tuple[int, LogChunk] | None:
        """The next chunk and the number of its source; None at the end, or when closed."""
        while self._shared_tail and not self._closed:
            try:
                start = self._start_of_tail(self._shared_tail[0])
            except BackendUnreachableError:
                if self._has_ended is None:
                    raise
                time.sleep(_REOPEN_SECONDS)  # a followed log outlasts an outage
            else:
                self._shared_tail.popleft()
                return start
        if self._has_ended is not None:
            if found := self._follow(self._has_ended):
                return found
            # The job has ended: what was written last is read without following.
            self._has_ended = None
            self._close_opened()
        while self._left and not self._closed:
            number = self._left[0]
            reader = self._reader(number)
            chunk = next(reader, None)
            if self._closed:
                reader.close()  # the thread that closed it may have left this to us
            elif chunk is not None:
                self._unread[number] = self._unread[number].behind(chunk)
                return number, chunk
            else:
                self._close_opened()
                self._left.popleft()
        return None

    def _start_of_tail(self, number: int) -> tuple[int, LogChunk]:
        """Where the tail of a source begins: a cursor is for all sources, also unread ones."""
        with closing(self._unread[number].open(follow=False)) as reader:
            first = next(reader)
        start = LogChunk((), more=True, cursor=first.start)
        self._unread[number] = self._unread[number].behind(start)
        return number, start

    def _follow(self, has_ended: Callable[[], bool]) -> tuple[int, LogChunk] | None:
        """The next chunk; None once the job has ended. Its last lines may be unread then."""
        while not self._closed:
            arrived = self._follower().next(self._schedule.seconds_left)
            if isinstance(arrived, _Arrived):
                self._schedule.chunk_came()
                number, chunk = arrived
                self._unread[number] = self._unread[number].behind(chunk)
                return number, chunk
            if arrived is _SOURCE_ENDED and not self._schedule.source_ended():
                continue
            if self._closed or has_ended():
                break
            self._schedule.polled()
        return None

    def _follower(self) -> _Follower:
        opened = self._opened
        if isinstance(opened, _Follower) and self._opened_in == os.getpid():
            return opened
        return self._use(_Follower(self._unread))

    def _reader(self, number: int) -> LogReader:
        opened = self._opened
        if opened is None or isinstance(opened, _Follower) or self._opened_in != os.getpid():
            return self._use(self._unread[number].open(follow=False))
        return opened

    def _use(self, opened: _Opened) -> _Opened:
        self._close_opened()
        self._opened, self._opened_in = opened, os.getpid()
        if self._closed:  # meanwhile, by another thread
            self._close_opened()
        return opened

    def _close_opened(self) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            return
        if self._opened_in == os.getpid():
            opened.close()
        else:
            # The parent closes it. It may have locks that a thread of the parent held.
            _of_the_parent.append(opened)


class _StatusSchedule:
    """When a job's status is polled while its log is followed: in pauses between lines."""

    def __init__(self, longest: float, *, announced: bool) -> None:
        self._after_lines = _SAFETY_POLL_SECONDS if announced else _SHORTEST_PAUSE
        self._longest = _SAFETY_POLL_SECONDS if announced else longest
        self._source_has_ended = False
        self._pause = self._after_lines
        self._due_at = time.monotonic() + self._pause

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._due_at - time.monotonic())

    def chunk_came(self) -> None:
        self._source_has_ended = False
        self._pause = self._after_lines
        self._due_at = time.monotonic() + self._pause

    def source_ended(self) -> bool:
        """Whether to poll at once: at the first end, not whenever the source is opened again."""
        is_first, self._source_has_ended = not self._source_has_ended, True
        if is_first:
            self._pause = _SHORTEST_PAUSE
        return is_first

    def polled(self) -> None:
        self._due_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 1.5, self._longest)


_of_the_parent: list[object] = []


class _Arrived(NamedTuple):
    number: int
    chunk: LogChunk


_SOURCE_ENDED: Final = "a source has nothing more for now"


class _Follower:
    """Follows sources side by side, each in a thread, a few chunks ahead of its caller."""

    def __init__(self, unread: Sequence[_Unread]) -> None:
        self._changed = threading.Condition()
        self._ahead: deque[_Arrived | str | BaseException] = deque()
        self._readers: list[LogReader] = []
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(number, rest), name="tao-log", daemon=True)
            for number, rest in enumerate(unread)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:  # a limit of threads: those that run must not go on unseen
            self._threads = [thread for thread in self._threads if thread.ident is not None]
            self.close()
            raise

    def next(self, seconds: float) -> _Arrived | str | None:
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
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():  # the garbage collector may run in it
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, number: int, rest: _Unread) -> None:
        try:
            while not self._closed:
                rest = self._read(number, rest)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, _REOPEN_SECONDS)
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
        self._hand_on(_SOURCE_ENDED)
        return rest

    def _hand_on(self, arrived: _Arrived | str | BaseException) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._ahead) < _CHUNKS_AHEAD or self._closed)
            self._ahead.append(arrived)
            self._changed.notify_all()


_Opened = TypeVar("_Opened", LogReader, _Follower)


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
