"""Submitting jobs: at once or into the queue for GPUs, and what became of lost submissions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.platforms.backend import JobRef, Plan, Submission
from tao_sdk.platforms.common.gpu_choice import GpuRequest, choose_gpus
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.docker import config, gpus
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import Launcher, job_name, queued_name
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases, Lease
from tao_sdk.platforms.docker.gpu_queue import GpuQueue, Turn
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.identity import Identity
from tao_sdk.platforms.docker.status import Census, Container, Outcome
from tao_sdk.platforms.gpus.discovery import Gpu

_SETTLE_SECONDS = 30.0
_SETTLE_PAUSE_SECONDS = 0.05


class Submitter:
    """Submits to one daemon."""

    def __init__(
        self,
        transport: DockerClient,
        census: Callable[[str], Census],
        identity: Identity,
        host: DockerHost,
        leases: DaemonLeases,
        launcher: Launcher,
        queue: GpuQueue,
        files: OutcomeFiles[Outcome],
    ) -> None:
        self._transport = transport
        self._census = census
        self._identity = identity
        self._host = host
        self._leases = leases
        self._launcher = launcher
        self._queue = queue
        self._files = files

    def submit(self, plan: Plan) -> Submission:
        """Start what was planned, or queue it."""
        body, wish, command, folders = plan.payload
        _make(folders)
        try:
            if not wish.any:
                return self._start(plan, body, command, None)
            return self._submit_with_gpus(plan, body, command, wish)
        except DaemonError as error:
            raise SubmissionRejectedError(f"Docker refuses the container: {error}") from error

    def _submit_with_gpus(
        self, plan: Plan, body: Mapping[str, Any], command: str | None, wish: GpuRequest
    ) -> Submission:
        host_gpus = self._host.gpus_for(plan.request.image, wish)
        usable, count = choose_gpus(host_gpus, wish, gpus.HOST)
        census, first = self._start_those_before(host_gpus, usable)
        if first is not None:
            name = job_name(first.waiting.job_id)
            held = f", and {name}, which waits for them, comes first"
            free = len(usable) - len(self._leases.look(census, usable))
        else:
            lease = self._leases.take(plan.job_id, usable, count, census)
            if isinstance(lease, Lease):
                return self._start_with(lease, plan, body, command)
            held = f" (held by {', '.join(lease.holders)})" if lease.holders else ""
            free = lease.free
        if plan.request.options.when_busy == "wait":
            container = self._queue.add(plan.job_id, body, command, wish, host_gpus)
            native = {**plan.intent, **self._identity.known().native()}
            native |= {"id": container, "queued": True}
            return Submission(plan.identity.name, native, f"waiting for GPUs{held}")
        raise CapacityError(
            f"{count} GPUs asked for, {free} of {len(usable)} are free{held}. "
            "when_busy='refuse', the default on Docker, refuses the job then; "
            "when_busy='wait' queues it"
        )

    def _start_those_before(
        self, host_gpus: Sequence[Gpu], usable: Sequence[Gpu]
    ) -> tuple[Census, Turn | None]:
        """Start the jobs that wait for these GPUs and could run: nothing may attend them.

        Returns what the daemon has then, and the first job that waits for these GPUs still.
        """
        tried: set[str] = set()
        while True:
            census = self._census("")
            first = self._queue.first_in_the_way(census, host_gpus, usable)
            if first is None or not first.may_start or first.waiting.id in tried:
                return census, first
            tried.add(first.waiting.id)
            job_id = first.waiting.job_id
            refused = self._queue.start_in_order(
                {job_id}, census, host_gpus, self._host.gpus_for, self._transport.info
            )
            if job_id in refused:
                self._queue.set_aside(first.waiting)

    def _start_with(
        self, lease: Lease, plan: Plan, body: Mapping[str, Any], command: str | None
    ) -> Submission:
        try:
            given = gpus.with_gpus(body, lease.gpus, self._transport.info)
            return self._start(plan, given, command, lease)
        except (DaemonError, SubmissionRejectedError):
            self._leases.release(lease)
            raise
        finally:
            lease.close_descriptors()

    def _start(
        self, plan: Plan, body: Mapping[str, Any], command: str | None, lease: Lease | None
    ) -> Submission:
        try:
            container = self._launcher.create(plan.identity.name, body, command)
        except DaemonError as error:
            if not error.conflict or not self._launcher.remove_own(plan.job_id):
                raise
            container = self._launcher.create(plan.identity.name, body, command)
        self._launcher.start(container, lease)
        held = [gpu.index for gpu in lease.gpus] if lease else []
        native = {**plan.intent, **self._identity.known().native(), "id": container, "gpus": held}
        message = f"started on GPU {', '.join(held)}" if held else "started"
        return Submission(plan.identity.name, native, message)

    def settle(self, job: JobRef, census: Census) -> Submission | None:
        """What became of a submission whose submitter is gone; None: it never starts."""
        if self._files.outcome(job.job_id) is not None:  # it ran, and its container went
            return Submission(job.identity.name, job.native, "adopted")
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            # A job that waits may have both while it is being started: it goes on waiting.
            present = census.queued.get(job.job_id) or census.jobs.get(job.job_id)
            if present is None:
                # The submitter's request may be on its way to the daemon, or in its hands. The
                # waiting one first: if there is one after all, its job's name must be free.
                names = (queued_name(job.job_id), job_name(job.job_id))
                if all(self._launcher.fence(name) for name in names):
                    self._leases.release_all(job.job_id, census)
                    return None
            elif present.started or self._is_queued(present):
                queued = config.LABEL_QUEUED in present.labels
                native = {**job.native, "id": present.id, "queued": queued}
                return Submission(job.identity.name, native, "adopted")
            elif self._launcher.withdraw(present.id):
                self._leases.release_all(job.job_id, census)
                return None
            time.sleep(_SETTLE_PAUSE_SECONDS)
            census = self._census("")
        raise BackendUnreachableError(
            f"the daemon does not say what became of {job_name(job.job_id)}: its name is taken, "
            "but not by a container of ours"
        )

    def _is_queued(self, present: Container) -> bool:
        # Its submitter may have been killed before the command was in the container.
        return config.LABEL_QUEUED in present.labels and self._queue.is_complete(present)


def _make(folders: Sequence[Path]) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SubmissionRejectedError(f"mounts: {folder} cannot be made: {error}") from error
