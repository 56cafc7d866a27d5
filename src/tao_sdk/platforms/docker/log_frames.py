"""The daemon's log format: frames in, lines with cursors out. Pure.

A frame is eight bytes (which stream, how long) and a message: its time, a space, the text. A line
longer than 16 KiB comes in several messages, of which only the last ends with a newline.

A cursor is `<second>/<count>`: so many messages from the beginning of that second on have been
read. It reaches back to the second before the last one seen, because messages of standard output
and standard error may be stored slightly out of order; the count says exactly which are known.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogLine

Message = tuple[bytes, int, bytes]
"""One message of a log: its time, its stream, its text. Plain, because there are millions."""

_HEADER = 8
_length_at = struct.Struct(">I").unpack_from
_SECOND = 19
_CURSOR = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)/(\d+)")
THE_START = "0001-01-01T00:00:00/0"


def second_of(message: Message) -> bytes:
    return message[0][:_SECOND]


def first_second(frames: bytes) -> bytes:
    """The second of the first message; b"" when there is none."""
    second = frames[_HEADER : _HEADER + _SECOND]
    return second if len(second) == _SECOND else b""


@dataclass
class Position:
    """How far a log was read."""

    anchor: bytes
    """The second before the last one: where a later reader begins."""
    second: bytes
    before: int = 0
    """Messages of the anchor's second, and of any in between."""
    within: int = 0
    """Messages of the last second."""

    def __post_init__(self) -> None:
        self._anchor_text = f"{self.anchor.decode()}/"

    @classmethod
    def parse(cls, cursor: str) -> tuple[Position, int]:
        """A position, and how many messages from its second on are known already."""
        match = _CURSOR.fullmatch(cursor)
        if not match:
            raise ValidationError(f"cursor {cursor!r} does not belong to this log")
        second = match[1].encode()
        return cls(second, second), int(match[2])

    def pass_by(self, second: bytes) -> None:
        """Count a message of that second as read."""
        if second > self.second:
            self.anchor, self.before = self.second, self.within
            self.second, self.within = second, 0
            self._anchor_text = f"{self.anchor.decode()}/"
        if second == self.second:
            self.within += 1
        elif second >= self.anchor:
            self.before += 1

    @property
    def cursor(self) -> str:
        # While there is no second before the last one, `before` is 0.
        return self._anchor_text + str(self.before + self.within)

    @property
    def at_the_start(self) -> bool:
        return THE_START.startswith(self.anchor.decode())

    @property
    def since(self) -> str:
        """The anchor as the daemon wants it."""
        if self.at_the_start:
            return "0"
        moment = datetime.fromisoformat(self.anchor.decode()).replace(tzinfo=timezone.utc)
        return str(int(moment.timestamp()))


class FrameParser:
    """Messages from bytes that are cut anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> Iterator[Message]:
        """The messages that this piece completes. All of them must be taken."""
        held = self._held + piece
        begin, size = 0, len(held)
        while size - begin >= _HEADER:
            end = begin + _HEADER + _length_at(held, begin + 4)[0]
            if end > size:
                break
            time = begin + _HEADER
            space = held.find(b" ", time, end)
            yield held[time:space], held[begin], held[space + 1 : end]
            begin = end
        self._held = held[begin:]


def read_messages(pieces: Iterable[bytes]) -> Iterator[Message]:
    """The messages of a whole log."""
    parser = FrameParser()
    for piece in pieces:
        yield from parser.feed(piece)


class LineReader:
    """Lines from messages, from a cursor on, with the cursor behind each."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        self.position, self._known = Position.parse(cursor)
        self._since = self.position.anchor
        self._pending: list[Message] = []
        self._size = 0

    def take(self, messages: Iterable[Message], limit: int) -> list[LogLine]:
        """The lines that these messages complete; longer ones than `limit` in parts."""
        lines: list[LogLine] = []
        position, since = self.position, self._since
        for message in messages:
            second = message[0][:_SECOND]
            if second < since:
                continue  # a log that we keep has all of them, whatever is asked for
            if self._known:
                self._known -= 1
                position.pass_by(second)
                continue
            text = message[2]
            if self._pending or not text.endswith(b"\n"):
                self._join(message, limit, lines)
                continue
            position.pass_by(second)
            self.cursor = position.cursor
            lines.append(LogLine(text[:-1].decode("utf-8", "replace"), self.cursor))
        return lines

    def flush(self) -> list[LogLine]:
        """What has come of a line that has no end."""
        return [self._line()] if self._pending else []

    def _join(self, message: Message, limit: int, lines: list[LogLine]) -> None:
        if self._pending and self._pending[-1][1] != message[1]:
            lines.append(self._line())  # the other stream cuts in
        self._pending.append(message)
        self._size += len(message[2])
        if message[2].endswith(b"\n") or self._size >= limit:
            lines.append(self._line())

    def _line(self) -> LogLine:
        messages, self._pending, self._size = self._pending, [], 0
        for message in messages:
            self.position.pass_by(second_of(message))
        self.cursor = self.position.cursor
        data = b"".join(message[2] for message in messages)
        return LogLine(data.removesuffix(b"\n").decode("utf-8", "replace"), self.cursor)
