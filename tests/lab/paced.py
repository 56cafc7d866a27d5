"""A platform whose answers a test dictates, and which is polled as rarely as SLURM.

Time passes only where the test lets it, and polls are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tao_sdk.job_store import JobStore, NewJob
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import (
    Backend,
    CallLog,
    JobIdentity,
    JobRef,
    LogChunk,
    LogLine,
    LogSource,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.slurm.client import Login
from tao_sdk.platforms.slurm.polling import AcceptedAge, SharedQueue, SlurmBackoff
from tao_sdk.polling import PollBackoff
from tao_sdk.result_record import ResultRecord


class FakeClock:
    """Time that passes only while something sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Wire:
    def __init__(self) -> None:
        self.calls = CallLog()


class Cluster:
    """What all processes of a machine see: the jobs, and the newest answer of any process."""

    def __init__(self, clock: FakeClock, folder: Path) -> None:
        self.clock = clock
        self.ends: dict[str, float] = {}
        """When each job ends; one that is not named here goes on."""
        self.asked: list[float] = []
        """When the cluster itself was asked."""
        self.log: list[str] = []
        """What every job has written."""
        self.log_shows_ends = False
        self.shared = SharedQueue(Login("ada", ("login1",)), lambda: folder, clock)

    def state_of(self, job_id: str, at: float) -> JobState:
        over = at >= self.ends.get(job_id, float("inf"))
        return JobState.COMPLETE if over else JobState.RUNNING


class PacedBackend(Backend):
    """One process's view of the cluster."""

    platform = "paced"

    def __init__(self, cluster: Cluster) -> None:
        self.transport = Wire()
        self.cluster = cluster
        self.states: dict[str, JobState] = {}
        self.exits: dict[str, JobState] = {}
        """What the logs showed."""
        self.accepted = AcceptedAge()

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        cluster = self.cluster
        newest = cluster.shared.newest(self.accepted.take())
        if newest is None:
            cluster.asked.append(cluster.clock.now)
            cluster.shared.keep(cluster.clock.now, b"")
            told_at = cluster.clock.now
        else:
            self.accepted.used = newest.age
            told_at = cluster.clock.now - newest.age
        seen = {job.job_id: cluster.state_of(job.job_id, told_at) for job in jobs}
        self.states |= seen
        return {job_id: Observation(state) for job_id, state in seen.items()}

    def backoff(self, job_ids: Sequence[str]) -> PollBackoff:
        clock = self.cluster.clock
        return SlurmBackoff(
            lambda: [(self.states.get(name), self.exits.get(name)) for name in job_ids],
            self.accepted,
            clock.sleep,
            clock,
        )

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        return [PolledLog(partial(self._read_log, job.job_id))]

    def _read_log(
        self, job_id: str, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        cluster = self.cluster
        if cluster.log_shows_ends:
            self.exits[job_id] = cluster.state_of(job_id, cluster.clock.now)
        log, start = cluster.log, int(cursor or 0)
        lines = tuple(LogLine(log[n], str(n + 1)) for n in range(start, len(log)))
        return LogChunk(lines, more=False, cursor=str(len(log)))

    # -- not called by what polls

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        raise NotImplementedError

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        raise NotImplementedError

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        raise NotImplementedError

    def submit(self, plan: Plan) -> Submission:
        raise NotImplementedError

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        raise NotImplementedError

    def cancel(self, job: JobRef) -> None:
        raise NotImplementedError


class PacedSDK(PlatformSDK):
    """What one process has."""

    platform = "paced"

    def __init__(self, cluster: Cluster, state_file: Path) -> None:
        super().__init__(state_file=state_file)
        self._cluster = cluster

    def _make_backend(self) -> PacedBackend:
        return PacedBackend(self._cluster)


def add_jobs(store: JobStore, *job_ids: str) -> None:
    """Jobs that run on the platform."""
    store.begin_submissions([NewJob(name, "", "", "", "paced", "token", "") for name in job_ids])
    for name in job_ids:
        store.confirm_submission(name, backend_job_id=name, native={})
