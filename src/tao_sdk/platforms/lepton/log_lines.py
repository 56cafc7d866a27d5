"""Lines of a log as the server keeps them: a time in nanoseconds and a text. Pure.

A place in a log is the time of the newest line that was read, and how many lines of exactly that
time were. Lines that were read as they were written have no time: a place then says how many of
them came after that one. The last line of all is the record of how the command ended; it is not
shown, nor is the empty line that keeps it from what was printed last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.result_record import told_record

NOWHERE = "-"
_PLACE = re.compile(r"(\d+)\.(\d+)(!?)(?:~(\d+))?(?:\+(\d+))?")


class Place(NamedTuple):
    """How far the log of one worker was read."""

    time: int = 0
    same: int = 0
    done: bool = False
    """The record was read: nothing comes after it."""
    lines: int = 0
    """How many lines there are before; -1 where nobody counted."""
    extra: int = 0
    """How many of these came after the one of that time."""

    def __str__(self) -> str:
        if not self.time and not self.extra:
            return NOWHERE
        done = "!" if self.done else ""
        lines = f"~{self.lines}" if self.lines >= 0 else ""
        extra = f"+{self.extra}" if self.extra else ""
        return f"{self.time}.{self.same}{done}{lines}{extra}"

    def after(self, time: int, *, done: bool = False) -> Place:
        """Behind one more line of the kept log."""
        same = self.same + 1 if time == self.time else 1
        # One that was read as it was written is not counted again.
        extra = max(0, self.extra - 1)
        lines = self.lines + 1 if self.lines >= 0 and not self.extra else self.lines
        return Place(time, same, self.done or done, lines, extra)

    def after_live(self, *, done: bool = False) -> Place:
        """Behind one more line that was read as it was written."""
        return self._replace(lines=self.lines + 1, extra=self.extra + 1, done=self.done or done)


START = Place()
UNCOUNTED = Place(lines=-1)


class Line(NamedTuple):
    """One line of a log."""

    time: int
    text: str


class Shown(NamedTuple):
    """A line that may be shown, and the place behind it and what is hidden after it."""

    time: int
    text: str
    place: Place


def parse_cursor(cursor: str) -> dict[int, Place]:
    """The places in the logs of several workers, by rank."""
    places: dict[int, Place] = {}
    for told in cursor.split(",") if cursor not in ("", NOWHERE) else ():
        rank, _, text = told.rpartition("=")
        match = _PLACE.fullmatch(text)
        if not (rank or "0").isdecimal() or (match is None and text != NOWHERE):
            raise ValidationError(f"cursor {cursor!r} does not belong to this log")
        places[int(rank or 0)] = _parse_place(match) if match else START
    return places


def _parse_place(match: re.Match[str]) -> Place:
    lines = int(match[4]) if match[4] else -1
    return Place(int(match[1]), int(match[2]), bool(match[3]), lines, int(match[5] or 0))


def print_cursor(places: Mapping[int, Place]) -> str:
    if not places:
        return NOWHERE
    if list(places) == [0]:
        return str(places[0])
    return ",".join(f"{rank}={place}" for rank, place in places.items())


def parse_answer(answer: Any, *, backward: bool) -> list[Line]:
    """The lines of an answer, oldest first; of one time in the order in which they were written.

    An answer that goes `backward` has them the other way round. `ValueError`: it is none of a log.
    """
    found = []
    try:
        for stream in (answer.get("data") or {}).get("result") or ():
            for time, text in (stream.get("values") or ())[:: -1 if backward else 1]:
                found.append(Line(int(time), str(text).removesuffix("\n")))
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"not the lines of a log: {error!r}") from error
    return sorted(found, key=lambda line: line.time)


def beyond(lines: Sequence[Line], place: Place) -> list[Line]:
    """Those of the lines since a place that were not read."""
    left = place.same
    new = []
    for line in lines:
        if line.time < place.time:
            continue
        if line.time == place.time and left:
            left -= 1
            continue
        new.append(line)
    return new


class Read(NamedTuple):
    """What of some lines is shown, and how far reading them has come."""

    shown: list[Shown]
    end: Place


def read_kept(lines: Sequence[Line], place: Place, job_id: str, *, all_of_it: bool) -> Read:
    """Lines of the kept log, from a place on.

    An empty line at the end is left for later, unless it is `all_of_it`: a record may follow.
    """
    if lines and not lines[-1].text and not all_of_it:
        lines = lines[:-1]
    shown = []
    for line, hidden, done in _told([line.text for line in lines], job_id):
        place = place.after(lines[line].time, done=done)
        if not hidden:
            shown.append(Shown(lines[line].time, lines[line].text, place))
    return _behind(shown, place)


def read_live(texts: Sequence[str], place: Place, job_id: str) -> Read:
    """Lines that were read as they were written, from a place on."""
    shown = []
    for line, hidden, done in _told(texts, job_id):
        place = place.after_live(done=done)
        if not hidden:
            shown.append(Shown(0, texts[line], place))
    return _behind(shown, place)


def _told(texts: Sequence[str], job_id: str) -> Iterator[tuple[int, bool, bool]]:
    """Of each line: its number, whether it is hidden, and whether it is a record."""
    records = [told_record(text, job_id) is not None for text in texts]
    for number, text in enumerate(texts):
        before_record = not text and records[number + 1 : number + 2] == [True]
        yield number, records[number] or before_record, records[number]


def _behind(shown: list[Shown], place: Place) -> Read:
    """Whoever has seen the last line shown has come behind what is hidden after it."""
    if shown:
        shown[-1] = shown[-1]._replace(place=place)
    return Read(shown, place)
