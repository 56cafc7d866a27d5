"""What an attending process does for jobs: start those that wait, save and clean up after others.

Everything here may run in several processes at once, and may be repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.docker import cleanup
from tao_sdk.platforms.docker.cleanup import Cleanup
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.docker.host import DockerHost
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
        host: DockerHost,
        leases: DaemonLeases,
        queue: GpuQueue,
        ended: Cleanup,
        files: OutcomeFiles[Outcome],
    ) -> None:
        self._transport = transport
        self._census = census
        self._host = host
        self._leases = leases
        self._queue = queue
        self._cleanup = ended
        self._files = files
        self._swept_at = time.monotonic()

    def advance(self, jobs: Sequence[JobRef]) -> None:
        """Do what `observe` found due; what goes wrong with one job stops no other."""
        census = self._census("")
        for job in jobs:
            try:
                self._tidy(job, census)
            except DaemonError as error:
                _log.warning("%s: %s refused: %s", job.identity.name, error.call, error)
        waiting = {job.job_id for job in jobs}.intersection(census.queued)
        if waiting:
            self._start_waiting(waiting, census)
        if time.monotonic() - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            cleanup.sweep(self._transport)

    def _tidy(self, job: JobRef, census: Census) -> None:
        container = census.jobs.get(job.job_id)
        if container is None:
            return
        if container.ended:
            self._leases.release_all(job.job_id, census)
            if container.removed_when_kept:
                self._cleanup.keep_and_remove(job, container)
        else:
            self._leases.restore(container, census.leases_of(job.job_id))

    def _start_waiting(self, jobs: set[str], census: Census) -> None:
        refused = self._queue.start_in_order(
            jobs, census, self._host.known_gpus(), self._host.gpus_for, self._transport.info
        )
        for job_id, why in refused.items():
            outcome = Outcome(None, "", "", error=f"Docker refuses the container: {why}")
            self._files.keep(job_id, outcome, ())
            remove(self._transport, census.queued[job_id].id)
