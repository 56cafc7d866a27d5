"""Reading the log of a container: streamed, in bounded memory, gone on with by cursor.

A stream stays open between two reads that follow each other, so that a long log is sent once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.docker.client import LONG_SECONDS, DockerClient
from tao_sdk.platforms.docker.log_frames import THE_START, FrameParser, LineReader
from tao_sdk.platforms.docker.log_source import LogSource

# How long a read of a quiet log waits for something to happen. Lines and the end come at once.
_QUIET_SECONDS = 5.0


class LogReader:
    """The logs of one daemon's containers, and of those that are gone but kept."""

    def __init__(self, transport: DockerClient) -> None:
        self._transport = transport
        # Those that no read is busy with. Several readers of one log have a stream each.
        self._open: list[_Stream] = []

    def read(
        self, container: str, kept: Path, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        """The next lines of a container's log."""
        if tail is not None and tail < 0:
            raise ValidationError(f"tail: {tail} is less than 0")
        source = LogSource(self._transport, container, kept)
        if not cursor and tail is None:
            cursor = THE_START
        elif not cursor:
            cursor = source.tail_cursor(tail or 0, limit=limit, flush=flush)
        stream = self._take(container, cursor)
        if stream is None or not stream.serves(flush=flush):
            if stream is not None:
                stream.close()
            stream = _Stream(self._transport, source, container, cursor, follow=not flush)
        try:
            chunk = stream.read(limit, flush=flush)
        except BaseException:
            stream.close()
            raise
        if stream.spent:
            stream.close()
        else:
            self._open.append(stream)
        return chunk

    def release(self, container: str, cursor: str) -> None:
        """Close the stream that was kept open for the next read from there."""
        if stream := self._take(container, cursor):
            stream.close()

    def close(self) -> None:
        """Let go of everything that is open."""
        while self._open:
            self._open.pop().close()

    def copy(self, container: str) -> Iterator[bytes]:
        """The whole log as the daemon sends it."""
        return LogSource(self._transport, container, None).whole()

    def last(self, container: str, lines: int) -> str:
        """The end of the log as text."""
        messages = LogSource(self._transport, container, None).last(lines)
        text = b"".join(message[2] for message in messages)
        return text.decode("utf-8", "replace")

    def _take(self, container: str, cursor: str) -> _Stream | None:
        for stream in tuple(self._open):
            if stream.container == container and stream.cursor == cursor:
                with suppress(ValueError):  # another thread may have been faster
                    self._open.remove(stream)
                    return stream
        return None


class _Stream:
    """An open log."""

    def __init__(
        self,
        transport: DockerClient,
        source: LogSource,
        container: str,
        cursor: str,
        *,
        follow: bool,
    ) -> None:
        self.container = container
        self._transport = transport
        self._lines = LineReader(cursor)
        self._parser = FrameParser()
        self._source = source
        self._pieces, self._search = source.pieces_from(self._lines.position, follow=follow)
        self._follows = follow
        self._ended = False
        self._heard = time.monotonic()

    @property
    def cursor(self) -> str:
        return self._lines.cursor

    def serves(self, *, flush: bool) -> bool:
        """Who wants the log as it is now does not wait for what is yet to come."""
        return not self._pieces.closed and self._follows != flush

    @property
    def spent(self) -> bool:
        """At its end, or silent for so long that the connection may be dead."""
        return self._ended or time.monotonic() - self._heard > LONG_SECONDS

    def read(self, limit: int, *, flush: bool) -> LogChunk:
        lines: list[LogLine] = []
        size = 0
        while size < limit:
            piece = self._next_piece(nothing_yet=not lines)
            messages = self._parser.feed(piece or b"")
            if self._search is not None:
                messages = self._search.behind(messages, at_end=not piece)
                if self._search.failed:
                    self._begin_again()
                    continue
            if not piece:
                self._ended = piece is not None
                break
            self._heard = time.monotonic()
            size += len(piece)
            lines += self._lines.take(messages, limit)
        if self._ended and flush:
            lines += self._lines.flush()
        # Where lines come, others follow; the reader waits for them here.
        more = not self._ended and size > 0
        return LogChunk(tuple(lines), more=more, cursor=self._lines.cursor)

    def _begin_again(self) -> None:
        """The daemon's clock was set back: its times do not say what is new."""
        self._pieces.close()
        self._parser = FrameParser()
        self._pieces, self._search = self._source.whole_from(
            self._lines.position, follow=self._follows
        )

    def _next_piece(self, *, nothing_yet: bool) -> bytes | None:
        with self._transport.reaching():
            if self._follows:
                return self._pieces.next_piece(_QUIET_SECONDS if nothing_yet else 0.0)
            piece = self._pieces.next_piece(LONG_SECONDS)
        if piece is None:
            raise BackendUnreachableError(f"nothing came of the log for {LONG_SECONDS} s")
        return piece

    def close(self) -> None:
        self._pieces.close()
