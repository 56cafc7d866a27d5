"""Reading the log of a container: streamed, in bounded memory, gone on with by cursor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.log_frames import THE_START, FrameParser, LineReader, Search
from tao_sdk.platforms.docker.log_source import FrameSource

_CHUNK_BYTES = 256 * 1024
_NOT_IMPLEMENTED = 501


class ContainerLog:
    """The log of a container, or what was kept of it, as a source of its job's log."""

    rank = 0
    ends_with_job = True

    def __init__(self, transport: DockerClient, container: str, kept: Path | None = None) -> None:
        self._transport = transport
        self._container = container
        self._kept = kept

    def open(self, position: str, *, tail: int | None, follow: bool) -> ContainerLogReader:
        return ContainerLogReader(self._frames(), position, tail=tail, follow=follow)

    def copy(self) -> Iterator[bytes]:
        """The whole log as the daemon sends it."""
        return self._frames().whole()

    def last(self, lines: int) -> str:
        """The end of the log as text."""
        text = b"".join(message[2] for message in self._frames().last(lines))
        return text.decode("utf-8", "replace")

    def _frames(self) -> FrameSource:
        return FrameSource(self._transport, self._container, self._kept)


class ContainerLogReader(Iterator[LogChunk]):
    """One read of a container's log."""

    def __init__(
        self, frames: FrameSource, position: str, *, tail: int | None, follow: bool
    ) -> None:
        self._frames = frames
        self._position = position
        self._tail = tail
        self._follow = follow
        self._lines: LineReader | None = None
        self._parser = FrameParser()
        self._search: Search | None = None
        self._at_end = False

    def __next__(self) -> LogChunk:
        try:
            return self._next_chunk()
        except BackendUnreachableError:
            if self._frames.closed:
                raise StopIteration from None
            raise
        except DaemonError as error:
            if error.status == _NOT_IMPLEMENTED:  # its logging driver keeps nothing to read
                raise
            raise BackendUnreachableError(f"the Docker daemon refuses the log: {error}") from error

    def close(self) -> None:
        self._frames.close()

    def _next_chunk(self) -> LogChunk:
        if not self._position and self._tail is not None:
            self._position = self._frames.tail_cursor(
                self._tail, limit=_CHUNK_BYTES, flush=not self._follow
            )
            return LogChunk((), more=True, cursor=self._position)
        if self._lines is None:
            self._lines = LineReader(self._position or THE_START)
            self._search = self._frames.begin(self._lines.position, follow=self._follow)
        while not self._at_end:
            if lines := self._read_lines(self._lines):
                return LogChunk(tuple(lines), more=True, cursor=self._lines.cursor)
        raise StopIteration

    def _read_lines(self, reader: LineReader) -> list[LogLine]:
        """The lines of the next piece, which may complete none."""
        piece = self._frames.next_piece()
        messages = self._parser.feed(piece)
        if self._search is not None:
            messages = self._search.behind(messages, at_end=not piece)
            if self._search.failed:
                # The daemon's clock was set back: its times do not say what is new.
                self._parser = FrameParser()
                self._search = self._frames.begin_again(reader.position, follow=self._follow)
                return []
        lines = reader.take(messages, _CHUNK_BYTES)
        if not piece:
            self._at_end = True
            if not (self._follow or self._frames.closed):
                lines += reader.flush()
        return lines
