"""Lines of a worker's log and positions in it. Pure.

Lepton keeps lines with a time in nanoseconds; lines of a stream come without one. So a position is
the time of the newest kept line that was read, how many lines of exactly that time were read, and
how many lines of a stream came after it. The last line of a log is the record of how the command
ended. It is hidden, and so is the empty line that separates it from the command's own output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogLine
from tao_sdk.result_record import told_record

_START = "-"
_POSITION = re.compile(r"(\d{1,20})\.(\d{1,20})(!?)(?:~(\d{1,20}))?(?:\+(\d{1,20}))?")


class Line(NamedTuple):
    """One line; `time` is 0 if it came by a stream."""

    time: int
    text: str


class Position(NamedTuple):
    """How far the log of one worker was read."""

    time: int = 0
    same: int = 0
    """Lines of exactly that time."""
    lines: int = 0
    """Lines before this position; -1 if they were not counted."""
    extra: int = 0
    """How many of them came by a stream, after the line of that time."""
    done: bool = False
    """Whether the record was read: nothing follows it."""

    def __str__(self) -> str:
        if not self.time and not self.extra:
            return _START
        done = "!" if self.done else ""
        lines = f"~{self.lines}" if self.lines >= 0 else ""
        extra = f"+{self.extra}" if self.extra else ""
        return f"{self.time}.{self.same}{done}{lines}{extra}"

    @classmethod
    def parse(cls, cursor: str) -> Position:
        if cursor in ("", _START):
            return cls()
        match = _POSITION.fullmatch(cursor)
        if match is None:
            raise ValidationError(f"cursor {cursor!r} does not belong to this log")
        lines = int(match[4]) if match[4] else -1
        return cls(int(match[1]), int(match[2]), lines, int(match[5] or 0), bool(match[3]))

    def after(self, line: Line, *, is_record: bool = False) -> Position:
        """Behind one more line."""
        done = self.done or is_record
        more = self.lines + 1 if self.lines >= 0 else self.lines
        if not line.time:
            return self._replace(lines=more, extra=self.extra + 1, done=done)
        same = self.same + 1 if line.time == self.time else 1
        if self.extra:  # it was read and counted when it came by the stream
            return Position(line.time, same, self.lines, self.extra - 1, done)
        return Position(line.time, same, more, 0, done)

    def unread(self, lines: Sequence[Line]) -> list[Line]:
        """Those of the kept lines since this time that were not read as kept lines."""
        new = [line for line in lines if line.time >= self.time]
        read = min(self.same, sum(line.time == self.time for line in new))
        return new[read:]


UNCOUNTED = Position(lines=-1)


def parse_answer(answer: Any, *, backward: bool) -> list[Line]:
    """The kept lines of an answer, oldest first; those of one time in the order of writing.

    A `backward` answer has them in the opposite order. Raises `ValueError` for any other answer.
    """
    found = []
    try:
        for stream in (answer.get("data") or {}).get("result") or ():
            for time, text in (stream.get("values") or ())[:: -1 if backward else 1]:
                found.append(Line(int(time), str(text).removesuffix("\n")))
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"not the lines of a log: {error!r}") from error
    return sorted(found, key=lambda line: line.time)


def settled(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines without an empty one at the end: the record may follow it, and hides it."""
    return lines[:-1] if lines and not lines[-1].text else lines


def read_lines(
    lines: Sequence[Line], position: Position, job_id: str
) -> tuple[list[LogLine], Position]:
    """The visible ones of the lines behind a position, and the position behind them all."""
    records = [told_record(line.text, job_id) is not None for line in lines]
    shown = []
    for number, line in enumerate(lines):
        position = position.after(line, is_record=records[number])
        separates = not line.text and records[number + 1 : number + 2] == [True]
        if not (records[number] or separates):
            shown.append(LogLine(line.text, str(position)))
    if shown:  # the reader of the last one is also behind what is hidden after it
        shown[-1] = shown[-1]._replace(cursor=str(position))
    return shown, position
