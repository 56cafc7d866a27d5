"""A pod's log as the API tells it: lines that begin with their time. Pure.

The API can be asked for the lines since a second, and a log is cut off at its beginning when the
node rotates it. So a place in a log is: the first line of the second in which the newest line was
read, how many lines since then were, the newest time, and how many lines were of exactly that
time. If the log still has that first line, so many are skipped; if it was cut off, all that are
older than the newest, and so many of its time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.common.log_lines import whole_characters

_SECOND = 19
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_WHEN = re.compile(_TIME)
_PLACE = re.compile(rf"({_TIME})/(\d+)/({_TIME})/(\d+)")
_FRACTION = re.compile(r"\.\d+")
NOWHERE = "-"


class Place(NamedTuple):
    """How far the log of one pod was read."""

    first: str = ""
    lines: int = 0
    newest: str = ""
    same: int = 0

    def __str__(self) -> str:
        if not self.newest:
            return NOWHERE
        return f"{self.first}/{self.lines}/{self.newest}/{self.same}"

    @property
    def since(self) -> str:
        """From when on the API must be asked; "" for everything."""
        return _FRACTION.sub("", self.first)

    def after(self, time: str) -> Place:
        """Behind one more line."""
        if not time:
            return self
        if not self.newest or time[:_SECOND] > self.newest[:_SECOND]:
            return Place(time, 1, time, 1)
        if time[:_SECOND] < self.first[:_SECOND]:
            return self  # of an earlier second, written late: the API will not tell it again
        if time > self.newest:
            return Place(self.first, self.lines + 1, time, 1)
        same = self.same + (time == self.newest)
        return Place(self.first, self.lines + 1, self.newest, same)


START = Place()


def parse_cursor(cursor: str) -> dict[str, Place]:
    """The places in the logs of several pods, by the pods' names."""
    places: dict[str, Place] = {}
    for part in cursor.split(",") if cursor not in ("", NOWHERE) else ():
        pod, _, text = part.partition("=")
        match = _PLACE.fullmatch(text)
        if not pod or (match is None and text != NOWHERE):
            raise ValidationError(f"cursor {cursor!r} does not belong to this log")
        places[pod] = Place(match[1], int(match[2]), match[3], int(match[4])) if match else START
    return places


def print_cursor(places: dict[str, Place]) -> str:
    return ",".join(f"{pod}={place}" for pod, place in places.items()) or NOWHERE


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
                # The node's own words: that the file is gone, say. No place in the log.
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
