"""The daemon's log format: frames in, lines with cursors out. Pure.

A frame is eight bytes (which stream, how long) and a message: its time, a space, the text. A line
longer than 16 KiB comes in several messages, of which only the last ends with a newline.

A cursor is `<output>,<error>`: for each stream the time of the newest message that was read, and
how many of exactly that time were. Within a stream times never go back, so a message is known or
new by its own time, whatever has been rotated away before it; between the streams they may.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogLine

Message = tuple[bytes, int, bytes]
"""One message of a log: its time, its stream, its text. Plain, because there are millions."""

_NOWHERE = "-"
THE_START = f"{_NOWHERE},{_NOWHERE}"

_HEADER = 8
_stream_and_length_at = struct.Struct(">BxxxI").unpack_from
_OUTPUT, _ERROR = 1, 2
# The stream on which the daemon says what is wrong with the log, without a time.
_TROUBLE = 3
_SECOND = 19
_PLACE = rf"{_NOWHERE}|\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d[^,/]*/\d+"
_CURSOR = re.compile(f"({_PLACE}),({_PLACE})")
# Messages of the two streams are stored out of order by far less than this.
_SKEW = timedelta(seconds=1)


def first_time(frames: bytes) -> bytes:
    """The time of the first message; b"" when there is none."""
    time, space, _ = frames[_HEADER : _HEADER + 64].partition(b" ")
    return time if space and frames[0] != _TROUBLE else b""


def knowing_all_before(time: bytes, cursor: str) -> str:
    """The same cursor, but of a reader who began at that time and has known what was before."""
    known = f"{time.decode()}/0"
    return ",".join(known if place == _NOWHERE else place for place in cursor.split(","))


class Position:
    """How far a log was read."""

    def __init__(self, cursor: str) -> None:
        match = _CURSOR.fullmatch(cursor)
        if not match:
            raise ValidationError(f"cursor {cursor!r} does not belong to this log")
        self._places = {_OUTPUT: _parse(match[1]), _ERROR: _parse(match[2])}
        self._look_around(_OUTPUT)

    def place(self, stream: int) -> tuple[bytes, int]:
        """The newest time that was read of a stream, and how many messages of it."""
        return self._places[stream]

    def advance(self, stream: int, time: bytes) -> str:
        """Count a message as read; the cursor behind it."""
        newest, count = self._places[stream]
        count = count + 1 if time == newest else 1
        self._places[stream] = time, count
        if stream != self._stream:
            self._look_around(stream)
        return f"{self._before}{time.decode()}/{count}{self._after}"

    @property
    def newest(self) -> bytes:
        """The time of the newest message that was read; b"" at the start."""
        return max(time for time, _ in self._places.values())

    @property
    def window(self) -> str:
        """Since when the daemon must be asked, in its own notation."""
        if not self.newest:
            return "0"
        return f"{(_second(self.newest) - _SKEW).timestamp():.0f}"

    def lies_behind(self, first: bytes) -> bool:
        """Does a piece of log that begins at that time surely hold all that is new?"""
        return bool(first and self.newest) and _second(first) + _SKEW < _second(self.newest)

    def _look_around(self, stream: int) -> None:
        """What stands around one stream's place in a cursor: it stays while that stream flows."""
        self._stream = stream
        self._before = "" if stream == _OUTPUT else _print(self._places[_OUTPUT]) + ","
        self._after = "" if stream == _ERROR else "," + _print(self._places[_ERROR])


class FrameParser:
    """Messages from bytes that are cut anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that this piece completes."""
        held = self._held + piece
        begin, size = 0, len(held)
        find = held.find
        messages: list[Message] = []
        while size - begin >= _HEADER:
            stream, length = _stream_and_length_at(held, begin)
            time = begin + _HEADER
            end = time + length
            if end > size:
                break
            space = find(b" ", time, end) if stream != _TROUBLE else time - 1
            messages.append((held[time:space], stream, held[space + 1 : end]))
            begin = end
        self._held = held[begin:]
        return messages


def read_messages(pieces: Iterable[bytes]) -> Iterator[Message]:
    """The messages of a whole log."""
    parser = FrameParser()
    for piece in pieces:
        yield from parser.feed(piece)


class LineReader:
    """Lines from messages, from a cursor on, with the cursor behind each."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        self.position = Position(cursor)
        self._known = {
            stream: self.position.place(stream)
            for stream in (_OUTPUT, _ERROR)
            if self.position.place(stream)[0]
        }
        self._pending: list[Message] = []
        self._size = 0
        # Of lines that were handed out in part: a character may be cut where the part ends.
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}

    def take(self, messages: Iterable[Message], limit: int) -> list[LogLine]:
        """The lines that these messages complete; longer ones than `limit` in parts."""
        lines: list[LogLine] = []
        known, pending, decoders = self._known, self._pending, self._decoders
        advance = self.position.advance
        for message in messages:
            time, stream, text = message
            if known and self._is_known(stream, time):
                continue
            if pending or decoders or stream == _TROUBLE or not text.endswith(b"\n"):
                self._join(message, limit, lines)
                continue
            self.cursor = cursor = advance(stream, time)
            lines.append(LogLine(text[:-1].decode("utf-8", "replace"), cursor))
        return lines

    def flush(self) -> list[LogLine]:
        """What has come of a line that has no end."""
        return [self._line(whole=True)] if self._pending else []

    def _is_known(self, stream: int, time: bytes) -> bool:
        if stream not in self._known:
            return False
        newest, count = self._known[stream]
        if time < newest:
            return True
        if time == newest and count:
            self._known[stream] = newest, count - 1
            return True
        del self._known[stream]  # what comes after a new message is new
        return False

    def _join(self, message: Message, limit: int, lines: list[LogLine]) -> None:
        if self._pending and self._pending[-1][1] != message[1]:
            lines.append(self._line(whole=False))  # the other stream cuts in
        self._pending.append(message)
        self._size += len(message[2])
        if message[2].endswith(b"\n"):
            lines.append(self._line(whole=True))
        elif self._size >= limit:
            lines.append(self._line(whole=False))

    def _line(self, *, whole: bool) -> LogLine:
        messages, self._size = tuple(self._pending), 0
        self._pending.clear()
        stream = messages[0][1]
        if stream != _TROUBLE:
            for time, _, _ in messages:
                self.cursor = self.position.advance(stream, time)
        data = b"".join(text for _, _, text in messages)
        decoder = self._decoders.pop(stream, None) or _new_decoder("replace")
        text = decoder.decode(data.removesuffix(b"\n"), final=whole)
        if not whole:
            self._decoders[stream] = decoder
        return LogLine(text, self.cursor)


_new_decoder = codecs.getincrementaldecoder("utf-8")


def _parse(place: str) -> tuple[bytes, int]:
    if place == _NOWHERE:
        return b"", 0
    time, _, count = place.partition("/")
    return time.encode(), int(count)


def _print(place: tuple[bytes, int]) -> str:
    time, count = place
    return f"{time.decode()}/{count}" if time else _NOWHERE


def _second(time: bytes) -> datetime:
    return datetime.fromisoformat(time[:_SECOND].decode()).replace(tzinfo=timezone.utc)
