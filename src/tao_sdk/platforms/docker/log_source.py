"""Where the log of a container comes from: the daemon, or what we kept of it."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.log_frames import (
    THE_START,
    LineReader,
    Message,
    Position,
    Search,
    count_known,
    first_time,
    read_messages,
)
from tao_sdk.platforms.docker.streams import StreamedAnswer

# The daemon finds the last so many messages quickly. It could also be asked for those since a
# moment, but would leave out what was written after its clock was set back. So a reader that goes
# on looks near the end first, then further back.
_NEAR_THE_END = (4096, 131_072, 4_194_304)
_PIECE = 64 * 1024
# A line may be many messages long.
_MESSAGES_PER_LINE, _MORE_MESSAGES = 4, 1000
_AT_ONCE = 1000


class FrameSource:
    """The frames of one container's log, for one reader. Any thread may close it."""

    def __init__(self, transport: DockerClient, container: str, kept: Path | None) -> None:
        self._transport = transport
        self._container = container
        self._kept = kept
        self._current: StreamedAnswer | KeptFrames | None = None
        self.closed = False

    def begin(self, position: Position, *, follow: bool) -> Search | None:
        """Open at least everything from a position on; the search for where that is.

        Goes by the times of messages. If they deceive, the search fails; see `begin_again`.
        """
        if position.at_start:
            self._open_whole(follow=follow)
            return None
        try:
            for tail in _NEAR_THE_END:
                frames = self._open(tail=tail, follow=follow)
                piece = self.next_piece()
                if position.lies_behind(first_time(piece)):
                    frames.put_back(piece)
                    return Search(position, tail, may_fail=True)
        except DaemonError as error:
            if not error.missing:
                raise
        return self.begin_again(position, follow=follow)

    def begin_again(self, position: Position, *, follow: bool) -> Search:
        """The same, but read from the beginning: right whatever clocks did, and slow."""
        self._open_whole()
        known = count_known(read_messages(self._pieces()), position)
        self._open_whole(follow=follow)
        return Search(position, known, may_fail=False)

    def next_piece(self) -> bytes:
        """The next piece, cut anywhere; b"" at the end."""
        assert self._current is not None, "nothing was opened"  # noqa: S101 - a programming error
        with self._transport.reaching():
            return self._current.next_piece() or b""

    def close(self) -> None:
        """End it: a thread that waits for a piece comes back."""
        self.closed = True
        self._close_current()

    def whole(self) -> Iterator[bytes]:
        """All frames, as the daemon sends them."""
        self._open()
        return self._pieces()

    def last(self, count: int) -> Iterator[Message]:
        """The last so many messages."""
        self._open(tail=count)
        return read_messages(self._pieces())

    def tail_cursor(self, lines: int, *, limit: int, flush: bool) -> str:
        """The cursor before the last so many lines; with `flush` an unfinished one is a line."""
        asked = _MESSAGES_PER_LINE * lines + _MORE_MESSAGES
        while True:
            try:
                end = _End.read(self.last(asked), lines, limit, flush=flush)
                whole = end.messages < asked
            except DaemonError as error:
                if not error.missing:
                    raise
                self._open_kept()
                end = _End.read(read_messages(self._pieces()), lines, limit, flush=flush)
                whole = True
            if end.cursor or whole:
                return end.cursor or THE_START
            asked *= 8

    def _open_whole(self, *, follow: bool = False) -> None:
        try:
            self._open(follow=follow)
        except DaemonError as error:
            if not error.missing:
                raise
            self._open_kept()

    def _open(self, *, follow: bool = False, tail: int | None = None) -> StreamedAnswer:
        answer = self._transport.api.open_log(self._container, follow=follow, tail=tail)
        return self._use(StreamedAnswer(answer))

    def _open_kept(self) -> None:
        there = self._kept is not None and self._kept.exists()
        self._use(KeptFrames(self._kept.open("rb") if self._kept and there else io.BytesIO()))

    def _use(self, frames: _Frames) -> _Frames:
        self._close_current()
        self._current = frames
        if self.closed:  # meanwhile, by another thread
            frames.close()
        return frames

    def _close_current(self) -> None:
        if self._current is not None:
            self._current.close()

    def _pieces(self) -> Generator[bytes, None, None]:
        frames = self._current
        try:
            while piece := self.next_piece():
                yield piece
        finally:
            if frames is not None:
                frames.close()


class KeptFrames:
    """A log that is a file, and whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def next_piece(self) -> bytes:
        return b"" if self._file.closed else self._file.read(_PIECE)

    def close(self) -> None:
        self._file.close()


_Frames = TypeVar("_Frames", StreamedAnswer, KeptFrames)


class _End(NamedTuple):
    """The end of a log."""

    messages: int
    cursor: str
    """Where its last lines begin; "" when it has no more lines than those."""

    @classmethod
    def read(cls, messages: Iterator[Message], lines: int, limit: int, *, flush: bool) -> _End:
        reader = LineReader(THE_START)
        behind: deque[str] = deque(maxlen=lines + 1)
        count = 0
        while some := list(islice(messages, _AT_ONCE)):
            count += len(some)
            behind.extend(line.cursor for line in reader.take(some, limit))
        if flush:
            behind.extend(line.cursor for line in reader.flush())
        return cls(count, behind[0] if len(behind) > lines else "")
