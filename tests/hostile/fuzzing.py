"""Seeded malformed input, and the counts of it: a sample in every run, the full count in a soak."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tao_sdk.errors import TaoError

NASTY: list[Any] = [
    None,
    True,
    -1,
    2**63,
    10**30,
    1e999,
    float("nan"),
    "",
    "word",
    "²",
    "\x00",
    "\x1b[2J",
    "\ud800",
    "9" * 5000,
    [],
    [[]],
    {},
    {"a": None},
]
DEEP = "[" * 100_000


def counts(sample: int, full: int) -> pytest.MarkDecorator:
    """Parametrize `count`: a sample, and the full count in a soak."""
    marks = [pytest.mark.soak, pytest.mark.timeout(3600)]
    return pytest.mark.parametrize("count", [sample, pytest.param(full, marks=marks)])


def mutated(value: Any, random: random.Random) -> Any:
    """A copy of plain data with one place changed, removed or replaced by something nasty."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        if random.random() < 0.2:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: mutated(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], mutated(value[place], random), *value[place + 1 :]]
    return random.choice(NASTY)


def broken(text: str, random: random.Random) -> str:
    """A text cut off, repeated, or with characters replaced."""
    kind = random.randrange(4)
    if kind == 0:
        return text[: random.randrange(len(text) + 1)]
    if kind == 1:
        place = random.randrange(len(text) + 1)
        return text[:place] + str(random.choice(NASTY)) + text[place:]
    if kind == 2:
        characters = list(text)
        for _ in range(random.randrange(1, 10)):
            if characters:
                characters[random.randrange(len(characters))] = chr(random.randrange(1, 0x500))
        return "".join(characters)
    return text + text


class Findings:
    """What was tried, and how each attempt ended; anything outside the error tree is a finding."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._ends: Counter[str] = Counter()
        self._bad: list[str] = []

    def attempt(
        self, tried: object, act: Callable[[], object], allowed: Sequence[type] = ()
    ) -> None:
        try:
            act()
            self._ends["accepted"] += 1
        except (TaoError, *allowed) as error:
            self._ends[type(error).__name__] += 1
        except BaseException as error:  # noqa: BLE001 - the finding
            self._bad.append(f"{type(error).__name__}: {str(error)[:100]} <- {str(tried)[:300]!a}")

    def check(self) -> None:
        """Print the counts; fail with the findings."""
        print(f"{self._what}: {sum(self._ends.values())} tried, {dict(self._ends)}")
        assert not self._bad, "\n".join(self._bad[:10])
