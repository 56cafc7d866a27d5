"""The queue of jobs that wait for GPUs.

A waiting job is a container `tao-queued-<id>` that never runs: it has everything the job needs,
secrets included. When GPUs are free, an attending process leases them, makes the container
`tao-job-<id>` with them, starts it, and removes the waiting container; anything else of the job is
removed only after that. A name can be taken once, so one process of many starts the job, exactly
once, and what a killed process leaves behind the next one can clear away.

First in, first out: no job overtakes an earlier one that wants any of the same GPUs, so large jobs
do not starve. A process that attends or submits a job starts all waiting jobs that can start,
whatever store they are of. A job that the daemon refuses to start is renamed to
`tao-refused-<id>` and holds up no other; a process that attends it tries once more and writes down
the reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    SubmissionRejectedError,
    ValidationError,
)
from tao_sdk.platforms.common.gpu_choice import GpuRequest, choose_gpus
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import (
    Launcher,
    LeaseLostError,
    is_withdrawn,
    job_name,
    queued_name,
    refused_name,
)
from tao_sdk.platforms.docker.gpu_leases import TENTATIVE_SECONDS, Busy, DaemonLeases, Lease
from tao_sdk.platforms.docker.gpus import HOST, with_gpus, with_unlisted
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.placeholders import read_from_container, remove, stat
from tao_sdk.platforms.docker.plan import ContainerOrder
from tao_sdk.platforms.docker.status import Census, Container
from tao_sdk.platforms.gpus.discovery import Gpu

_log = logging.getLogger("tao_sdk.docker")
# Short: the job keeps its place, and others in the line want other GPUs.
_PATIENCE_SECONDS = 0.5
_MAX_COMMAND_BYTES = 64 * 1024 * 1024
_LABEL_REQUEST = "tao-sdk-gpu-wish"
_LABEL_HOST_GPUS = "tao-sdk-host-gpus"
_COPIED = ("Image", "Cmd", "Env", "Labels", "WorkingDir", "User", "Entrypoint", "StopTimeout")


@dataclass(frozen=True)
class Turn:
    """A waiting job and its place in the line."""

    waiting: Container
    keys: frozenset[str] = frozenset()
    """The GPUs that it may take; empty when this process cannot tell."""
    reason: str = ""
    """Why it cannot start now."""
    refused: bool = False
    """The daemon refused to start it."""

    @property
    def may_start(self) -> bool:
        return not self.reason and not self.refused


@dataclass(frozen=True)
class GpuQueue:
    """The waiting jobs of one daemon."""

    transport: DockerClient
    host: DockerHost
    leases: DaemonLeases
    launcher: Launcher

    def add(self, job_id: str, order: ContainerOrder, host_gpus: Sequence[Gpu]) -> str:
        """Put a job into the queue; the id of its waiting container."""
        labels = {
            **order.body["Labels"],
            config.LABEL_QUEUED: f"{time.time_ns():020d}",
            _LABEL_REQUEST: f"{order.gpus.count}:{','.join(order.gpus.ids)}",
            _LABEL_HOST_GPUS: ",".join(f"{gpu.index}={gpu.key}" for gpu in host_gpus),
        }
        body = {**order.body, "Labels": labels}
        return self.launcher.create(queued_name(job_id), body, order.command)

    def is_complete(self, waiting: Container) -> bool:
        """Whether a waiting container has all that its job needs; not if its maker was killed."""
        command = self.transport.api.inspect_container(waiting.id)["Config"]["Cmd"]
        return (
            config.COMMAND_FILE not in command
            or stat(self.transport, waiting.id, config.COMMAND_FILE) is not None
        )

    def line(self, census: Census) -> list[Turn]:
        """The waiting jobs in order, and which of them may start now. Looks only."""
        known = self.host.known_now()
        line: list[Turn] = []
        taken: set[str] = set()
        for waiting in census.in_line():
            line.append(self._turn(waiting, census, known, line, taken))
        return line

    def start_those_before(self, wanted: Sequence[Gpu]) -> tuple[Census, Turn | None]:
        """Start the waiting jobs that can run: it may be that no process attends them.

        Returns the daemon's containers afterwards, and the first job that still waits for any of
        the GPUs `wanted`.
        """
        keys = {gpu.key for gpu in wanted}
        tried: set[str] = set()
        while True:
            census = self.transport.census()
            line = self.line(census)
            can_start = {turn.waiting.id for turn in line if turn.may_start}
            if can_start <= tried:
                return census, next((turn for turn in line if turn.keys & keys), None)
            tried |= can_start
            self.start_in_order((), census)

    def start_in_order(self, attended: Collection[str], census: Census) -> dict[str, str]:
        """Start the waiting jobs that may start.

        Returns which of the `attended` jobs the daemon refuses, and why. Others are set aside.
        """
        refused: dict[str, str] = {}
        blocked: set[str] = set()
        for turn in self.line(census):
            job_id = turn.waiting.job_id
            if turn.refused and job_id not in attended:
                continue
            started = False
            if not turn.reason and not blocked & turn.keys:
                try:
                    started = self._start_waiting(turn.waiting, census)
                except _RefusedError as error:
                    if job_id in attended:
                        refused[job_id] = str(error)
                    else:
                        self._set_aside(turn.waiting)
                    continue
                except (CapacityError, SubmissionRejectedError, ValidationError):
                    continue  # another process may see other GPUs
                except DaemonError as error:
                    _log.warning("%s: %s refused: %s", turn.waiting.name, error.call, error)
                except BackendUnreachableError as error:
                    # The start of one job may hang at its mounts; the others want other GPUs.
                    _log.warning("%s: %s", turn.waiting.name, error)
            if not started:
                blocked |= turn.keys
        return refused

    def _turn(
        self,
        waiting: Container,
        census: Census,
        known: Sequence[Gpu] | None,
        before: Sequence[Turn],
        taken: set[str],
    ) -> Turn:
        present = census.jobs.get(waiting.job_id)
        if present is not None:
            starting = not present.started and self.leases.age(present) <= TENTATIVE_SECONDS
            return Turn(waiting, reason="being started" if starting else "")
        if waiting.name == refused_name(waiting.job_id):
            return Turn(waiting, refused=True)
        host_gpus = _host_gpus(waiting)
        if known is None and host_gpus is None:  # of an earlier version: `advance` finds out
            return Turn(waiting)
        try:
            wanted, usable, count = _candidates(
                waiting, (host_gpus or ()) if known is None else known
            )
        except (CapacityError, ValidationError) as error:
            why = f"waiting for GPUs; this process cannot start it: {error}"
            return Turn(waiting, reason=why)
        keys = frozenset(gpu.key for gpu in usable)
        ahead = [turn.waiting.job_id for turn in before if turn.reason and turn.keys & keys]
        if ahead:
            reason = f"waiting for GPUs ({wanted}): behind {_named(ahead)}"
            return Turn(waiting, keys, reason)
        held = self.leases.look(census, usable)
        free = [gpu.key for gpu in usable if gpu.key not in held and gpu.key not in taken]
        if len(free) < count:
            return Turn(waiting, keys, _why_busy(wanted, len(usable), held))
        taken.update(free[:count])
        return Turn(waiting, keys)

    def _start_waiting(self, waiting: Container, census: Census) -> bool:
        """Whether the job runs now. Raises `_RefusedError` when the daemon cannot start it."""
        present = census.jobs.get(waiting.job_id)
        if present is not None:
            # One that was never started is of a process that died.
            remove(self.transport, waiting.id if present.started else present.id)
            return present.started
        wanted = _request_of(waiting)
        _, usable, count = _candidates(waiting, self.host.gpus_for(waiting.image, wanted))
        lease = self.leases.take(waiting.job_id, usable, count, patience=_PATIENCE_SECONDS)
        if isinstance(lease, Busy):
            return False
        try:
            started = self._start_with(waiting, lease)
        except (DaemonError, _RefusedError):
            self.leases.release(lease)
            raise
        finally:
            lease.close_descriptors()
        if started:
            remove(self.transport, waiting.id)
        else:
            self.leases.release(lease)
        return started

    def _start_with(self, waiting: Container, lease: Lease) -> bool:
        try:
            found = self.transport.api.inspect_container(waiting.id)
            body = {name: found["Config"][name] for name in _COPIED if found["Config"].get(name)}
            for name in (config.LABEL_QUEUED, _LABEL_REQUEST, _LABEL_HOST_GPUS):
                body["Labels"].pop(name, None)
            body["HostConfig"] = found["HostConfig"]
            body = with_gpus(body, lease.gpus, self.transport.info)
            in_a_file = config.COMMAND_FILE in body["Cmd"]
            command = self._command_of(waiting) if in_a_file else None
        except DaemonError as error:
            if error.missing:
                return False  # another process has started it, or it was cancelled
            raise _judged(error) from error
        if in_a_file and command is None:
            if (
                self.leases.age(waiting) < TENTATIVE_SECONDS
                or self.launcher.inspect(waiting.id) is None
            ):
                return False
            raise _RefusedError(
                f"{config.COMMAND_FILE} is missing: the process that submitted the job was killed"
            )
        try:
            container = self._create(waiting.job_id, body, found["Image"], command)
            # The name is ours now. If the waiting container is gone nevertheless, the job was
            # started (and may have ended and been removed) or cancelled while we prepared.
            if self.launcher.inspect(waiting.id) is None:
                remove(self.transport, container)
                return False
            self.launcher.start(container, lease)
        except LeaseLostError:
            return False
        except DaemonError as error:
            if is_withdrawn(error):
                return False  # another process starts it, or it was cancelled or pruned
            raise _judged(error) from error
        return True

    def _create(
        self, job_id: str, body: Mapping[str, Any], image_id: str, command: str | None
    ) -> str:
        try:
            return self.launcher.create(job_name(job_id), body, command)
        except DaemonError as error:
            if not (error.missing and "no such image" in str(error).lower()):
                raise
        # Its tag was removed or moved while it waited: the image itself is kept by its container.
        return self.launcher.create(job_name(job_id), {**body, "Image": image_id}, command)

    def _command_of(self, waiting: Container) -> str | None:
        held = read_from_container(
            self.transport, waiting.id, config.COMMAND_FILE, _MAX_COMMAND_BYTES
        )
        return None if held is None else held.decode()

    def _set_aside(self, waiting: Container) -> None:
        """Tell all processes that the daemon refuses to start a job, so that none waits for it."""
        try:
            self.transport.api.rename(waiting.id, refused_name(waiting.job_id))
        except DaemonError as error:
            if not (error.missing or error.conflict):  # cancelled, or set aside by another process
                _log.warning("%s cannot be renamed: %s", waiting.name, error)


class _RefusedError(Exception):
    """The daemon cannot start a job."""


def _judged(error: DaemonError) -> DaemonError | _RefusedError:
    """The refusal that this error is; the error itself if the daemon just shuts down."""
    refuses = error.status < 500 or (error.call.startswith("POST ") and error.status != 503)
    return _RefusedError(str(error)) if refuses else error


def _why_busy(wanted: GpuRequest, usable: int, held: Mapping[str, str]) -> str:
    if not held:
        return f"waiting for GPUs ({wanted}): earlier jobs or other programs of the host hold them"
    jobs = {job for job in held.values() if job}
    by = f" by {_named(jobs)}" if jobs else " by local jobs"
    return f"waiting for GPUs ({wanted} of {usable}): {len(held)} held{by}"


def _named(jobs: Collection[str]) -> str:
    names = sorted(map(job_name, jobs))
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _request_of(waiting: Container) -> GpuRequest:
    count, _, ids = waiting.labels[_LABEL_REQUEST].partition(":")
    return GpuRequest(int(count), tuple(ids.split(",")) if ids else ())


def _candidates(waiting: Container, seen: Sequence[Gpu]) -> tuple[GpuRequest, list[Gpu], int]:
    """The job's request, which of the GPUs that this process sees it may take, and how many."""
    wanted = _request_of(waiting)
    host_gpus = _host_gpus(waiting)
    if host_gpus is not None:
        keys = {gpu.key for gpu in host_gpus}
        indexes = {gpu.index for gpu in host_gpus}
        seen = [gpu for gpu in seen if gpu.key in keys or gpu.index in indexes]
        wanted = GpuRequest(len(keys)) if wanted.count == -1 else wanted
    return wanted, *choose_gpus(with_unlisted(seen, wanted), wanted, HOST)


def _host_gpus(waiting: Container) -> list[Gpu] | None:
    """The GPUs of the host as the job's submitter saw them."""
    text = waiting.labels.get(_LABEL_HOST_GPUS)
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return [Gpu(index, key) for index, _, key in pairs]
