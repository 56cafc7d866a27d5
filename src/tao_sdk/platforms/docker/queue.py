"""Jobs that wait for GPUs.

A waiting job is a container `tao-queued-<id>` that never runs: it holds everything the job needs,
secrets included, on the daemon. Whoever watches the job starts it when GPUs are free: leases first,
then a container `tao-job-<id>` with those GPUs. That name can be taken once, and the waiting
container goes only after the job has started: so one watcher of many starts it, exactly once, and
a watcher that dies in between leaves something that the next one can clear away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tao_sdk.platforms.common.gpu_choice import GpuRequest, choose_gpus
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.gpus import HOST, with_gpus
from tao_sdk.platforms.docker.launch import (
    Launcher,
    LeaseLostError,
    is_withdrawn,
    job_name,
    queued_name,
)
from tao_sdk.platforms.docker.leases import TENTATIVE_SECONDS, Busy, DaemonLeases, Lease
from tao_sdk.platforms.docker.placeholders import read_from_container, remove
from tao_sdk.platforms.docker.states import Census, Container
from tao_sdk.platforms.docker.transport import DaemonError, DockerTransport
from tao_sdk.platforms.gpus.discovery import Gpu

_LONGEST = 64 * 1024 * 1024
_LABEL_WISH = "tao-sdk-gpu-wish"
_COPIED = ("Image", "Cmd", "Env", "Labels", "WorkingDir", "User", "Entrypoint", "StopTimeout")


@dataclass(frozen=True)
class Waiting:
    """Still in the queue, and why."""

    reason: str


@dataclass(frozen=True)
class Failed:
    """The daemon refused to start it."""

    reason: str


class Started:
    """It runs."""


class GpuQueue:
    """The waiting jobs of one daemon, as far as we look after them."""

    def __init__(
        self,
        transport: DockerTransport,
        leases: DaemonLeases,
        launcher: Launcher,
    ) -> None:
        self._transport = transport
        self._leases = leases
        self._launcher = launcher

    def add(
        self, job_id: str, body: Mapping[str, Any], command: str | None, wish: GpuRequest
    ) -> str:
        """Put a job into the queue; the id of its waiting container."""
        labels = {**body["Labels"], config.LABEL_QUEUED: "true", _LABEL_WISH: _write(wish)}
        return self._launcher.create(queued_name(job_id), {**body, "Labels": labels}, command)

    def try_start(
        self,
        waiting: Container,
        census: Census,
        gpus: Callable[[str], Sequence[Gpu]],
        info: Mapping[str, Any],
    ) -> Waiting | Failed | Started:
        """Start a waiting job if its GPUs are free."""
        job_id = waiting.job_id
        present = census.jobs.get(job_id)
        if present is not None:
            return self._beside(waiting, present)
        wish = _read(waiting.labels[_LABEL_WISH])
        usable, count = choose_gpus(gpus(waiting.image), wish, HOST)
        held = self._leases.holds(census, usable)
        free = [gpu for gpu in usable if gpu.key not in held]
        if len(free) < count:
            return Waiting(_why(wish, len(usable), held))
        lease = self._leases.take(job_id, usable, count)
        if isinstance(lease, Busy):
            return Waiting(_why(wish, len(usable), held))
        try:
            return self._start(waiting, lease, info)
        finally:
            lease.close_descriptors()

    def _start(
        self, waiting: Container, lease: Lease, info: Mapping[str, Any]
    ) -> Waiting | Failed | Started:
        try:
            found = self._transport.get(f"/containers/{waiting.id}/json")
            body = {name: found["Config"][name] for name in _COPIED if found["Config"].get(name)}
            labels = body["Labels"]
            for name in (config.LABEL_QUEUED, _LABEL_WISH):
                labels.pop(name)
            given = with_gpus({**body, "HostConfig": found["HostConfig"]}, lease.gpus, info)
            command = self._command_of(waiting, given)
            container = self._launcher.create(job_name(waiting.job_id), given, command)
        except DaemonError as error:
            self._leases.release(lease)
            if error.missing or error.conflict:
                return Waiting("another process starts it")  # or somebody has cancelled it
            return Failed(str(error))
        # The name is ours now. If the waiting container is gone nevertheless, the job was started
        # (and may have ended and been removed) or cancelled while we prepared.
        if not self._exists(waiting.id):
            remove(self._transport, container)
            self._leases.release(lease)
            return Waiting("another process starts it")
        try:
            self._launcher.start(container, lease)
        except LeaseLostError:
            self._leases.release(lease)
            return Waiting("its GPUs were lost before the start; it waits for others")
        except DaemonError as error:
            self._leases.release(lease)
            if is_withdrawn(error):
                return Waiting("removed before the start")  # cancelled, or pruned: the next look
            return Failed(str(error))
        remove(self._transport, waiting.id)
        return Started()

    def _command_of(self, waiting: Container, body: Mapping[str, Any]) -> str | None:
        if config.COMMAND_FILE not in body["Cmd"]:
            return None
        held = read_from_container(self._transport, waiting.id, config.COMMAND_FILE, _LONGEST)
        return None if held is None else held.decode()

    def _exists(self, container: str) -> bool:
        try:
            self._transport.get(f"/containers/{container}/json")
        except DaemonError as error:
            if error.missing:
                return False
            raise
        return True

    def _beside(self, waiting: Container, present: Container) -> Waiting | Started:
        """The job's own container exists already."""
        if present.started:
            remove(self._transport, waiting.id)
            return Started()
        if self._leases.age(present) > TENTATIVE_SECONDS:
            remove(self._transport, present.id)  # whoever made it died before the start
        return Waiting("being started")


def _why(wish: GpuRequest, usable: int, held: Mapping[str, str]) -> str:
    if not held:
        return f"waiting for GPUs ({wish}): other programs of the host hold them"
    jobs = sorted(set(held.values()))
    named = ", ".join(f"tao-job-{job}" for job in jobs[:3]) + (" …" if len(jobs) > 3 else "")
    return f"waiting for GPUs ({wish} of {usable}): {len(held)} held by {named}"


def _write(wish: GpuRequest) -> str:
    return f"{wish.count}:{','.join(wish.ids)}"


def _read(text: str) -> GpuRequest:
    count, _, ids = text.partition(":")
    return GpuRequest(int(count), tuple(ids.split(",")) if ids else ())
