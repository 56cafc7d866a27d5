"""Times in ISO 8601, as platforms write them and as the store has them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_FRACTION = re.compile(r"\.(\d+)")


def parse_time(text: str) -> datetime:
    """A time with its zone; UTC where the text names none. Raises `ValueError`.

    Accepts `Z` and fractions of any length, which Python 3.10 does not parse itself.
    """
    exact = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", text.replace("Z", "+00:00"))
    moment = datetime.fromisoformat(exact)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def time_text(seconds: float) -> str:
    """A time, given in seconds since the epoch, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def container_time(text: str) -> str:
    """A time of Docker's in our form; "" for never (the year 1) or for text that is no time."""
    if text.startswith("0001-"):
        return ""
    try:
        return parse_time(text).isoformat()
    except ValueError:
        return ""
