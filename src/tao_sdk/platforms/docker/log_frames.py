"""The daemon's log format: frames in, lines with cursors out. Pure.

A frame is eight bytes (which stream, how long) and a message: its time, a space, the text. A line
longer than 16 KiB comes in several messages, of which only the last ends with a newline.

A cursor is `<stream>:<output>,<error>`: which stream the message was of that was read last, and for
each stream the time of its last message and how many of exactly that time were read. The daemon
keeps messages in one order. So what comes after the last one is new and all before it is known,
whatever was rotated away, and whatever the clock did: that may be set back.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from tao_sdk.errors import PlatformError, ValidationError
from tao_sdk.platforms.backend import LogLine

Message = tuple[bytes, int, bytes]
"""One message of a log: its time, its stream, its text. Plain, because there are millions."""

_NOWHERE = "-"
THE_START = f"{_NOWHERE}:{_NOWHERE},{_NOWHERE}"

_HEADER = 8
_stream_and_length_at = struct.Struct(">BxxxI").unpack_from
_OUTPUT, _ERROR = 1, 2
_LONGEST_MESSAGE = 16 << 20
_NONSENSE = "the Docker daemon sent a log whose parts make no sense"
# The stream on which the daemon says what is wrong with the log, without a time.
_TROUBLE = 3
_STREAMS = (_OUTPUT, _ERROR, _TROUBLE)
_PLACE = rf"{_NOWHERE}|\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:Z+-]*/\d{{1,18}}"
_CURSOR = re.compile(f"([12]):({_PLACE}),({_PLACE})", re.ASCII)
_SECOND = 19
_FRACTION = re.compile(rb"\.(\d{1,6})")
# Messages of the two streams are stored out of order by less than this. Those of the same time are
# all in a piece that begins so much earlier: counting them is right.
_SKEW = timedelta(seconds=0.05)


def first_time(frames: bytes) -> bytes:
    """The time of the first message; b"" when there is none."""
    time, space, _ = frames[_HEADER : _HEADER + 64].partition(b" ")
    return time if space and frames[0] != _TROUBLE else b""


class Position:
    """How far a log was read."""

    def __init__(self, cursor: str) -> None:
        self._places = {_OUTPUT: _parse(_NOWHERE), _ERROR: _parse(_NOWHERE)}
        self._last = 0
        if cursor != THE_START:
            match = _CURSOR.fullmatch(cursor)
            if not match or match[1 + int(match[1])] == _NOWHERE:
                raise ValidationError(f"cursor {cursor!r} does not belong to this log")
            self._places = {_OUTPUT: _parse(match[2]), _ERROR: _parse(match[3])}
            self._look_around(int(match[1]))

    @property
    def last(self) -> tuple[bytes, int, int]:
        """The message that was read last: its time, its stream, and the number among equals."""
        time, count = self._places[self._last]
        return time, self._last, count

    @property
    def at_start(self) -> bool:
        return not self._last

    def advance(self, stream: int, time: bytes) -> str:
        """Count a message as read; the cursor behind it."""
        newest, count = self._places[stream]
        count = count + 1 if time == newest else 1
        self._places[stream] = time, count
        if stream != self._last:
            self._look_around(stream)
        return f"{self._before}{time.decode()}/{count}{self._after}"

    def lies_behind(self, first: bytes) -> bool:
        """Is what was read last in a piece of log that begins at that time, if times are right?"""
        return bool(first) and _moment(first) + _SKEW < _moment(self.last[0])

    def _look_around(self, stream: int) -> None:
        """What stands around one stream's place in a cursor: it stays while that stream flows."""
        self._last = stream
        other = "" if stream == _OUTPUT else _print(self._places[_OUTPUT]) + ","
        self._before = f"{stream}:{other}"
        self._after = "" if stream == _ERROR else "," + _print(self._places[_ERROR])


class Search:
    """For the message that was read last, among those that come before it."""

    def __init__(self, position: Position, within: int, *, may_fail: bool) -> None:
        """It is among the first `within` messages; if it may fail, this is only believed so."""
        self._time, self._stream, self._left = position.last
        self._unseen = within
        self._may_fail = may_fail
        self.over = not within
        self.failed = False

    def behind(self, messages: list[Message], *, at_end: bool) -> list[Message]:
        """Those of the messages that are new; `at_end` says that no others follow for now."""
        if self.over:
            return messages
        for index, (time, stream, _) in enumerate(messages):
            self._unseen -= 1
            if stream == self._stream and time == self._time:
                self._left -= 1
            if not self._left or not (self._unseen or self._may_fail):
                self.over = True
                return messages[index + 1 :]
            too_late = stream == _TROUBLE or (stream == self._stream and time > self._time)
            if self._may_fail and (too_late or not self._unseen):
                self.failed = True
                return []
        self.failed = self._may_fail and at_end
        return []


def count_known(messages: Iterable[Message], position: Position) -> int:
    """How many messages of a whole log are known; 0 if what was read last is not in it any more.

    Where the daemon cannot read its own log, what comes before counts as known.
    """
    last_time, last_stream, left = position.last
    known = 0
    for count, (time, stream, _) in enumerate(messages, start=1):
        if stream == _TROUBLE:
            return known or count - 1
        if stream == last_stream and time == last_time:
            known, left = count, left - 1  # some of the same time may have been rotated away
            if not left:
                break
    return known


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
            if stream not in _STREAMS or length > _LONGEST_MESSAGE:
                raise PlatformError(_NONSENSE)
            time = begin + _HEADER
            end = time + length
            if end > size:
                break
            space = find(b" ", time, end) if stream != _TROUBLE else time - 1
            moment = held[time:space]
            if not moment.isascii():
                raise PlatformError(_NONSENSE)
            messages.append((moment, stream, held[space + 1 : end]))
            begin = end
        self._held = held[begin:]
        return messages


def read_messages(pieces: Iterable[bytes]) -> Iterator[Message]:
    """The messages of a whole log."""
    parser = FrameParser()
    for piece in pieces:
        yield from parser.feed(piece)


class LineReader:
    """Lines from messages that follow a cursor, with the cursor behind each."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        self.position = Position(cursor)
        self._pending: list[Message] = []
        self._size = 0
        # Of lines that were handed out in part: a character may be cut where the part ends.
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}

    def take(self, messages: Iterable[Message], limit: int) -> list[LogLine]:
        """The lines that these messages complete; longer ones than `limit` in parts."""
        lines: list[LogLine] = []
        pending, decoders = self._pending, self._decoders
        advance = self.position.advance
        for message in messages:
            time, stream, text = message
            if pending or decoders or stream == _TROUBLE or not text.endswith(b"\n"):
                self._join(message, limit, lines)
                continue
            self.cursor = cursor = advance(stream, time)
            lines.append(LogLine(text[:-1].decode("utf-8", "replace"), cursor))
        return lines

    def flush(self) -> list[LogLine]:
        """What has come of a line that has no end."""
        return [self._line(whole=True)] if self._pending else []

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


def _moment(time: bytes) -> datetime:
    second = datetime.fromisoformat(time[:_SECOND].decode())
    fraction = _FRACTION.match(time, _SECOND)
    return second.replace(microsecond=int(fraction[1].ljust(6, b"0"))) if fraction else second
