"""Jobs that wait for GPUs.

A waiting job is a container `tao-queued-<id>` that never runs: it holds everything the job needs,
secrets included, on the daemon. An attending process starts it when GPUs are free: leases first,
then a container `tao-job-<id>` with those GPUs. That name can be taken once, and the waiting
container goes only after the job has started, and before the job's own: so one process of many
starts it, exactly once, and one that dies in between leaves something that the next one can clear
away.

First in, first out: a job does not overtake an earlier one that wants any of the same GPUs, so
large jobs do not starve. Any attending or submitting process starts the jobs that are before its
own, whatever store they are of. A job that the daemon refuses to start is renamed to
`tao-refused-<id>`: it holds up no other, until a process that attends it tries once more and writes
down why it cannot run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tao_sdk.errors import CapacityError, SubmissionRejectedError, ValidationError
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
from tao_sdk.platforms.docker.placeholders import read_from_container, remove, stat
from tao_sdk.platforms.docker.status import Census, Container
from tao_sdk.platforms.gpus.discovery import Gpu

_log = logging.getLogger("tao_sdk.docker")
MAX_COMMAND_BYTES = 64 * 1024 * 1024
_LABEL_WISH = "tao-sdk-gpu-wish"
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


def up_to(line: Sequence[Turn], job_id: str) -> Iterator[Turn]:
    """The turn of a job, and those before it for which it has to wait, last first."""
    keys: set[str] | None = None
    for turn in reversed(line):
        if keys is None and turn.waiting.job_id == job_id:
            keys = set(turn.keys)
            yield turn
        elif keys and keys & turn.keys:
            keys |= turn.keys
            yield turn


class GpuQueue:
    """The waiting jobs of one daemon, as far as we look after them."""

    def __init__(
        self,
        transport: DockerClient,
        leases: DaemonLeases,
        launcher: Launcher,
    ) -> None:
        self._transport = transport
        self._leases = leases
        self._launcher = launcher

    def add(
        self,
        job_id: str,
        body: Mapping[str, Any],
        command: str | None,
        wish: GpuRequest,
        host_gpus: Sequence[Gpu],
    ) -> str:
        """Put a job into the queue; the id of its waiting container."""
        labels = {
            **body["Labels"],
            config.LABEL_QUEUED: f"{time.time_ns():020d}",
            _LABEL_WISH: _write(wish),
            _LABEL_HOST_GPUS: ",".join(f"{gpu.index}={gpu.key}" for gpu in host_gpus),
        }
        return self._launcher.create(queued_name(job_id), {**body, "Labels": labels}, command)

    def line(self, census: Census, known: Sequence[Gpu] | None) -> list[Turn]:
        """The waiting jobs in order, and which of them may start now. Looks only.

        `known` are the GPUs as this process sees them; None where that takes a container.
        """
        line: list[Turn] = []
        taken: set[str] = set()
        for waiting in census.in_line():
            line.append(self._turn(waiting, census, known, line, taken))
        return line

    def first_in_the_way(
        self, census: Census, known: Sequence[Gpu], wanted: Sequence[Gpu]
    ) -> Turn | None:
        """The first job that waits for any of these GPUs."""
        keys = {gpu.key for gpu in wanted}
        return next((turn for turn in self.line(census, known) if turn.keys & keys), None)

    def start_in_order(
        self,
        jobs: Collection[str],
        census: Census,
        known: Sequence[Gpu] | None,
        discover: Callable[[str, GpuRequest], Sequence[Gpu]],
        info: Mapping[str, Any],
    ) -> dict[str, str]:
        """Start those jobs that may start, and whatever is before them in the line.

        Returns why the daemon refuses those that it does refuse.
        """
        refused: dict[str, str] = {}
        blocked: set[str] = set()
        line = self.line(census, known)
        wanted = {turn.waiting.id for job_id in jobs for turn in up_to(line, job_id)}
        for turn in line:
            job_id = turn.waiting.job_id
            if turn.waiting.id not in wanted or (turn.refused and job_id not in jobs):
                continue
            started = False
            if not turn.reason and not blocked & turn.keys:
                try:
                    started = self._start_waiting(turn.waiting, census, discover, info)
                except _RefusedError as error:
                    if job_id in jobs:
                        refused[job_id] = str(error)
                    else:
                        self.set_aside(turn.waiting)
                    continue
                except (CapacityError, SubmissionRejectedError, ValidationError):
                    continue  # another process may see other GPUs
                except DaemonError as error:
                    _log.warning("%s: %s refused: %s", turn.waiting.name, error.call, error)
            if not started:
                blocked |= turn.keys
        return refused

    def set_aside(self, waiting: Container) -> None:
        """Tell all processes that the daemon refuses to start a job, so that none waits for it."""
        try:
            self._transport.api.rename(waiting.id, refused_name(waiting.job_id))
        except DaemonError as error:
            if not (error.missing or error.conflict):  # cancelled, or set aside by another process
                _log.warning("%s cannot be renamed: %s", waiting.name, error)

    def is_complete(self, waiting: Container) -> bool:
        """Whether a waiting container has all that its job needs; not if its maker was killed."""
        command = self._transport.api.inspect_container(waiting.id)["Config"]["Cmd"]
        return (
            config.COMMAND_FILE not in command
            or stat(self._transport, waiting.id, config.COMMAND_FILE) is not None
        )

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
            stuck = not present.started and self._leases.age(present) <= TENTATIVE_SECONDS
            return Turn(waiting, reason="being started" if stuck else "")
        if waiting.name == refused_name(waiting.job_id):
            return Turn(waiting, refused=True)
        host_gpus = _host_gpus(waiting)
        if known is None and host_gpus is None:  # of an earlier version: `advance` finds out
            return Turn(waiting)
        try:
            wish, usable, count = _candidates(
                waiting, (host_gpus or ()) if known is None else known
            )
        except (CapacityError, ValidationError) as error:
            why = f"waiting for GPUs; this process cannot start it: {error}"
            return Turn(waiting, reason=why)
        keys = frozenset(gpu.key for gpu in usable)
        ahead = [turn.waiting for turn in before if turn.reason and turn.keys & keys]
        if ahead:
            names = _named([one.job_id for one in ahead])
            return Turn(waiting, keys, f"waiting for GPUs ({wish}): behind {names}")
        held = self._leases.look(census, usable)
        free = [gpu.key for gpu in usable if gpu.key not in held and gpu.key not in taken]
        if len(free) < count:
            return Turn(waiting, keys, _why(wish, len(usable), held))
        taken.update(free[:count])
        return Turn(waiting, keys)

    def _start_waiting(
        self,
        waiting: Container,
        census: Census,
        discover: Callable[[str, GpuRequest], Sequence[Gpu]],
        info: Mapping[str, Any],
    ) -> bool:
        """Whether the job runs now. Raises `_RefusedError` when the daemon cannot start it."""
        present = census.jobs.get(waiting.job_id)
        if present is not None:
            return self._clear(waiting, present)
        _, usable, count = _candidates(
            waiting, discover(waiting.image, _read(waiting.labels[_LABEL_WISH]))
        )
        lease = self._leases.take(waiting.job_id, usable, count)
        if isinstance(lease, Busy):
            return False
        try:
            return self._start(waiting, lease, info)
        finally:
            lease.close_descriptors()

    def _start(self, waiting: Container, lease: Lease, info: Mapping[str, Any]) -> bool:
        try:
            started = self._start_with(waiting, lease, info)
        except (DaemonError, _RefusedError):
            self._leases.release(lease)
            raise
        if started:
            remove(self._transport, waiting.id)
        else:
            self._leases.release(lease)
        return started

    def _start_with(self, waiting: Container, lease: Lease, info: Mapping[str, Any]) -> bool:
        try:
            found = self._transport.api.inspect_container(waiting.id)
            body = {name: found["Config"][name] for name in _COPIED if found["Config"].get(name)}
            labels = body["Labels"]
            for name in (config.LABEL_QUEUED, _LABEL_WISH, _LABEL_HOST_GPUS):
                labels.pop(name, None)
            given = with_gpus({**body, "HostConfig": found["HostConfig"]}, lease.gpus, info)
            command = self._command_of(waiting, given)
        except DaemonError as error:
            if error.missing:
                return False  # another process has started it, or it was cancelled
            raise _judged(error) from error
        except _IncompleteError as error:
            if self._leases.age(waiting) < TENTATIVE_SECONDS or not self._exists(waiting.id):
                return False
            raise _RefusedError(str(error)) from error
        try:
            container = self._create(waiting.job_id, given, found["Image"], command)
            # The name is ours now. If the waiting container is gone nevertheless, the job was
            # started (and may have ended and been removed) or cancelled while we prepared.
            if not self._exists(waiting.id):
                remove(self._transport, container)
                return False
            self._launcher.start(container, lease)
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
            return self._launcher.create(job_name(job_id), body, command)
        except DaemonError as error:
            if not (error.missing and "no such image" in str(error).lower()):
                raise
        # Its tag was removed or moved while it waited: the image itself is kept by its container.
        return self._launcher.create(job_name(job_id), {**body, "Image": image_id}, command)

    def _command_of(self, waiting: Container, body: Mapping[str, Any]) -> str | None:
        if config.COMMAND_FILE not in body["Cmd"]:
            return None
        held = read_from_container(
            self._transport, waiting.id, config.COMMAND_FILE, MAX_COMMAND_BYTES
        )
        if held is None:
            raise _IncompleteError(
                f"{config.COMMAND_FILE} is missing: the process that submitted the job was killed"
            )
        return held.decode()

    def _exists(self, container: str) -> bool:
        try:
            self._transport.api.inspect_container(container)
        except DaemonError as error:
            if error.missing:
                return False
            raise
        return True

    def _clear(self, waiting: Container, present: Container) -> bool:
        """The job has a container: whether it runs. Remove what is not needed any more."""
        if present.started:
            remove(self._transport, waiting.id)
            return True
        remove(self._transport, present.id)  # its maker died before the start
        return False


class _RefusedError(Exception):
    """The daemon cannot start a job."""


class _IncompleteError(Exception):
    """The waiting container has not, or not yet, all that its job needs."""


def _judged(error: DaemonError) -> DaemonError | _RefusedError:
    """The same error, or the refusal that it is: not the trouble of a daemon that shuts down."""
    refuses = error.status < 500 or (error.call.startswith("POST ") and error.status != 503)
    return _RefusedError(str(error)) if refuses else error


def _why(wish: GpuRequest, usable: int, held: Mapping[str, str]) -> str:
    if not held:
        return f"waiting for GPUs ({wish}): earlier jobs or other programs of the host hold them"
    jobs = {job for job in held.values() if job}
    by = f" by {_named(jobs)}" if jobs else " by local jobs"
    return f"waiting for GPUs ({wish} of {usable}): {len(held)} held{by}"


def _named(jobs: Collection[str]) -> str:
    names = sorted(jobs)
    return ", ".join(f"tao-job-{job}" for job in names[:3]) + (" …" if len(names) > 3 else "")


def _write(wish: GpuRequest) -> str:
    return f"{wish.count}:{','.join(wish.ids)}"


def _read(text: str) -> GpuRequest:
    count, _, ids = text.partition(":")
    return GpuRequest(int(count), tuple(ids.split(",")) if ids else ())


def _candidates(waiting: Container, seen: Sequence[Gpu]) -> tuple[GpuRequest, list[Gpu], int]:
    """What a job asks for, which of the GPUs that this process sees it may take, and how many."""
    wish = _read(waiting.labels[_LABEL_WISH])
    host_gpus = _host_gpus(waiting)
    if host_gpus is not None:
        keys = {gpu.key for gpu in host_gpus}
        indexes = {gpu.index for gpu in host_gpus}
        seen = [gpu for gpu in seen if gpu.key in keys or gpu.index in indexes]
        wish = GpuRequest(len(keys)) if wish.count == -1 else wish
    return wish, *choose_gpus(with_unlisted(seen, wish), wish, HOST)


def _host_gpus(waiting: Container) -> list[Gpu] | None:
    """The GPUs of the host as the job's submitter saw them."""
    text = waiting.labels.get(_LABEL_HOST_GPUS)
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return [Gpu(index, key) for index, _, key in pairs]
