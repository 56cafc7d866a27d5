"""Where the log of a container comes from: the daemon, or what we kept of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from tao_sdk.platforms.docker.log_frames import (
    THE_START,
    Message,
    Position,
    first_second,
    read_messages,
    second_of,
)
from tao_sdk.platforms.docker.transport import DaemonError, DockerTransport

PIECE = 64 * 1024
# The daemon finds the last so many messages quickly, but reads a log from its beginning to find
# those since a moment. So a reader that goes on looks near the end first, then further back.
_NEAR_THE_END = (4096, 131_072)
# Messages of standard output and error may be stored out of order, by far less than this.
_SKEW = timedelta(seconds=1)


class LogSource:
    """The log of one container."""

    def __init__(self, transport: DockerTransport, container: str, kept: Path | None) -> None:
        self._transport = transport
        self._container = container
        self._kept = kept

    def pieces_from(self, position: Position, *, follow: bool, stack: ExitStack) -> Iterator[bytes]:
        """Frames of at least everything from a position on; whoever closes `stack` ends it."""
        try:
            for tail in () if position.at_the_start else _NEAR_THE_END:
                with ExitStack() as attempt:
                    pieces = self._open(attempt, tail=tail, follow=follow)
                    piece = next(pieces, b"")
                    if _reaches_back(first_second(piece), position.anchor):
                        stack.push(attempt.pop_all())
                        return chain((piece,), pieces)
            return self._open(stack, since=position.since, follow=follow)
        except DaemonError as error:
            if not error.missing:
                raise
            return self._kept_pieces()

    def whole(self) -> Iterator[bytes]:
        """All frames, as the daemon sends them."""
        with ExitStack() as stack:
            yield from self._open(stack)

    def last(self, count: int) -> Iterator[Message]:
        """The last so many messages."""
        with ExitStack() as stack:
            yield from read_messages(self._open(stack, tail=count))

    def tail_cursor(self, tail: int) -> str:
        """The cursor before the last `tail` lines."""
        asked = 4 * tail + 1000
        while True:
            try:
                messages, whole = self.last(asked), False
                found = _Tail.of(messages, tail)
            except DaemonError as error:
                if not error.missing:
                    raise
                found, whole = _Tail.of(read_messages(self._kept_pieces()), tail), True
            if not found.count:
                return THE_START
            if whole or found.count < asked or _reaches_back(found.first, found.start):
                return found.cursor
            asked *= 8

    def _open(
        self, stack: ExitStack, *, since: str = "0", follow: bool = False, tail: int | None = None
    ) -> Iterator[bytes]:
        answer = stack.enter_context(
            self._transport.stream(
                "GET",
                f"/containers/{self._container}/logs",
                stdout=True,
                stderr=True,
                timestamps=True,
                follow=follow,
                since=since,
                tail="all" if tail is None else tail,
            )
        )
        raw: Any = answer.raw
        return dechunked(raw._fp.fp.read1) if raw.chunked else _plain(raw)

    def _kept_pieces(self) -> Iterator[bytes]:
        if self._kept is None or not self._kept.exists():
            return
        with self._kept.open("rb") as file:
            while piece := file.read(PIECE):
                yield piece


class _Tail:
    """The end of a log: where its last lines begin."""

    def __init__(self, lines: int) -> None:
        self.count = 0
        self.first = b""
        self._last: deque[bytes] = deque(maxlen=max(lines, 1))
        self._before: Counter[bytes] = Counter()
        self._lines = lines

    @classmethod
    def of(cls, messages: Iterator[Message], lines: int) -> _Tail:
        found = cls(lines)
        for message in messages:
            found._add(second_of(message))
        return found

    def _add(self, second: bytes) -> None:
        self.first = self.first or second
        if len(self._last) == self._last.maxlen:
            self._before[self._last[0]] += 1
        self._last.append(second)
        self.count += 1

    @property
    def start(self) -> bytes:
        """The second in which those lines begin."""
        return min(self._last)

    @property
    def cursor(self) -> str:
        start = self.start
        known = sum(count for second, count in self._before.items() if second >= start)
        behind = 0 if self._lines else 1  # none of the lines: the last one is known as well
        return f"{start.decode()}/{known + behind}"


def dechunked(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The content of a chunked HTTP answer, in pieces as large as they come.

    The daemon makes a chunk of every message. The HTTP client would hand them out one by one, at
    a price that for a long log is most of the work.
    """
    held = b""
    while True:
        received = read(PIECE)
        if not received:
            raise ConnectionError("the answer broke off")
        held += received
        chunks, begin = [], 0
        while (end := held.find(b"\r\n", begin)) >= 0:
            size = int(held[begin:end].partition(b";")[0], 16)
            chunk = end + 2
            if len(held) < chunk + size + 2:
                break
            chunks.append(held[chunk : chunk + size])
            begin = chunk + size + 2
            if size == 0:
                yield b"".join(chunks)
                return
        held = held[begin:]
        if chunks:
            yield b"".join(chunks)


def _plain(answer: Any) -> Iterator[bytes]:
    while piece := answer.read1(PIECE):
        yield piece


def _reaches_back(first: bytes, second: bytes) -> bool:
    """Does what begins with `first` surely hold all messages from `second` on?"""
    if not first:
        return False
    moments = (datetime.fromisoformat(text.decode()) for text in (first, second))
    return next(moments) + _SKEW < next(moments)
