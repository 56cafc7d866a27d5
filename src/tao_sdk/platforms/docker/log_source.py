"""Where the log of a container comes from: the daemon, or what we kept of it."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from tao_sdk.platforms.docker.client import LONG_SECONDS, DaemonError, DockerClient
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
from tao_sdk.platforms.docker.streams import PIECE, FollowedAnswer, WholeAnswer

# The daemon finds the last so many messages quickly. It could also be asked for those since a
# moment, but would leave out what was written after its clock was set back. So a reader that goes
# on looks near the end first, then further back.
_NEAR_THE_END = (4096, 131_072, 4_194_304)
_FIRST_PIECE_SECONDS = 5.0
# A line may be many messages long.
_MESSAGES_PER_LINE, _MORE_MESSAGES = 4, 1000
_AT_ONCE = 1000


Answer = FollowedAnswer | WholeAnswer


class Pieces(Protocol):
    """Frames, cut anywhere."""

    def next_piece(self, seconds: float) -> bytes | None:
        """What comes within so many seconds: None when nothing does, b"" at the end."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


class LogSource:
    """The log of one container."""

    def __init__(self, transport: DockerClient, container: str, kept: Path | None) -> None:
        self._transport = transport
        self._container = container
        self._kept = kept

    def pieces_from(self, position: Position, *, follow: bool) -> tuple[Pieces, Search | None]:
        """Frames of at least everything from a position on, and the search for where it is.

        Goes by the times of messages. If they deceive, the search fails; see `whole_from`.
        """
        if position.at_start:
            return self._open_whole(follow=follow), None
        try:
            for tail in _NEAR_THE_END:
                pieces = self._open(tail=tail, follow=follow)
                piece = self._first_of(pieces)
                if position.lies_behind(first_time(piece)):
                    pieces.put_back(piece)
                    return pieces, Search(position, tail, may_fail=True)
                pieces.close()
        except DaemonError as error:
            if not error.missing:
                raise
        return self.whole_from(position, follow=follow)

    def whole_from(self, position: Position, *, follow: bool) -> tuple[Pieces, Search]:
        """The same, but read from the beginning: right whatever clocks did, and slow."""
        with closing(self._all_of(self._open_whole())) as frames:
            known = count_known(read_messages(frames), position)
        return self._open_whole(follow=follow), Search(position, known, may_fail=False)

    def whole(self) -> Iterator[bytes]:
        """All frames, as the daemon sends them."""
        return self._all_of(self._open())

    def last(self, count: int) -> Iterator[Message]:
        """The last so many messages."""
        return read_messages(self._all_of(self._open(tail=count)))

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
                kept = read_messages(self._all_of(self._kept_pieces()))
                end, whole = _End.read(kept, lines, limit, flush=flush), True
            if end.cursor or whole:
                return end.cursor or THE_START
            asked *= 8

    def _open_whole(self, *, follow: bool = False) -> Pieces:
        try:
            return self._open(follow=follow)
        except DaemonError as error:
            if not error.missing:
                raise
            return self._kept_pieces()

    def _open(self, *, follow: bool = False, tail: int | None = None) -> Answer:
        answer = self._transport.api.open_log(self._container, follow=follow, tail=tail)
        return FollowedAnswer(answer) if follow else WholeAnswer(answer)

    def _first_of(self, pieces: Answer) -> bytes:
        """The first piece; b"" when there is none, or none yet."""
        try:
            with self._transport.reaching():
                return pieces.next_piece(_FIRST_PIECE_SECONDS) or b""
        except BaseException:
            pieces.close()
            raise

    def _all_of(self, pieces: Pieces) -> Generator[bytes, None, None]:
        with closing(pieces), self._transport.reaching():
            while piece := pieces.next_piece(LONG_SECONDS):
                yield piece
            if piece is None:
                raise TimeoutError(f"nothing came of the log for {LONG_SECONDS} s")

    def _kept_pieces(self) -> Pieces:
        if self._kept is None or not self._kept.exists():
            return _FilePieces(io.BytesIO())
        return _FilePieces(self._kept.open("rb"))


class _FilePieces:
    """A log that is a file, and whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def next_piece(self, seconds: float) -> bytes:  # noqa: ARG002 - a file is read at once
        return self._file.read(PIECE)

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        self._file.close()


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
