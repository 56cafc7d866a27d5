"""The daemon's list of containers, and what it means for jobs: pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from tao_sdk.models import JobState
from tao_sdk.platforms.backend import Observation
from tao_sdk.platforms.docker import config

_EXIT_CODE = re.compile(r"Exited \((-?\d+)\)")
_SECONDS_AGO = re.compile(r"\) (?:(\d+)|Less than a) seconds? ago")
_ALIVE = {
    "created": JobState.PENDING,
    "running": JobState.RUNNING,
    "restarting": JobState.RUNNING,
    "paused": JobState.PAUSED,
}
LIVE_STATES = frozenset({"running", "restarting", "paused"})


@dataclass(frozen=True)
class Outcome:
    """How a container ended; kept when the container is removed."""

    exit_code: int | None
    started_at: str
    ended_at: str
    oom_killed: bool = False
    error: str = ""
    log_tail: str = ""
    """The end of the log, without the values to hide in what is kept."""


@dataclass(frozen=True)
class Container:
    """One line of the list."""

    id: str
    name: str
    state: str
    status: str
    created: int
    labels: Mapping[str, str]
    image: str = ""

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Container:
        return cls(
            id=entry["Id"],
            name=(entry.get("Names") or ["/"])[0].lstrip("/"),
            state=entry["State"],
            status=entry.get("Status", ""),
            created=int(entry.get("Created", 0)),
            labels=entry.get("Labels") or {},
            image=entry.get("Image", ""),
        )

    @property
    def job_id(self) -> str:
        return self.labels.get(config.LABEL_JOB, "")

    @property
    def exit_code(self) -> int | None:
        match = _EXIT_CODE.match(self.status)
        return int(match[1]) if match else None

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created, timezone.utc)

    def ended_at(self, now: datetime) -> datetime | None:
        """When it ended. The list is exact to the second for a minute; None afterwards."""
        match = _SECONDS_AGO.search(self.status)
        if match is None:
            return None
        return max(self.created_at, now - timedelta(seconds=int(match[1] or 0)))

    @property
    def started(self) -> bool:
        return self.state not in ("created", "removing")

    @property
    def ended(self) -> bool:
        return self.state in ("exited", "dead")

    @property
    def removed_when_kept(self) -> bool:
        return config.LABEL_KEPT in self.labels


@dataclass(frozen=True)
class Census:
    """All containers of ours on a daemon at one moment."""

    jobs: Mapping[str, Container] = field(default_factory=dict)
    queued: Mapping[str, Container] = field(default_factory=dict)
    leases: tuple[Container, ...] = ()

    @classmethod
    def take(cls, entries: Iterable[Mapping[str, Any]]) -> Census:
        jobs, queued, leases = {}, {}, []
        for container in map(Container.parse, entries):
            if config.LABEL_LEASE in container.labels:
                leases.append(container)
            elif config.LABEL_QUEUED in container.labels:
                queued[container.job_id] = container
            elif container.job_id and container.name == f"tao-job-{container.job_id}":
                # By name as well: an image that was made of a job's container has its labels.
                jobs[container.job_id] = container
        return cls(jobs, queued, tuple(leases))

    def leases_of(self, job_id: str) -> list[Container]:
        return [lease for lease in self.leases if lease.job_id == job_id]

    def in_line(self) -> list[Container]:
        """The jobs that wait for GPUs, in order."""
        # The daemon's times are whole seconds; within one, the submitters' clocks decide.
        return sorted(
            self.queued.values(),
            key=lambda one: (one.created, one.labels[config.LABEL_QUEUED], one.name),
        )


def interpret(container: Container, *, canceled: bool, ended_at: str = "") -> Observation | None:
    """The observation of a job's container; None when the container is being removed."""
    began = container.created_at.isoformat()
    if container.state in _ALIVE:
        message = "created, not started yet" if container.state == "created" else ""
        if container.state == "paused":
            message = "paused: `docker unpause` lets it go on"
        begun = began if container.state != "created" else ""
        return Observation(_ALIVE[container.state], message, started_at=begun)
    if not container.ended:
        return None
    return ended(container.exit_code, canceled=canceled, started_at=began, ended_at=ended_at)


def ended(
    code: int | None, *, canceled: bool, started_at: str = "", ended_at: str = ""
) -> Observation:
    """The observation of a container that has run."""
    if canceled:
        state, message = JobState.CANCELED, "cancelled"
    elif code == 0:
        state, message = JobState.COMPLETE, "completed"
    else:
        shown = "is not known" if code is None else str(code)
        state, message = JobState.ERROR, f"ended with exit code {shown}"
    return Observation(
        state, message, code, started_at=started_at, ended_at=ended_at, cancel_aware=True
    )
