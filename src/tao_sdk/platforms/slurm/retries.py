"""Which ends deserve another attempt: pure.

Infrastructure and preemption have a budget each. Whatever the program did itself, running out of
memory included, surfaces at once: the same would happen again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk.failures import ErrClass
from tao_sdk.models import JobState
from tao_sdk.platforms.slurm.parse import JobFiles
from tao_sdk.platforms.slurm.status import Verdict

_LONGEST_PAUSE = 1800.0
_NODE = re.compile(r"[A-Za-z0-9_.-]+")
# States in which no program of ours had a say.
_BY_STATE = {"NODE_FAIL": "infra", "BOOT_FAIL": "infra", "PREEMPTED": "preempted"}
_BY_CLASS = {ErrClass.INFRA.value: "infra", ErrClass.PREEMPTED.value: "preempted"}


class Retry(NamedTuple):
    """Another submission of the same job."""

    number: int
    """Of the submission: the first was 1."""
    cause: str
    used: int
    """Which retry of its budget it is, from 1."""
    pause: int
    exclude: str
    """Nodes to keep away from, by comma."""


class Exhausted(NamedTuple):
    """It would deserve another attempt, and has had all there are."""

    cause: str
    used: int

    @property
    def message(self) -> str:
        """What the job's status adds."""
        times = "once" if self.used == 1 else f"{self.used} times"
        return f"tried again {times} after such ends ({self.cause}; SLURM_MAX_RETRIES)"


def wants_explanation(verdict: Verdict) -> bool:
    """Does the log decide whether the job is tried again?"""
    return verdict.state is JobState.ERROR and verdict.native == "FAILED" and not verdict.at_limit


def retry_for(
    verdict: Verdict,
    files: JobFiles,
    analysis: Mapping[str, Any] | None,
    *,
    budget: int,
    pause: float,
) -> Retry | Exhausted | None:
    """The attempt that should follow; None when the end is the end."""
    if files.canceled or files.last is None:
        return None
    cause = _BY_STATE.get(verdict.native) or _cause(verdict, analysis)
    if cause is None:
        return None
    before = sum(entry.cause == cause for entry in files.submissions)
    if before >= budget:
        return Exhausted(cause, before) if before else None
    bad = _bad_node(verdict, analysis) if cause == "infra" else ""
    known = [node for entry in files.submissions for node in entry.excluded.split(",")]
    return Retry(
        number=files.last.number + 1,
        cause=cause,
        used=before + 1,
        pause=int(min(pause * 2**before, _LONGEST_PAUSE)) if cause == "infra" else 0,
        exclude=",".join(dict.fromkeys(node for node in (*known, bad) if node)),
    )


def _cause(verdict: Verdict, analysis: Mapping[str, Any] | None) -> str | None:
    if analysis is None or not wants_explanation(verdict):
        return None
    return _BY_CLASS.get(str(analysis["err_class"]))


def _bad_node(verdict: Verdict, analysis: Mapping[str, Any] | None) -> str:
    """The node to keep away from, where it is known which of several it was."""
    named = str((analysis or {}).get("node") or "")
    if _NODE.fullmatch(named):
        return named
    return verdict.nodes if _NODE.fullmatch(verdict.nodes) else ""
