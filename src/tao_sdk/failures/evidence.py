"""What a platform can tell about a job that ended badly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplicaEvidence:
    """One process, pod or container of the job."""

    rank: int
    node: str = ""
    exit_code: int | None = None
    ended_at: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Evidence:
    """Facts only; what they mean is decided by `explain`."""

    exit_code: int | None = None
    reason: str = ""
    """The platform's own word for what happened (a state, a condition, an error text)."""
    log_tail: str = ""
    replicas: tuple[ReplicaEvidence, ...] = ()
    killed_from_outside: bool = False
    """The processes disappeared without leaving an exit code."""
    never_started: bool = False
