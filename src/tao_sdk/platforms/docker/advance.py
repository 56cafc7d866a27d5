"""What an attending process does for jobs: start those that wait, save and clean up after others.

Everything here may run in several processes at once, and may be repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.docker import cleanup
from tao_sdk.platforms.docker.cleanup import Cleanup
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import job_name
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.identity import Daemon, Identity
from tao_sdk.platforms.docker.placeholders import remove
from tao_sdk.platforms.docker.status import Census, Outcome

_log = logging.getLogger("tao_sdk.docker")
_SWEEP_SECONDS = 600.0


class Advancer:
    """Acts for the jobs of one daemon."""

    def __init__(
        self,
        transport: DockerClient,
        census: Callable[[str], Census],
        identity: Identity,
        host: DockerHost,
        leases: DaemonLeases,
        queue: GpuQueue,
        ended: Cleanup,
        files: OutcomeFiles[Outcome],
    ) -> None:
        self._transport = transport
        self._census = census
        self._identity = identity
        self._host = host
        self._leases = leases
        self._queue = queue
        self._cleanup = ended
        self._files = files
        self._swept_at = time.monotonic()

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        """Do what `observe` found due; what goes wrong with one job stops no other.

        Returns the jobs of which nothing is due any more.
        """
        census = self._census("")
        daemon = cache(self._identity.ask)  # asked only when a job is not there, and then once
        waiting, finished = set(), []
        for job in jobs:
            with _apart(job.identity.name):
                if self._waits(job, census):
                    waiting.add(job.job_id)
                elif self._tidy(job, census, daemon):
                    finished.append(job.job_id)
        if waiting:
            with _apart("the jobs that wait for GPUs"):
                self._start_waiting(waiting, census)
        if time.monotonic() - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            cleanup.sweep(self._transport)
        return finished

    def _waits(self, job: JobRef, census: Census) -> bool:
        """Whether it has not run. A job that has loses its waiting container, before anything else
        of it goes: that alone would look like a job that is still to be started.
        """
        queued, present = census.queued.get(job.job_id), census.jobs.get(job.job_id)
        if queued is None:
            return False
        has_run = present is not None and present.started
        if not has_run and self._files.outcome(job.job_id) is None:
            return True
        remove(self._transport, queued.id)
        return False

    def _tidy(self, job: JobRef, census: Census, daemon: Callable[[], Daemon]) -> bool:
        """Whether nothing is left to do."""
        container = census.jobs.get(job.job_id)
        if container is None:
            return self._files.outcome(job.job_id) is not None or daemon().has(job.native)
        if container.ended:
            self._leases.release_all(job.job_id, census)
            return not container.removed_when_kept or self._cleanup.keep_and_remove(job, container)
        self._leases.lock_again(container)
        return True

    def _start_waiting(self, jobs: set[str], census: Census) -> None:
        refused = self._queue.start_in_order(
            jobs, census, self._host.known_now(), self._host.gpus_for, self._transport.info
        )
        for job_id, why in refused.items():
            with _apart(job_name(job_id)):
                outcome = Outcome(None, "", "", error=f"Docker refuses the container: {why}")
                self._files.keep(job_id, outcome, ())
                remove(self._transport, census.queued[job_id].id)


@contextmanager
def _apart(what: str) -> Iterator[None]:
    """Whatever goes wrong is logged, and tried again with the next `advance`."""
    try:
        yield
    except DaemonError as error:
        _log.warning("%s: %s refused: %s", what, error.call, error)
    except (BackendUnreachableError, OSError) as error:
        _log.warning("%s: %s", what, error)
