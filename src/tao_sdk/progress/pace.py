"""How long it will still take: by the tool's own words, else by how fast the fraction grows."""

from __future__ import annotations

from collections import deque

_BUCKET_SECONDS = 1.0
"""Of the points within a second only the last is kept: lines read in one go tell no speed."""
_WINDOW = 60
_FEWEST_POINTS = 3
"""Two points make a line through any warm-up; below three we say nothing."""


class Estimate:
    """The tool knows best; what it said runs down with the clock until it says something new."""

    def __init__(self) -> None:
        self._told: tuple[float, float | None] | None = None
        """Seconds left, and when that was said."""
        self._now: float | None = None
        self._pace = Pace()

    def note(self, told: float | None, fraction: float | None, at: float | None) -> None:
        self._now = at
        if told is not None:
            self._told = (told, at)
        if at is not None and fraction is not None:
            self._pace.add(at, fraction)

    def seconds_left(self) -> float | None:
        if self._told is not None:
            seconds, told_at = self._told
            if self._now is not None and told_at is not None:
                seconds -= self._now - told_at
            if seconds >= 0:
                return seconds
        return self._pace.seconds_left()


class Pace:
    """The mean speed over the last points: smooth, and free of what was long ago."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=_WINDOW)

    def add(self, at: float, fraction: float) -> None:
        if self._points:
            last_at, last_fraction = self._points[-1]
            if at < last_at or fraction < last_fraction:
                self._points.clear()  # another clock, or another start: nothing to compare with
            elif at // _BUCKET_SECONDS == last_at // _BUCKET_SECONDS:
                self._points.pop()
        self._points.append((at, fraction))

    def seconds_left(self) -> float | None:
        if len(self._points) < _FEWEST_POINTS:
            return None
        (first_at, first), (last_at, last) = self._points[0], self._points[-1]
        grown = last - first
        return (1 - last) * (last_at - first_at) / grown if grown > 0 else None
