"""Reading the log of a container: streamed, in bounded memory, gone on with by cursor.

A stream stays open between two reads that follow each other, so that a long log is sent once. It
is received by a thread, so that the daemon prepares the next lines while these are read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.docker.log_frames import THE_START, FrameParser, LineReader, Position
from tao_sdk.platforms.docker.log_source import PIECE, LogSource
from tao_sdk.platforms.docker.transport import DockerTransport

# How long a read of a quiet log waits for something to happen. Lines and the end come at once.
_QUIET_SECONDS = 1.0
_MOST_HELD = 1024 * 1024


class LogReader:
    """The logs of one daemon's containers, and of those that are gone but kept."""

    def __init__(self, transport: DockerTransport) -> None:
        self._transport = transport
        self._open: dict[str, _Stream] = {}

    def read(
        self, container: str, kept: Path, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        """The next lines of a container's log."""
        if tail is not None and tail < 0:
            raise ValidationError(f"tail: {tail} is less than 0")
        source = LogSource(self._transport, container, kept)
        if not cursor:
            cursor = THE_START if tail is None else source.tail_cursor(tail)
        stream = self._open.pop(container, None)
        if stream is None or stream.cursor != cursor or (flush and stream.unfinished):
            if stream is not None:
                stream.close()
            stream = _Stream(source, cursor, follow=not flush)
        try:
            chunk = stream.read(limit, flush=flush)
        except BaseException:
            stream.close()
            raise
        if stream.exhausted:
            stream.close()
        else:
            self._open[container] = stream
        return chunk

    def copy(self, container: str) -> Iterator[bytes]:
        """The whole log as the daemon sends it."""
        return LogSource(self._transport, container, None).whole()

    def last(self, container: str, lines: int) -> str:
        """The end of the log as text."""
        messages = LogSource(self._transport, container, None).last(lines)
        text = b"".join(message[2] for message in messages)
        return text.decode("utf-8", "replace")


class _Stream:
    """An open log."""

    def __init__(self, source: LogSource, cursor: str, *, follow: bool) -> None:
        self._lines = LineReader(cursor)
        self._pieces = _Received(source, self._lines.position, follow=follow)
        self._parser = FrameParser()

    @property
    def cursor(self) -> str:
        return self._lines.cursor

    @property
    def unfinished(self) -> bool:
        """Does it wait for what the job has yet to write?"""
        return self._pieces.follows and not self._pieces.complete

    @property
    def exhausted(self) -> bool:
        return self._pieces.complete

    def read(self, limit: int, *, flush: bool) -> LogChunk:
        lines: list[LogLine] = []
        size = 0
        deadline = time.monotonic() + _QUIET_SECONDS
        while size < limit:
            piece = self._pieces.next_piece(0.0 if lines else deadline)
            if piece is None:
                break
            size += len(piece)
            lines += self._lines.take(self._parser.feed(piece), limit)
        if self.exhausted and flush:
            lines += self._lines.flush()
        return LogChunk(tuple(lines), more=size >= limit, cursor=self._lines.cursor)

    def close(self) -> None:
        self._pieces.abandon()


class _Received:
    """Pieces that a thread receives as they come."""

    def __init__(self, source: LogSource, position: Position, *, follow: bool) -> None:
        self.follows = follow
        self._stack = ExitStack()
        pieces = source.pieces_from(position, follow=follow, stack=self._stack)
        self._held = bytearray()
        self._changed = threading.Condition()
        self._over = self._abandoned = False
        self._error: Exception | None = None
        self.complete = False
        threading.Thread(target=self._receive, args=(pieces,), daemon=True).start()

    def next_piece(self, deadline: float) -> bytes | None:
        """What has come, or what comes before the deadline; None when nothing does.

        What a log that is not followed has yet to send is worth waiting for.
        """
        with self._changed:
            wait = max(0.0, deadline - time.monotonic()) if self.follows else None
            self._changed.wait_for(lambda: self._held or self._over, wait)
            if self._held:
                piece = bytes(self._held[:PIECE])
                del self._held[:PIECE]
                self._changed.notify()
                return piece
            self.complete = self._over
        if self.complete and self._error is not None:
            raise BackendUnreachableError(f"the log broke off: {self._error}") from self._error
        return None

    def abandon(self) -> None:
        """Nobody will ask any more."""
        with self._changed:
            self._abandoned = True
            self._changed.notify()

    def _receive(self, pieces: Iterator[bytes]) -> None:
        try:
            for piece in pieces:
                with self._changed:
                    self._held += piece
                    self._changed.notify()
                    self._changed.wait_for(lambda: len(self._held) < _MOST_HELD or self._abandoned)
                    if self._abandoned:
                        return
        except Exception as error:  # noqa: BLE001 - handed to whoever reads
            self._error = error
        finally:
            # Only here: closing an answer while another thread waits for its next bytes blocks.
            self._stack.close()
            with self._changed:
                self._over = True
                self._changed.notify()
