"""What can go wrong with a server, to be switched on and off by tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Faults:
    """Rates are from 0 to 1; times are seconds."""

    cut: bool = False
    """No request gets an answer."""
    latency: float = 0.0
    """Every answer takes up to so long."""
    busy: float = 0.0
    """So many requests are answered 429."""
    retry_after: str = "0"
    """What 429 asks for; "" for nothing."""
    broken: float = 0.0
    """So many requests are answered 503, but for those that make something."""
    lost: float = 0.0
    """So many answers are lost after the deed: the connection ends."""
    lose_next: list[str] = field(default_factory=list)
    """The answers to the next requests of these calls ("POST /jobs") are lost."""
    late_next: list[tuple[str, float]] = field(default_factory=list)
    """The next requests of these calls get no answer, and are done so much later: something on
    the way had kept them."""
    refuse_next: list[tuple[str, int]] = field(default_factory=list)
    """The next requests of these calls are refused with that status."""
    quotes: bool = False
    """Refusals quote what was sent."""
    list_lag: float = 0.0
    """How far lists of jobs are behind."""
    secrets_unseen: bool = False
    """The list of secrets is so far behind that it is empty."""
    log_lag: float = 0.0
    """How far the kept logs are behind."""
    instead: bytes | None = None
    """What every answer is instead of what it should be."""
    live_skips: int = 0
    """So many lines are missing at the beginning of streams."""
    breaks_after: list[int] = field(default_factory=list)
    """The next files that are sent break off after so many bytes."""
    sends_parts: bool = True
    """Whether files are sent from the middle, if asked to."""
    hides_sizes: bool = False
    """HEAD is answered without a look at the file."""
    hides_times: bool = False
    """Files are sent without their time of change."""
    page_limit: int = 1000
    """How long a page can be, whatever is asked for."""
    seed: int = 1

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def strikes(self, rate: float) -> bool:
        return bool(rate) and self._dice.random() < rate

    def delay(self) -> float:
        return self._dice.uniform(0, self.latency) if self.latency else 0.0

    def take(self, call: str) -> int:
        """The status with which this very request is refused; 0 for none."""
        return int(_take(self.refuse_next, call))

    def keeps(self, call: str) -> float:
        """How long this very request is kept on its way; 0 for not at all."""
        return _take(self.late_next, call)

    def loses(self, call: str) -> bool:
        if call in self.lose_next:
            self.lose_next.remove(call)
            return True
        return self.strikes(self.lost)


def _take(listed: list[tuple[str, Any]], call: str) -> Any:
    for number, (which, value) in enumerate(listed):
        if which == call:
            del listed[number]
            return value
    return 0
