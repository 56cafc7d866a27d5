"""Which ended jobs are submitted again: pure.

Infrastructure failures and preemptions have a budget each. Failures of the program itself, running
out of memory included, are final at once: they would happen again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import Attempt, Observation, RetryLimits

MAX_PAUSE_SECONDS = 1800.0
_INFRA, _PREEMPTED = "infra", "preempted"
_NODE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Retry(NamedTuple):
    """The attempt that should follow."""

    attempt: Attempt
    used: int
    """Which retry of its cause's budget it is, from 1."""
    budget: int
    pause_seconds: int

    @property
    def label(self) -> str:
        """The retry in a job's message: `infra; retry 1 of 10`."""
        return f"{self.attempt.cause}; retry {self.used} of {self.budget}"


class Exhausted(NamedTuple):
    """The end deserves another attempt, but the budget for its cause is used up."""

    cause: str
    used: int
    setting: str

    @property
    def message(self) -> str:
        """The addition to the job's status."""
        times = "once" if self.used == 1 else f"{self.used} times"
        limit = f"; {self.setting}" if self.setting else ""
        return f"tried again {times} after such ends ({self.cause}{limit})"


def may_retry(seen: Observation) -> bool:
    """Whether this is an end after which the platform could submit the job again."""
    return seen.state is not None and seen.state.terminal and bool(seen.attempts)


def needs_explanation(seen: Observation) -> bool:
    """Whether the log must be read to decide on another attempt."""
    return may_retry(seen) and seen.state is JobState.ERROR and not seen.fault


def decide(
    seen: Observation, analysis: Mapping[str, Any] | None, limits: RetryLimits
) -> Retry | Exhausted | None:
    """The attempt that should follow; None when the end is final.

    `analysis` explains the end, where `needs_explanation` asked for that.
    """
    if not may_retry(seen):
        return None
    cause = _cause(seen, analysis)
    if cause is None:
        return None
    before = sum(attempt.cause == cause for attempt in seen.attempts)
    if before >= limits.budget:
        return Exhausted(cause, before, limits.setting) if before else None
    infra = cause == _INFRA
    known = [node for attempt in seen.attempts for node in attempt.excluded]
    if infra and (bad := _bad_node(seen, analysis)):
        known.append(bad)
    pause = min(limits.pause_seconds * 2**before, MAX_PAUSE_SECONDS) if infra else 0
    attempt = Attempt(seen.attempts[-1].number + 1, cause, tuple(dict.fromkeys(known)))
    return Retry(attempt, before + 1, limits.budget, int(pause))


def _cause(seen: Observation, analysis: Mapping[str, Any] | None) -> str | None:
    if seen.fault in (_INFRA, _PREEMPTED):
        return seen.fault
    if analysis is None or not needs_explanation(seen):
        return None
    from tao_sdk.failures import ErrClass  # most polls explain nothing

    causes = {ErrClass.INFRA.value: _INFRA, ErrClass.PREEMPTED.value: _PREEMPTED}
    return causes.get(str(analysis["err_class"]))


def _bad_node(seen: Observation, analysis: Mapping[str, Any] | None) -> str:
    """The node to avoid, if the evidence names one."""
    named = str((analysis or {}).get("node") or "")
    return next((node for node in (named, seen.node) if _NODE_NAME.fullmatch(node)), "")
