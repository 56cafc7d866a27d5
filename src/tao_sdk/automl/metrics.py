"""The value of a metric, from what a training prints.

Logs spell a metric in many ways (`val/loss`, `val_loss_epoch`, `Validation loss`). Spellings of the
same words are the same metric; `loss` never matches `val_loss` or `Validation loss`. The last value
in the log counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

__all__ = ["MetricReader"]

_NUMBER = (
    r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?"
    r"|[-+]?(?:nan|inf(?:inity)?)"
)
_VALUE = rf"[\"']?\s{{0,4}}[:=]\s{{0,4}}(?P<value>{_NUMBER})(?!\w|[.,][0-9])"
_SEPARATORS = re.compile(r"[\s/._-]+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_WORDS = {
    "val": "(?:val|valid|validation)",
    "valid": "(?:val|valid|validation)",
    "validation": "(?:val|valid|validation)",
    "train": "(?:train|training)",
    "training": "(?:train|training)",
}
# Any other word before a name makes another metric of it: `box loss`, `top5 acc`.
_HARMLESS = frozenset(
    {"average", "avg", "epoch", "final", "iter", "iteration", "mean", "step", "total"}
    | {"train", "training"}
)
_ANY = re.compile(rf"(?<![\w/.-])(?P<name>[a-z][\w/.-]{{0,63}}(?: loss)?){_VALUE}", re.IGNORECASE)
MAX_LINE = 4096
MAX_NAMES = 40


class MetricReader:
    """Fed with lines of a log; knows the last value of each metric that is asked for."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._patterns = {metric: _pattern(metric) for metric in metrics}
        self.values: dict[str, float] = {}
        """The last value of each metric, NaN and infinity included."""
        self._seen: dict[str, None] = {}

    @property
    def diverged(self) -> bool:
        """Whether a metric's last value is no finite number."""
        return not all(math.isfinite(value) for value in self.values.values())

    @property
    def names(self) -> list[str]:
        """Names of numbers in the log, for a message about one that is missing."""
        return sorted(self._seen)

    def feed(self, line: str) -> None:
        line = _COLOURS.sub("", line[:MAX_LINE])
        for metric, pattern in self._patterns.items():
            for match in pattern.finditer(line):
                if match["before"] is None or match["before"].lower() in _HARMLESS:
                    self.values[metric] = float(match["value"].replace(",", ""))
        if len(self._seen) < MAX_NAMES:
            self._seen.update(dict.fromkeys(match["name"] for match in _ANY.finditer(line)))


def _pattern(metric: str) -> re.Pattern[str]:
    words = [word for word in _SEPARATORS.split(metric.strip().lower()) if word]
    optional = ""
    if words[-1] in ("epoch", "step") and len(words) > 1:
        optional = rf"(?:[\s/_.-]{words.pop()})?"
    else:
        optional = r"(?:[/_](?:epoch|step))?"
    name = r"[\s/_.-]".join(_WORDS.get(word, re.escape(word)) for word in words)
    before = r"(?:(?P<before>[A-Za-z][\w/-]{0,63})[ \t]+)?"
    return re.compile(rf"(?<![\w/.-]){before}{name}{optional}{_VALUE}", re.IGNORECASE)
