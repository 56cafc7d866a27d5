"""How a figure is taken: contenders side by side, in turn, with the floor among them.

All contenders of a case run in the same minute on the same machine, one after the other, and who
begins changes with every round, so that a busy moment hits nobody in particular. Absolute times
belong to the machine; the comparison is what carries over.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """One run of one contender; `facts` are other things counted on the way."""

    seconds: float
    facts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """One way to do the work of a case. It times itself, so that preparation does not count."""

    name: str
    run: Callable[[], Sample]
    includes: str = ""
    """What the time covers, where that differs between contenders."""
    peer: str = ""
    """The other tool that this is; empty for our own way and for the floor."""
    absent: str = ""
    """Why it cannot take part; `run` is never called then."""


@dataclass(frozen=True)
class Case:
    """One question, and those who answer it. The floor is the least that any answer must cost."""

    name: str
    what: str
    contenders: Sequence[Contender]
    floor: Contender | None = None
    rounds: int = 20
    warm_ups: int = 1

    @property
    def taking_part(self) -> list[Contender]:
        """The floor first."""
        everybody = [self.floor, *self.contenders] if self.floor else self.contenders
        return [contender for contender in everybody if not contender.absent]


@dataclass(frozen=True)
class Measurement:
    """What one contender needed."""

    contender: Contender
    samples: Sequence[Sample]

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def minimum(self) -> float:
        return min(sample.seconds for sample in self.samples)

    @property
    def median(self) -> float:
        return statistics.median(sample.seconds for sample in self.samples)

    @property
    def facts(self) -> dict[str, float]:
        """The median of each fact."""
        names = self.samples[0].facts
        return {
            name: statistics.median(sample.facts[name] for sample in self.samples) for name in names
        }


@dataclass(frozen=True)
class Result:
    """A case, measured."""

    key: str
    """What the case is called on the command line and in the documentation."""
    case: Case
    measurements: Sequence[Measurement]
    """The floor first, where there is one."""
    load_before: float

    @property
    def floor(self) -> Measurement | None:
        return self.measurements[0] if self.case.floor else None

    @property
    def ours(self) -> list[Measurement]:
        return [one for one in self._above_floor if not one.contender.peer]

    @property
    def peers(self) -> list[Measurement]:
        return [one for one in self._above_floor if one.contender.peer]

    @property
    def absent(self) -> list[Contender]:
        return [contender for contender in self.case.contenders if contender.absent]

    @property
    def _above_floor(self) -> Sequence[Measurement]:
        return self.measurements[1:] if self.case.floor else self.measurements


def timed(work: Callable[[], object], repeat: int = 1) -> Sample:
    """The time of one call, averaged over `repeat` of them when a call is too short to time."""
    began = time.perf_counter()
    for _ in range(repeat):
        work()
    return Sample((time.perf_counter() - began) / repeat)


def measure(case: Case) -> list[Measurement]:
    """Run a case; the floor comes first in the answer."""
    everybody = case.taking_part
    for _ in range(case.warm_ups):
        for contender in everybody:
            contender.run()
    samples: list[list[Sample]] = [[] for _ in everybody]
    for number in range(case.rounds):
        for turn in range(len(everybody)):
            place = (number + turn) % len(everybody)
            samples[place].append(everybody[place].run())
    return [
        Measurement(contender, taken) for contender, taken in zip(everybody, samples, strict=True)
    ]
