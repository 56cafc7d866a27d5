"""Times, spans and ids as people like them: pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from tao_sdk.bundle.recognition import carries_runner
from tao_sdk.visible_text import one_line

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_ID = 8
_LONGEST_SPAN = 100 * 365 * 86_400.0
"""A hundred years: dates before and after today have room for it."""


def short_id(job_id: str) -> str:
    """Enough of an id to type. Ids that people chose are not cut: they may begin alike."""
    return job_id[:_SHORT_ID] if _UUID.fullmatch(job_id) else job_id


def command_text(command: str) -> str:
    """A command in one line. Older jobs have the runner in it, which is not shown."""
    if carries_runner(command):
        return "a command packed by an older version (--json shows it)"
    return one_line(command)


def moment(text: str) -> datetime | None:
    """A stored time; None for an empty one, or one that another program wrote in its own way."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, TypeError, AttributeError):  # also not even text, in a damaged store
        return None
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)


def seconds_between(start: str, end: str, now: datetime) -> float | None:
    """How long something took, or takes since `start` while there is no end."""
    began = moment(start)
    if began is None:
        return None
    return max(0.0, ((moment(end) or now) - began).total_seconds())


def span(seconds: float) -> str:
    """`12 s`, `3 min 5 s`, `2 h 10 min`, `4 d 1 h`: the two largest units."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts = _parts(int(seconds))
    return " ".join(f"{amount} {unit}" for amount, unit in parts[:2] if amount)


def rough_span(seconds: float) -> str:
    """The largest unit only: `3 min`."""
    amount, unit = _parts(int(seconds))[0]
    return f"{amount} {unit}"


def ago(seconds: float) -> str:
    """`just now`, `3 min ago`."""
    return "just now" if seconds < 5 else f"{rough_span(seconds)} ago"


def _parts(seconds: int) -> list[tuple[int, str]]:
    """From the largest unit that is not zero downwards."""
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        amount, seconds = divmod(seconds, size)
        if amount or parts:
            parts.append((amount, unit))
    return [*parts, (seconds, "s")]


def parse_span(text: str, *, unit_required: bool = False) -> timedelta | None:
    """`90`, `90s`, `5m`, `2h`, `30d`, `4w` as a time span; None when it is not one."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        return None
    number, unit = match.group(1), match.group(2).lower()
    if not unit and unit_required:
        return None
    size = _UNITS.get(unit or "s")
    if size is None:
        return None
    seconds = float(number) * size
    return timedelta(seconds=seconds) if seconds <= _LONGEST_SPAN else None
