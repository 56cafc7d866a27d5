"""The range that is searched for one leaf of a schema.

Schemas leave bounds out, or say 0 or infinity where a search needs a number. What is put there is
derived from the default, and marked as ours, so that a review shows it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tao_sdk.automl.dimensions import is_number

__all__ = ["Range", "RangeError", "is_rate", "range_of"]

SMALL = 0.01
"""Positive defaults up to this are rates (learning rate, weight decay): only their order of
magnitude matters."""
RATE_FACTOR = 30.0
FLOAT_FACTOR = 10.0
INT_FACTOR = 2
LOG_RATIO = 100.0
"""Bounds that are this many times apart are searched on a log scale."""

_RATE = re.compile(r"(^|_)(lr|learning_rate)(_|$)")
_RATE_FACTOR_NAME = re.compile(r"(decay|factor|mult|step|steps|warmup|scheduler|gamma)")


class RangeError(ValueError):
    """No range can be derived."""


class Range(NamedTuple):
    """Bounds, their scale, and which of them are not the schema's."""

    low: float
    high: float
    log: bool
    ours: tuple[str, ...] = ()
    """Bounds that the schema leaves open: "low", "high"."""


def range_of(
    path: str,
    default: Any,
    leaf: Mapping[str, Any],
    *,
    is_whole: bool,
    log: bool | None = None,
    given: Collection[str] = (),
) -> Range:
    """The range of a number. `log` overrides the scale; bounds in `given` are the user's."""
    number = _number(default)
    low, high = _number(leaf.get("minimum")), _number(leaf.get("maximum"))
    ours = []
    rate = not is_whole and number is not None and is_rate(path, number)
    _require_inside(
        number, low if "minimum" in given else None, high if "maximum" in given else None
    )
    if low is None or (rate and low <= 0 and "minimum" not in given):
        low = _open_low(number, is_whole=is_whole, is_rate=rate)
        ours.append("low")
    if high is None:
        high = _open_high(number, low, is_whole=is_whole, is_rate=rate)
        ours.append("high")
    if low > high:
        raise RangeError(f"its lower bound {low:g} is above its upper bound {high:g}")
    if log and low <= 0:
        raise RangeError(f"a log scale needs a lower bound above 0, not {low:g}")
    if log is None:
        log = low > 0 and (rate or high / low >= LOG_RATIO)
    return Range(low, high, log and low < high, tuple(ours))


def _require_inside(default: float | None, low: float | None, high: float | None) -> None:
    """A range that the user gives must hold the spec's own value, which is the first trial."""
    if default is None or (low is not None and high is not None and low > high):
        return  # the bounds themselves are refused below
    if (low is not None and default < low) or (high is not None and default > high):
        ends = " to ".join("" if end is None else f"{end:g}" for end in (low, high)).strip()
        raise RangeError(
            f"its value in the spec, {default!r}, is outside of {ends}: set it with "
            "spec_overrides, or widen the range"
        )


def is_rate(path: str, default: float) -> bool:
    """Whether only the order of magnitude of a value matters: learning rates, small decays."""
    if default <= 0:
        return False
    name = path.rsplit(".", 1)[-1].lower()
    if _RATE.search(name) and not _RATE_FACTOR_NAME.search(name):
        return True
    return default <= SMALL


def _open_low(default: float | None, *, is_whole: bool, is_rate: bool) -> float:
    default = _required(default)
    if is_rate:
        return default / RATE_FACTOR
    if is_whole:
        return default // INT_FACTOR
    if _is_near_one(default):
        return max(0.0, round(1 - FLOAT_FACTOR * (1 - default), 9))
    return default / FLOAT_FACTOR


def _open_high(default: float | None, low: float, *, is_whole: bool, is_rate: bool) -> float:
    default = _required(default)
    if is_rate:
        return default * RATE_FACTOR
    if is_whole:
        return max(default * INT_FACTOR, low)
    if _is_near_one(default):
        return 1 - (1 - default) / FLOAT_FACTOR
    return max(default * FLOAT_FACTOR, low)


def _is_near_one(default: float) -> bool:
    """Momentum, betas: what matters is the distance from 1."""
    return 0.5 <= default < 1


def _required(default: float | None) -> float:
    if default is None or default <= 0:
        raise RangeError(
            f"the schema gives it no range, and none follows from the default {default!r}"
        )
    return default


def _number(declared: Any) -> float | None:
    """A finite number, or None."""
    return declared if is_number(declared) else None
