"""How one value of a spec is searched: the axes that it has, and the way between both.

A search picks a *point*, one value for each axis. `decode` makes the value of the spec from it,
`encode` finds the axis values of a value that is known, such as a default. The values that
the search learns from are therefore always those that ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tao_sdk.automl.dimensions import Choice, Dimension, Real, Whole

__all__ = ["Encoding", "List", "Plain", "Power", "Related", "Share", "Subset"]

Point = Mapping[str, Any]


class Encoding(Protocol):
    """The axes of one value of the spec."""

    def dimensions(self, path: str, /) -> dict[str, Dimension]:
        """The axes by name."""

    def decode(self, path: str, point: Point, /) -> Any:
        """The value for the spec."""

    def encode(self, path: str, value: Any, /) -> dict[str, Any]:
        """The axis values that give this value, or the nearest to it."""

    def describe(self) -> str:
        """The range, for people."""


@dataclass(frozen=True)
class Plain:
    """The value is the axis."""

    dimension: Dimension

    def dimensions(self, path: str, /) -> dict[str, Dimension]:
        return {path: self.dimension}

    def decode(self, path: str, point: Point, /) -> Any:
        return point[path]

    def encode(self, path: str, value: Any, /) -> dict[str, Any]:
        return {path: nearest(self.dimension, value)}

    def describe(self) -> str:
        return describe(self.dimension)


@dataclass(frozen=True)
class Power:
    """A power of a whole number; the axis is its exponent."""

    base: int
    lowest: int
    highest: int
    """Exponents."""

    def dimensions(self, path: str, /) -> dict[str, Dimension]:
        return {self._name(path): self._exponents}

    def decode(self, path: str, point: Point, /) -> int:
        return int(self.base ** point[self._name(path)])

    def encode(self, path: str, value: Any, /) -> dict[str, Any]:
        exponent = math.log(max(value, 1)) / math.log(self.base)
        return {self._name(path): nearest(self._exponents, exponent)}

    def describe(self) -> str:
        return f"{self.base**self.lowest} to {self.base**self.highest}, powers of {self.base}"

    @property
    def _exponents(self) -> Whole:
        return Whole(self.lowest, self.highest)

    def _name(self, path: str) -> str:
        return f"log{self.base}({path})"


@dataclass(frozen=True)
class Related:
    """A number above or below another value of the spec, within bounds of its own.

    The axis is a share of the interval that is left. So it has the same bounds whatever the other
    value is, and the search space stays the same.
    """

    other: str
    """Path of the other value."""
    is_above: bool
    low: float
    high: float
    is_whole: bool
    is_strict: bool
    """Whether it must differ from the other value."""

    @property
    def edge(self) -> float:
        """The last value of the other that leaves room."""
        gap = 1 if self.is_strict and self.is_whole else 0
        return self.high - gap if self.is_above else self.low + gap

    def dimensions(self, path: str, /) -> dict[str, Dimension]:
        return {self._name(path): Real(0.0, 1.0)}

    def given(self, path: str, other: float) -> Share:
        """The encoding once the other value is known."""
        low, high = self.low, self.high
        gap = 0.0
        if self.is_strict:
            gap = 1 if self.is_whole else max(abs(other), abs(low), abs(high)) * 1e-6
        if self.is_above:
            low = min(max(low, other + gap), high)
        else:
            high = max(min(high, other - gap), low)
        interval = Whole(math.ceil(low), math.floor(high)) if self.is_whole else Real(low, high)
        return Share(self._name(path), interval)

    def describe(self) -> str:
        relation = "above" if self.is_above else "below"
        return f"{self.low:g} to {self.high:g}, {relation} {self.other}"

    def _name(self, path: str) -> str:
        relation = "above" if self.is_above else "below"
        return f"{path}:share_{relation}({self.other})"


@dataclass(frozen=True)
class Share:
    """A number by its place in an interval."""

    name: str
    interval: Real | Whole

    def dimensions(self, _path: str, /) -> dict[str, Dimension]:
        return {self.name: Real(0.0, 1.0)}

    def decode(self, _path: str, point: Point, /) -> Any:
        return self.interval.value_at(point[self.name])

    def encode(self, _path: str, value: Any, /) -> dict[str, Any]:
        return {self.name: self.interval.position_of(nearest(self.interval, value))}

    def describe(self) -> str:
        return describe(self.interval)


@dataclass(frozen=True)
class List:
    """A list of numbers; each item is an axis, equal items share one."""

    items: tuple[Dimension, ...]
    are_equal: bool = False
    is_sorted: bool = False

    def dimensions(self, path: str, /) -> dict[str, Dimension]:
        items = self.items[:1] if self.are_equal else self.items
        return {f"{path}[{index}]": item for index, item in enumerate(items)}

    def decode(self, path: str, point: Point, /) -> list[Any]:
        values = [point[name] for name in self.dimensions(path)]
        if self.are_equal:
            return values * len(self.items)
        return sorted(values) if self.is_sorted else values

    def encode(self, path: str, value: Any, /) -> dict[str, Any]:
        axes = self.dimensions(path).items()
        return {name: nearest(axis, item) for (name, axis), item in zip(axes, value, strict=False)}

    def describe(self) -> str:
        return f"[{', '.join(map(describe, self.items))}]"


@dataclass(frozen=True)
class Subset:
    """Some of several options; each is an axis of its own."""

    options: tuple[Any, ...]

    def dimensions(self, path: str, /) -> dict[str, Dimension]:
        return {f"{path}[{option}]": Choice((False, True)) for option in self.options}

    def decode(self, path: str, point: Point, /) -> list[Any]:
        return [option for option in self.options if point[f"{path}[{option}]"]]

    def encode(self, path: str, value: Any, /) -> dict[str, Any]:
        return {f"{path}[{option}]": option in value for option in self.options}

    def describe(self) -> str:
        return f"any of {', '.join(map(str, self.options))}"


def nearest(dimension: Dimension, value: Any) -> Any:
    """The value of the axis that is nearest to this one."""
    if isinstance(dimension, Choice):
        return dimension.options[dimension.index(value)]
    value = min(max(value, dimension.low), dimension.high)
    if isinstance(dimension, Real):
        return float(value)
    steps = round((value - dimension.low) / dimension.step)
    return min(dimension.low + steps * dimension.step, dimension.high)


def describe(dimension: Dimension) -> str:
    """The range of an axis, for people."""
    if isinstance(dimension, Choice):
        return ", ".join(map(str, dimension.options))
    text = f"{dimension.low:g} to {dimension.high:g}"
    if dimension.log:
        return f"{text}, log"
    if isinstance(dimension, Whole) and dimension.step != 1:
        return f"{text}, steps of {dimension.step}"
    return text
