"""One case as a bar chart: SVG from the standard library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.harness import Contender, Measurement, Result
from bench.text import duration

WIDTH = 860
LABEL_WIDTH = 380
VALUE_WIDTH = 80
ROW = 26
TOP = 56
BOTTOM = 30

# Beyond this ratio the short bars of a linear chart cannot be told apart.
LOG_FROM = 20

FLOOR_COLOUR, OUR_COLOUR, PEER_COLOUR = "#9aa0a6", "#3b7d23", "#c26a1b"
INK, QUIET = "#202124", "#5f6368"


@dataclass(frozen=True)
class Scale:
    """Seconds to pixels."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> Scale:
        if max(values) / min(values) < LOG_FROM:
            return cls(0.0, max(values), logarithmic=False)
        low = 10.0 ** math.floor(math.log10(min(values)))
        return cls(low, max(values), logarithmic=True)

    def length(self, seconds: float) -> float:
        room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
        if not self.logarithmic:
            return room * seconds / self.high
        return room * math.log10(seconds / self.low) / math.log10(self.high / self.low)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.log10(self.low), math.floor(math.log10(self.high))
            return [10.0**power for power in range(round(first), last + 1)]
        step = 10.0 ** math.floor(math.log10(self.high))
        while self.high / step < 3:
            step /= 2
        return [step * number for number in range(int(self.high / step) + 1)]


def bars(result: Result) -> str:
    """The medians as bars, with a tick at each minimum."""
    everybody = result.measurements
    absent = result.absent
    scale = Scale.of([value for one in everybody for value in (one.minimum, one.median)])
    bottom = TOP + ROW * (len(everybody) + len(absent))
    parts = [
        _text(12, 24, result.case.name, size=16, weight="bold"),
        _text(12, 42, _legend(result, scale), colour=QUIET),
        *(_grid_line(tick, scale, bottom) for tick in scale.ticks()),
        *(_bar(one, TOP + ROW * row, scale, result) for row, one in enumerate(everybody)),
        *(_gap(one, TOP + ROW * row) for row, one in enumerate(absent, len(everybody))),
    ]
    height = bottom + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" role="img">\n'
        f"<title>{escape(result.case.name)}</title>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _legend(result: Result, scale: Scale) -> str:
    kind = "logarithmic" if scale.logarithmic else "linear"
    return (
        f"median of {result.case.rounds} interleaved rounds, black tick: minimum; {kind} scale; "
        "grey: floor, green: ours, orange: others"
    )


def _bar(one: Measurement, y: int, scale: Scale, result: Result) -> str:
    colour = PEER_COLOUR if one.contender.peer else OUR_COLOUR
    colour = FLOOR_COLOUR if one is result.floor else colour
    length = scale.length(one.median)
    tick = LABEL_WIDTH + scale.length(one.minimum)
    return "\n".join(
        [
            _text(LABEL_WIDTH - 8, y + 17, one.name, anchor="end"),
            f'<rect x="{LABEL_WIDTH}" y="{y + 4}" width="{max(length, 1):.1f}" '
            f'height="{ROW - 8}" fill="{colour}"/>',
            f'<rect x="{tick - 1:.1f}" y="{y + 4}" width="2" height="{ROW - 8}" fill="#000000"/>',
            _text(LABEL_WIDTH + length + 6, y + 17, duration(one.median)),
        ]
    )


def _gap(one: Contender, y: int) -> str:
    name = _text(LABEL_WIDTH - 8, y + 17, one.name, anchor="end")
    return name + "\n" + _text(LABEL_WIDTH + 6, y + 17, "not measured", colour=QUIET)


def _grid_line(tick: float, scale: Scale, bottom: int) -> str:
    x = LABEL_WIDTH + scale.length(tick)
    label = duration(tick) if tick else "0"
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="#dadce0"/>\n' + _text(
        x, bottom + 16, label, anchor="middle", colour=QUIET
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    weight: str = "normal",
    anchor: str = "start",
    colour: str = INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
    )
