"""Numbers, spans, sizes and lines of log as people like them: pure."""

from __future__ import annotations

_BYTE_UNITS = ((1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))
_MESSAGE_LIMIT = 160
_CLEANING_LIMIT = 1_000
"""More of a line is not even looked at: cutting it off first keeps long lines cheap."""


def number(value: float) -> str:
    """Four digits are enough to see a metric move."""
    return f"{value:.4g}"


def rough_span(seconds: float) -> str:
    """`45 s`, `4 min`, `3 h`, `2 d`: one unit, as the estimate is no better than that."""
    for size, unit, smallest in ((86_400, "d", 36 * 3600), (3600, "h", 5400), (60, "min", 90)):
        if seconds >= smallest:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds)} s"


def amount_of_bytes(done: int, total: int | None) -> str:
    """`1.2/3.4 GB`: both in the unit of the larger one."""
    largest = done if total is None else max(done, total)
    size, unit = next((entry for entry in _BYTE_UNITS if largest >= entry[0]), (1, "B"))
    shown = f"{number(done / size)}"
    return f"{shown} {unit}" if total is None else f"{shown}/{number(total / size)} {unit}"


def shortened(text: str) -> str:
    """Text that fits on a line and cannot break it."""
    words = " ".join(text[:_CLEANING_LIMIT].split())
    clean = "".join(char if char.isprintable() else " " for char in words)
    return clean if len(clean) <= _MESSAGE_LIMIT else clean[: _MESSAGE_LIMIT - 1] + "…"
