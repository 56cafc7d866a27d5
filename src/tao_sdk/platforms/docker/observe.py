"""The present state of jobs, whatever is wrong with their daemon or containers. Looks only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import CANCELED_AND_GONE, MISSING, JobRef, Observation
from tao_sdk.platforms.common.job_files import CANCELED, OutcomeFiles
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import queued_name
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.docker.status import Census, Container, Outcome, ended, interpret
from tao_sdk.platforms.observation import caused_by_cancel

# One round trip answers for any number of jobs. For few, more may be spent on exact times.
_MAX_EXACT_JOBS = 10


@dataclass(frozen=True)
class Observer:
    """Looks at the jobs of one daemon."""

    transport: DockerClient
    leases: DaemonLeases
    queue: GpuQueue
    files: OutcomeFiles[Outcome]

    def observe(self, jobs: Sequence[JobRef]) -> dict[str, Observation]:
        """The state of each job; what is wrong with one of them affects no other."""
        # Kept containers are many: about one job the daemon is asked for that job's only.
        census = self.transport.census(jobs[0].job_id if len(jobs) == 1 else "")
        turns: dict[str, Observation] = {}
        if any(job.job_id in census.queued for job in jobs):
            if len(jobs) == 1:
                census = self.transport.census()  # which GPUs are free depends on all jobs
            turns = self._look_at_line(census)
        exact = len(jobs) <= _MAX_EXACT_JOBS
        return {
            job.job_id: turns.get(job.job_id)
            or _or_unreachable(partial(self._look, job, census, exact=exact))
            for job in jobs
        }

    def _look(self, job: JobRef, census: Census, *, exact: bool) -> Observation:
        container = census.jobs.get(job.job_id)
        queued = job.job_id in census.queued
        if container is None:
            return self._without_container(job)._replace(due=queued)
        ended_at = self._ended_at(job, container, exact=exact) if container.ended else ""
        canceled = self._is_canceled(job, ended_at)
        seen = interpret(container, canceled=canceled, ended_at=ended_at)
        if seen is None:
            return self._without_container(job)
        if container.ended:
            due = bool(census.leases_of(job.job_id)) or container.removed_when_kept
        else:
            due = self.leases.lacks_lock(container)
        return seen._replace(due=due or (container.started and queued))

    def _ended_at(self, job: JobRef, container: Container, *, exact: bool) -> str:
        """When a container ended: after a minute only its details tell; "" if not `exact`.

        Whether a request to cancel ended it takes the exact time.
        """
        listed = container.ended_at(datetime.now(timezone.utc))
        if not job.cancel_requested and (listed or not exact):
            return listed.isoformat() if listed else ""
        try:
            found = self.transport.api.inspect_container(container.id)
        except (DaemonError, BackendUnreachableError):
            if job.cancel_requested:
                raise
            return ""  # the end is known, and worth more than its time
        return container_time(found["State"]["FinishedAt"])

    def _without_container(self, job: JobRef) -> Observation:
        kept = self.files.outcome(job.job_id)
        canceled = self._is_canceled(job, kept.ended_at if kept else "")
        if kept is not None:
            if kept.exit_code is None and not canceled:  # it never started
                return Observation(JobState.ERROR, kept.error, cancel_aware=True)
            return ended(
                kept.exit_code,
                canceled=canceled,
                started_at=kept.started_at,
                ended_at=kept.ended_at,
            )
        if canceled:
            return CANCELED_AND_GONE
        if job.native.get("queued"):
            return MISSING._replace(message=_lost_in_the_queue(job.job_id))
        return MISSING

    def _is_canceled(self, job: JobRef, ended_at: str) -> bool:
        """Whether a request to cancel ended it; the mark is of an earlier version."""
        asked = caused_by_cancel(job.cancel_requested_at, ended_at)
        return asked or self.files.is_marked(job.job_id, CANCELED)

    def _look_at_line(self, census: Census) -> dict[str, Observation]:
        seen = {}
        any_may_start = False
        for turn in self.queue.line(census):
            # An attending process starts those before its own job, too.
            any_may_start = any_may_start or turn.may_start
            job_id = turn.waiting.job_id
            present = census.jobs.get(job_id)
            has_run = present is not None and present.started
            if has_run or self.files.outcome(job_id) is not None:
                continue
            message = turn.reason or "its GPUs are free; about to start"
            if turn.refused:
                message = "the daemon refused to start it; about to be tried once more"
            seen[job_id] = Observation(JobState.PENDING, message, due=turn.refused or any_may_start)
        return seen


def _or_unreachable(look: Callable[[], Observation]) -> Observation:
    """The observation, or that the daemon does not answer about this job."""
    try:
        return look()
    except DaemonError as error:
        return Observation(None, unreachable=f"the Docker daemon refuses {error.call}: {error}")
    except BackendUnreachableError as error:
        return Observation(None, unreachable=str(error))


def _lost_in_the_queue(job_id: str) -> str:
    return (
        f"vanished: neither its container nor {queued_name(job_id)}, in which it waited for GPUs, "
        "is on the daemon any more, and it left no result record. `docker container prune` removes "
        "waiting jobs; submit it again"
    )
