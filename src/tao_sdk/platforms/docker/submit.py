"""Submitting jobs: at once or into the queue for GPUs, and what became of lost submissions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.platforms.backend import JobRef, Plan, Submission
from tao_sdk.platforms.common.gpu_choice import choose_gpus
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.docker import config, gpus
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import Launcher, job_name, queued_name
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases, Lease
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.identity import Identity
from tao_sdk.platforms.docker.placeholders import withdraw
from tao_sdk.platforms.docker.plan import ContainerOrder
from tao_sdk.platforms.docker.status import Census, Container, Outcome

_SETTLE_SECONDS = 30.0
_SETTLE_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Submitter:
    """Submits to one daemon."""

    transport: DockerClient
    identity: Identity
    host: DockerHost
    leases: DaemonLeases
    launcher: Launcher
    queue: GpuQueue
    files: OutcomeFiles[Outcome]

    def submit(self, plan: Plan) -> Submission:
        """Start what was planned, or queue it."""
        order: ContainerOrder = plan.payload
        _make(order.folders)
        try:
            if not order.gpus.any:
                return self._start(plan, order.body, None)
            return self._submit_with_gpus(plan, order)
        except DaemonError as error:
            raise SubmissionRejectedError(f"Docker refuses the container: {error}") from error

    def _submit_with_gpus(self, plan: Plan, order: ContainerOrder) -> Submission:
        host_gpus = self.host.gpus_for(plan.request.image, order.gpus)
        usable, count = choose_gpus(host_gpus, order.gpus, gpus.HOST)
        census, first = self.queue.start_those_before(usable)
        if first is not None:
            name = job_name(first.waiting.job_id)
            held = f", and {name}, which waits for them, comes first"
            free = len(usable) - len(self.leases.look(census, usable))
        else:
            lease = self.leases.take(plan.job_id, usable, count, census)
            if isinstance(lease, Lease):
                return self._start_with(lease, plan, order)
            held = f" (held by {', '.join(lease.holders)})" if lease.holders else ""
            free = lease.free
        if plan.request.options.when_busy == "wait":
            native = {"id": self.queue.add(plan.job_id, order, host_gpus), "queued": True}
            return self._submission(plan, f"waiting for GPUs{held}", native)
        raise CapacityError(
            f"{count} GPUs asked for, {free} of {len(usable)} are free{held}. "
            "when_busy='refuse', the default on Docker, refuses the job then; "
            "when_busy='wait' queues it"
        )

    def _start_with(self, lease: Lease, plan: Plan, order: ContainerOrder) -> Submission:
        try:
            body = gpus.with_gpus(order.body, lease.gpus, self.transport.info)
            return self._start(plan, body, lease)
        except (DaemonError, SubmissionRejectedError):
            self.leases.release(lease)
            raise
        finally:
            lease.close_descriptors()

    def _start(self, plan: Plan, body: Mapping[str, Any], lease: Lease | None) -> Submission:
        name, command = plan.identity.name, plan.payload.command
        try:
            container = self.launcher.create(name, body, command)
        except DaemonError as error:
            if not error.conflict or not self.launcher.remove_own(plan.job_id):
                raise
            container = self.launcher.create(name, body, command)
        self.launcher.start(container, lease)
        held = [gpu.index for gpu in lease.gpus] if lease else []
        message = f"started on GPU {', '.join(held)}" if held else "started"
        return self._submission(plan, message, {"id": container, "gpus": held})

    def _submission(self, plan: Plan, message: str, native: Mapping[str, Any]) -> Submission:
        native = {**plan.intent, **self.identity.known().native(), **native}
        return Submission(plan.identity.name, native, message)

    def settle(self, job: JobRef, census: Census) -> Submission | None:
        """What became of a submission whose submitter is gone; None: it never starts."""
        if self.files.outcome(job.job_id) is not None:  # it ran, and its container went
            return Submission(job.identity.name, job.native, "adopted")
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            # A job that waits may have both while it is being started: it goes on waiting.
            present = census.queued.get(job.job_id) or census.jobs.get(job.job_id)
            if present is None:
                # The submitter's request may be on its way to the daemon, or in its hands. The
                # waiting one first: if there is one after all, its job's name must be free.
                names = (queued_name(job.job_id), job_name(job.job_id))
                if all(self.launcher.fence(name) for name in names):
                    self.leases.release_all(job.job_id, census)
                    return None
            elif present.started or self._is_queued(present):
                queued = config.LABEL_QUEUED in present.labels
                native = {**job.native, "id": present.id, "queued": queued}
                return Submission(job.identity.name, native, "adopted")
            elif withdraw(self.transport, present.id):
                self.leases.release_all(job.job_id, census)
                return None
            time.sleep(_SETTLE_PAUSE_SECONDS)
            census = self.transport.census()
        raise BackendUnreachableError(
            f"the daemon does not say what became of {job_name(job.job_id)}: its name is taken, "
            "but not by a container of this SDK"
        )

    def _is_queued(self, present: Container) -> bool:
        # Its submitter may have been killed before the command was in the container.
        return config.LABEL_QUEUED in present.labels and self.queue.is_complete(present)


def _make(folders: Sequence[Path]) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SubmissionRejectedError(f"mounts: {folder} cannot be made: {error}") from error
