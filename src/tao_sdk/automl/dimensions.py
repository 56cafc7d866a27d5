"""One axis of a search space: which numbers or choices a search may pick.

Positions in [0, 1] stand for values: a search that works on the unit cube needs to know nothing
about logarithms, steps or weights.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Choice", "Dimension", "Real", "Whole", "is_number"]


@dataclass(frozen=True)
class Real:
    """A floating-point number between two bounds, both included."""

    low: float
    high: float
    log: bool = False

    def value_at(self, position: float) -> float:
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low + position * (high - low))
        else:
            value = self.low + position * (self.high - self.low)
        # Specs and tables with 17 digits help no reader. Rounding must not leave the bounds.
        return min(max(float(f"{value:.6g}"), self.low), self.high)

    def position_of(self, value: float) -> float:
        if self.high == self.low:
            return 0.5
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return (math.log(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def holds(self, value: Any) -> bool:
        return is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Whole:
    """A whole number between two bounds, in steps from the lower one."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    """Never with a step other than 1."""

    def value_at(self, position: float) -> int:
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            value = round(math.exp(low + position * (high - low)))
            return min(max(value, self.low), self.high)
        count = (self.high - self.low) // self.step + 1
        return self.low + self.step * min(int(position * count), count - 1)

    def position_of(self, value: float) -> float:
        """The middle of the stretch of positions that stand for this value."""
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return (math.log(value) - low) / (high - low)
        count = (self.high - self.low) // self.step + 1
        return ((value - self.low) / self.step + 0.5) / count

    def holds(self, value: Any) -> bool:
        return (
            is_number(value)
            and self.low <= value <= self.high
            and (value - self.low) % self.step == 0
        )


@dataclass(frozen=True)
class Choice:
    """One of several options, without an order."""

    options: tuple[Any, ...]
    weights: tuple[float, ...] = ()
    """How likely each option is before anything has been measured; empty: all alike."""

    def value_at(self, position: float) -> Any:
        shares = list(itertools.accumulate(self._weights()))
        return self.options[min(bisect.bisect(shares, position * shares[-1]), len(shares) - 1)]

    def index(self, value: Any) -> int:
        """Which option it is; True is not the number 1 here."""
        for index, option in enumerate(self.options):
            if option == value and isinstance(option, bool) == isinstance(value, bool):
                return index
        raise ValueError(f"{value!r} is none of {self.options!r}")

    def holds(self, value: Any) -> bool:
        return any(
            option == value and isinstance(option, bool) == isinstance(value, bool)
            for option in self.options
        )

    def _weights(self) -> tuple[float, ...]:
        return self.weights or (1.0,) * len(self.options)


Dimension = Real | Whole | Choice


def is_number(value: Any) -> bool:
    """Whether it is a finite number that fits into a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
