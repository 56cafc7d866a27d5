"""What a platform can tell about a job that ended badly."""

from __future__ import annotations

from dataclasses import dataclass

from tao_sdk.result_record import ResultRecord


@dataclass(frozen=True)
class ReplicaEvidence:
    """One process, pod or container of the job."""

    rank: int
    node: str = ""
    exit_code: int | None = None
    ended_at: str = ""
    reason: str = ""
    event: str = ""
    """What the platform calls the way it ended (OOMKilled, Evicted), where it has a word for it."""

    @property
    def failed(self) -> bool:
        """Did it fail, as far as the platform knows?"""
        return self.exit_code not in (None, 0) or bool(self.reason)


@dataclass(frozen=True)
class Evidence:
    """Facts only; what they mean is decided by `explain`."""

    exit_code: int | None = None
    reason: str = ""
    """The platform's own word for what happened (a state, a condition, an error text)."""
    log_tail: str = ""
    """The end of the log, up to 256 KiB of it; lines of several ranks begin with `[rank N] `."""
    replicas: tuple[ReplicaEvidence, ...] = ()
    killed_from_outside: bool = False
    """The processes disappeared without leaving an exit code."""
    never_started: bool = False
    memory_sufficed: bool = False
    """The platform counts kills for want of memory, and there was none."""
    signal: int | None = None
    """The signal that ended the job, where the platform tells it apart from the exit code."""
    records: tuple[ResultRecord, ...] = ()
    """What the job itself left behind, for platforms that know nothing about single ranks."""
