"""What is true about jobs now, whatever their daemon and their containers are like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import cache, partial

from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    SubmissionRejectedError,
    ValidationError,
)
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import MISSING, JobRef, Observation
from tao_sdk.platforms.common.job_files import CANCELED, OutcomeFiles
from tao_sdk.platforms.docker.aftermath import Aftermath
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.identity import Daemon, Identity
from tao_sdk.platforms.docker.launch import queued_name
from tao_sdk.platforms.docker.leases import DaemonLeases
from tao_sdk.platforms.docker.placeholders import remove
from tao_sdk.platforms.docker.queue import Failed, GpuQueue, Started
from tao_sdk.platforms.docker.states import Census, Container, Outcome, ended, interpret
from tao_sdk.platforms.docker.transport import DaemonError, DockerTransport


class Observer:
    """Looks at the jobs of one daemon, and looks after those that wait or have ended."""

    def __init__(
        self,
        transport: DockerTransport,
        census: Callable[[str], Census],
        identity: Identity,
        host: DockerHost,
        leases: DaemonLeases,
        queue: GpuQueue,
        aftermath: Aftermath,
        kept: OutcomeFiles[Outcome],
    ) -> None:
        self._transport = transport
        self._census = census
        self._identity = identity
        self._host = host
        self._leases = leases
        self._queue = queue
        self._aftermath = aftermath
        self._kept = kept

    def observe(self, jobs: Sequence[JobRef]) -> dict[str, Observation]:
        """The state of each job; what is wrong with one of them is no other's trouble."""
        # Kept containers are many: about one job the daemon is asked for that job's only.
        census = self._census(jobs[0].job_id if len(jobs) == 1 else "")
        # Asked only when a job is not there, and then once.
        daemon = cache(self._identity.ask)
        seen = {
            job.job_id: _told(partial(self._observe, job, census, daemon))
            for job in jobs
            if job.job_id not in census.queued
        }
        waiting = [census.queued[job.job_id] for job in jobs if job.job_id in census.queued]
        if waiting:
            census = self._census("")  # whose GPUs are free is a matter of everybody's jobs
        for one in sorted(waiting, key=lambda one: (one.created, one.name)):
            seen[one.job_id] = _told(partial(self._tend, one, census))
        return seen

    def release(self, job_id: str, census: Census) -> None:
        """Give back the GPUs of a job that does not run."""
        for lease in census.leases_of(job_id):
            remove(self._transport, lease.id)

    def elsewhere(self, job: JobRef, daemon: Daemon) -> str:
        """Why this daemon cannot be asked about a job that it does not know; "" if it can."""
        if daemon.has(job.native):
            return ""
        here = self._transport.endpoint
        if job.native["daemon"] == daemon.id:
            return (
                f"the Docker daemon at {here} has not the data that it had when the job was "
                "submitted: is its data-root the same, and mounted? If it is, and only the volume "
                f"by which we know it was removed, run `{daemon.how_to_recognise(job.native)}`"
            )
        return (
            f"the job runs on another Docker daemon: set DOCKER_HOST={job.native['endpoint']} "
            f"(this one is {here}; a daemon that lost its data-root counts as another)"
        )

    def _observe(self, job: JobRef, census: Census, daemon: Callable[[], Daemon]) -> Observation:
        container = census.jobs.get(job.job_id)
        canceled = self._kept.is_marked(job.job_id, CANCELED)
        why_it_stays = ""
        if container is not None and container.ended:
            self.release(job.job_id, census)
            if container.removed_when_kept:
                why_it_stays = self._aftermath.keep_and_remove(job, container)
                container = container if why_it_stays else None
        if container is None:
            return self._without_container(job, daemon, canceled=canceled)
        seen = interpret(container, canceled=canceled, now=datetime.now(timezone.utc))
        if seen is None:
            return self._without_container(job, daemon, canceled=canceled)
        self._leases.restore(container, census.leases_of(job.job_id))
        if why_it_stays:
            return seen._replace(message=f"{seen.message}; its container stays: {why_it_stays}")
        return seen

    def _without_container(
        self, job: JobRef, daemon: Callable[[], Daemon], *, canceled: bool
    ) -> Observation:
        kept = self._kept.outcome(job.job_id)
        if kept is not None:
            if kept.error and kept.exit_code is None:
                return Observation(JobState.ERROR, kept.error, cancel_aware=True)
            return ended(
                kept.exit_code,
                canceled=canceled,
                started_at=kept.started_at,
                ended_at=kept.ended_at,
            )
        if canceled:
            return Observation(JobState.CANCELED, "cancelled", cancel_aware=True)
        away = self.elsewhere(job, daemon())
        if away and not self._left(job):
            return Observation(None, unreachable=away)
        if job.native.get("queued"):
            return MISSING._replace(message=_lost_in_the_queue(job.job_id))
        return MISSING

    def _left(self, job: JobRef) -> bool:
        """Did the job leave a record? That counts, whoever is asked."""
        try:
            return bool(self._aftermath.result_records(job))
        except BackendUnreachableError:
            return False  # the reason why its daemon cannot be asked is told instead

    def _tend(self, waiting: Container, census: Census) -> Observation:
        """Look after a job that waits for GPUs."""
        try:
            outcome = self._queue.try_start(waiting, census, self._host.gpus, self._transport.info)
        except (CapacityError, SubmissionRejectedError, ValidationError) as error:
            # It waits on: another process may see other GPUs (CUDA_VISIBLE_DEVICES), or more.
            return Observation(
                JobState.PENDING, f"waiting for GPUs; this process cannot start it: {error}"
            )
        if isinstance(outcome, Started):
            return Observation(JobState.RUNNING)
        if isinstance(outcome, Failed) and not self._kept.is_marked(waiting.job_id, CANCELED):
            told = f"Docker refuses the container: {outcome.reason}"
            self._kept.keep(waiting.job_id, Outcome(None, "", "", error=told), ())
            remove(self._transport, waiting.id)
            return Observation(JobState.ERROR, told, cancel_aware=True)
        return Observation(JobState.PENDING, outcome.reason)


def _told(look: Callable[[], Observation]) -> Observation:
    """What was seen; a daemon that refuses to say leaves what is known as it is."""
    try:
        return look()
    except DaemonError as error:
        return Observation(None, unreachable=f"the Docker daemon refuses {error.call}: {error}")


def _lost_in_the_queue(job_id: str) -> str:
    return (
        f"vanished: neither its container nor {queued_name(job_id)}, in which it waited for GPUs, "
        "is on the daemon any more, and it left no result record. `docker container prune` removes "
        "waiting jobs; submit it again"
    )
