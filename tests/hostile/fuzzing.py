"""Seeded malformed input, and the counts of it: a sample in every run, the full count in a soak."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
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
MEMORY = 500 << 20
SECONDS = 30


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
    """What was tried, and how each attempt ended; anything outside the error tree is a finding.

    In a process of its own (`run_bounded`), so is an attempt of more than 30 seconds.
    """

    def __init__(self, what: str, *, timed: bool = False) -> None:
        self._what = what
        self._seconds = SECONDS if timed else 0
        self._ends: Counter[str] = Counter()
        self._bad: list[str] = []

    def attempt(
        self, tried: object, act: Callable[[], object], allowed: Sequence[type] = ()
    ) -> None:
        try:
            if self._seconds:
                signal.alarm(self._seconds)
            act()
            self._ends["accepted"] += 1
        except (TaoError, *allowed) as error:
            self._ends[type(error).__name__] += 1
        except BaseException as error:  # noqa: BLE001 - the finding
            self._bad.append(f"{type(error).__name__}: {str(error)[:100]} <- {str(tried)[:300]!a}")
        finally:
            if self._seconds:
                signal.alarm(0)

    def check(self) -> None:
        """Print the counts; fail with the findings."""
        print(f"{self._what}: {sum(self._ends.values())} tried, {dict(self._ends)}")
        assert not self._bad, "\n".join(self._bad[:10])


def run_bounded(module: str, count: int) -> None:
    """Run `fuzz(count)` of a test module in a process with 500 MiB of memory.

    A crash, a hang or a lack of memory ends that process, not the tests.
    """
    here = Path(__file__).parent
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            f"import fuzzing; fuzzing.fuzz_in('{module}')",
        ],
        input=str(count),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"


def fuzz_in(module: str) -> None:
    """What that process does."""
    import importlib

    fuzz = importlib.import_module(module).fuzz
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, _too_long)
    fuzz(int(sys.stdin.read()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{module}: at most {peak} MiB")


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds")
