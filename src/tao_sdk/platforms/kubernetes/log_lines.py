"""The log of a pod as the API returns it: lines that begin with their time. Pure.

The API can return the lines since a second, and a log loses its beginning when the node rotates it.
So a place in a log is: the first line of the second in which the newest line was read, how many
lines were read since then, the newest time, and how many lines have exactly that time. If the log
still has that first line, so many lines are skipped; if not, all that are older than the newest,
and so many of its time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.common.log_lines import whole_characters

_SECOND = 19
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_WHEN = re.compile(_TIME)
_PLACE = re.compile(rf"({_TIME})/(\d{{1,18}})/({_TIME})/(\d{{1,18}})")
_FRACTION = re.compile(r"\.\d+")
_START = "-"


class Place(NamedTuple):
    """How far the log of one pod was read."""

    first: str = ""
    lines: int = 0
    newest: str = ""
    same: int = 0

    def __str__(self) -> str:
        if not self.newest:
            return _START
        return f"{self.first}/{self.lines}/{self.newest}/{self.same}"

    @property
    def since(self) -> str:
        """The second from which the API must return lines; "" for everything."""
        return _FRACTION.sub("", self.first)

    def after(self, time: str) -> Place:
        """The place behind one more line."""
        if not time:
            return self
        if not self.newest or time[:_SECOND] > self.newest[:_SECOND]:
            return Place(time, 1, time, 1)
        if time[:_SECOND] < self.first[:_SECOND]:
            return self  # of an earlier second, written late: the API will not return it again
        if time > self.newest:
            return Place(self.first, self.lines + 1, time, 1)
        same = self.same + (time == self.newest)
        return Place(self.first, self.lines + 1, self.newest, same)


START = Place()


class Position(NamedTuple):
    """How far the logs of a rank's pods were read, which ran one after another."""

    pod: str = ""
    place: Place = START

    def __str__(self) -> str:
        return f"{self.pod}={self.place}" if self.pod else _START

    @classmethod
    def parse(cls, text: str) -> Position:
        """Raises `ValidationError`."""
        if text in ("", _START):
            return cls()
        pod, _, rest = text.partition("=")
        match = _PLACE.fullmatch(rest)
        if not pod or (match is None and rest != _START):
            raise ValidationError(f"cursor {text!r} does not belong to this log")
        if match is None:
            return cls(pod)
        return cls(pod, Place(match[1], int(match[2]), match[3], int(match[4])))


class TimedLine(NamedTuple):
    """One line and its time; `whole` is False for a piece of a line that is too long."""

    time: str
    text: str
    whole: bool = True


class TimedLines:
    """Lines from bytes that are cut anywhere, from a place on."""

    def __init__(self, place: Place, limit: int) -> None:
        self._known = place
        self._begun = not place.newest
        self._skip = place.lines
        self._same = 0
        """How many lines of the newest time are left to skip, in a log that was cut off."""
        self._cut_off = False
        self._limit = limit
        self._held = b""
        self._inside: tuple[str, bool] | None = None
        """The time of a line of which a part has come, and whether it is new."""

    def feed(self, piece: bytes) -> list[TimedLine]:
        """The lines that this piece completes."""
        *whole, self._held = (self._held + piece).split(b"\n")
        found = [self._take(data, whole=True) for data in whole]
        while len(self._held) >= self._limit:
            part = whole_characters(self._held[: self._limit])
            found.append(self._take(part, whole=False))
            self._held = self._held[len(part) :]
        return [line for line in found if line is not None]

    def flush(self) -> list[TimedLine]:
        """What has come of a line that has no end."""
        held, self._held = self._held, b""
        line = self._take(held, whole=True) if held else None
        return [] if line is None else [line]

    def _take(self, data: bytes, *, whole: bool) -> TimedLine | None:
        if self._inside is None:
            stamp, _, rest = data.partition(b" ")
            time = stamp.decode("utf-8", "replace")
            if _WHEN.fullmatch(time):
                data = rest
                self._inside = time, self._is_new(time)
            else:
                # A message of the node (that the file is gone, say) has no place in the log.
                self._inside = "", True
        time, new = self._inside
        if whole:
            self._inside = None
        return TimedLine(time, data.decode("utf-8", "replace"), whole) if new else None

    def _is_new(self, time: str) -> bool:
        known = self._known
        if not self._begun:
            self._begun = True
            self._cut_off = time != known.first
            self._same = known.same
        if self._cut_off:
            if time == known.newest and self._same:
                self._same -= 1
                return False
            return time >= known.newest
        if self._skip:
            self._skip -= 1
            return False
        return True
