"""What an attending process does: start waiting jobs, save what goes with a container, clean up.

All of it may run in several processes at once, and may be repeated.

A client that is killed while it makes a container leaves one that was never started, with the
job's environment in it; one killed while it looks at the host leaves a window or a probe. Each is
needed for seconds, so those that are many minutes old, by the daemon's clock, are swept. Waiting
jobs (`tao-queued-<id>`) and GPU leases are not swept: they may be old and still needed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import job_name
from tao_sdk.platforms.docker.evidence import EvidenceCollector, is_going
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.docker.logs import ContainerLog
from tao_sdk.platforms.docker.placeholders import remove
from tao_sdk.platforms.docker.status import Census, Container, Outcome
from tao_sdk.secrets import redact

_log = logging.getLogger("tao_sdk.docker")
ABANDONED = timedelta(minutes=10)
_SWEEP_SECONDS = 600.0


@dataclass
class Advancer:
    """Acts for the jobs of one daemon."""

    transport: DockerClient
    leases: DaemonLeases
    queue: GpuQueue
    collector: EvidenceCollector
    files: OutcomeFiles[Outcome]
    _swept_at: float = field(default_factory=time.monotonic)

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        """Do what `observe` found due; what goes wrong with one job stops no other.

        Returns the jobs of which nothing is due any more.
        """
        census = self.transport.census()
        waiting, finished = set(), []
        for job in jobs:
            with _errors_logged(job.identity.name):
                if self._waits(job, census):
                    waiting.add(job.job_id)
                elif self._tidy(job, census):
                    finished.append(job.job_id)
        if waiting:
            with _errors_logged("the jobs that wait for GPUs"):
                self._start_waiting(waiting, census)
        if time.monotonic() - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            sweep(self.transport)
        return finished

    def _waits(self, job: JobRef, census: Census) -> bool:
        """Whether it has not run. A job that has loses its waiting container, before anything else
        of it goes: that alone would look like a job that is still to be started.
        """
        queued, present = census.queued.get(job.job_id), census.jobs.get(job.job_id)
        if queued is None:
            return False
        has_run = present is not None and present.started
        if not has_run and self.files.outcome(job.job_id) is None:
            return True
        remove(self.transport, queued.id)
        return False

    def _tidy(self, job: JobRef, census: Census) -> bool:
        """Whether nothing is left to do."""
        container = census.jobs.get(job.job_id)
        if container is None:
            return True
        if container.ended:
            self.leases.release_all(job.job_id, census)
            return not container.removed_when_kept or self._keep_and_remove(job, container)
        self.leases.lock_again(container)
        return True

    def _start_waiting(self, jobs: set[str], census: Census) -> None:
        for job_id, why in self.queue.start_in_order(jobs, census).items():
            with _errors_logged(job_name(job_id)):
                outcome = Outcome(None, "", "", error=f"Docker refuses the container: {why}")
                self.files.keep(job_id, outcome, ())
                remove(self.transport, census.queued[job_id].id)

    def _keep_and_remove(self, job: JobRef, container: Container) -> bool:
        """DOCKER_AUTO_REMOVE: remove the container once its log and outcome are on our disk.

        False if it stays, because they cannot be saved; this is to be repeated then.
        """
        try:
            if self.files.outcome(job.job_id) is None:
                outcome, hide = self.collector.ask_daemon(job, container.id)
                # The values to hide go with the container.
                tail = redact(outcome.log_tail, [*hide, *settings.known_secrets()])
                outcome = replace(outcome, log_tail=tail)
                self.files.keep(job.job_id, outcome, self._whole_log(container.id))
        except (DaemonError, OSError) as error:
            # Gone already: another process has saved it all, or the user removes it.
            going = isinstance(error, DaemonError) and is_going(error)
            if not going:
                _log.warning("%s stays: its log cannot be saved: %s", container.name, error)
            return isinstance(error, DaemonError) and error.missing
        remove(self.transport, container.id)
        return True

    def _whole_log(self, container: str) -> Iterator[bytes]:
        try:
            yield from ContainerLog(self.transport, container).copy()
        except DaemonError as error:
            # A log driver that keeps nothing: there is no log to lose.
            if "does not support reading" not in str(error):
                raise


@contextmanager
def _errors_logged(what: str) -> Iterator[None]:
    """Log what goes wrong; the next `advance` tries again."""
    try:
        yield
    except DaemonError as error:
        _log.warning("%s: %s refused: %s", what, error.call, error)
    except (BackendUnreachableError, OSError) as error:
        _log.warning("%s: %s", what, error)


def sweep(transport: DockerClient) -> None:
    """Remove what clients that were killed have left behind."""
    unstarted = {"label": [config.LABEL_TOKEN], "status": ["created"]}
    helpers = {"label": [config.LABEL_HELPER], "status": ["created", "exited"]}
    listed = [
        [Container.parse(entry) for entry in transport.api.containers(all=True, filters=filters)]
        for filters in (unstarted, helpers)
    ]
    # By name as well: an image that was made of a job's container has its labels.
    found = [one for one in listed[0] if one.name == job_name(one.job_id)] + listed[1]
    if not found:
        return
    now = transport.time()
    for container in found:
        if now - container.created_at <= ABANDONED:
            continue
        try:
            if remove(transport, container.id):
                _log.info("removed %s, which a killed client left behind", container.name)
        except DaemonError as error:  # it must not keep this client from its work
            _log.warning("%s, left by a killed client, stays: %s", container.name, error)
