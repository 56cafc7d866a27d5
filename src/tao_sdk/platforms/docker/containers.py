"""Making and starting containers, and taking back what was made but not started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.common.archives import Member, pack
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker import config, placeholders
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases, Lease
from tao_sdk.platforms.docker.network import ensure_network


class LeaseLostError(SubmissionRejectedError):
    """The GPUs may be another job's by now; nothing was started."""


def job_name(job_id: str) -> str:
    return f"tao-job-{job_id}"


def queued_name(job_id: str) -> str:
    return f"tao-queued-{job_id}"


def refused_name(job_id: str) -> str:
    """What a waiting container is called once the daemon has refused to start its job."""
    return f"tao-refused-{job_id}"


class Launcher:
    """Containers of one daemon."""

    def __init__(self, transport: DockerClient, leases: DaemonLeases) -> None:
        self._transport = transport
        self._leases = leases

    def create(self, name: str, body: Mapping[str, Any], command: str | None) -> str:
        """Make a container that does not run yet; its id."""
        try:
            container = self._create(name, body)
        except DaemonError as error:
            if not _network_is_gone(error):
                raise
            ensure_network(self._transport, body["HostConfig"]["NetworkMode"])
            container = self._create(name, body)
        if command is not None:
            self._transport.api.put_archive(container, "/", _archive(command))
        return container

    def start(self, container: str, lease: Lease | None) -> None:
        """Start a container; when the daemon cannot, nothing of it is left."""
        if lease is not None and not self._leases.still_held(lease):
            placeholders.remove(self._transport, container)
            raise LeaseLostError(
                "the GPUs may be another job's by now: this one took too long to start, or "
                "its leases were removed (docker container prune); submit it again"
            )
        locks = lease.descriptors if lease is not None else {}
        try:
            with self._leases.locked_until_end(container, locks):
                self._run(container)
        except DaemonError:
            # Refused for certain: a container whose start failed does not run.
            placeholders.remove(self._transport, container)
            raise

    def remove_waiting(self, job_id: str) -> None:
        """Remove the container in which a job waits; none is no error."""
        # In this order: it may be renamed in between.
        for name in (queued_name(job_id), refused_name(job_id)):
            placeholders.remove(self._transport, name)

    def withdraw(self, container: str) -> bool:
        """Take a container back that was made but not started; False when it has run."""
        return placeholders.withdraw(self._transport, container)

    def remove_own(self, job_id: str) -> bool:
        """Remove a container that has the job's name, if it is the job's; False if it is not."""
        try:
            found = self._transport.api.inspect_container(job_name(job_id))
        except DaemonError as error:
            if error.missing:
                return True  # another process has removed it meanwhile
            raise
        if found["Config"]["Labels"].get(config.LABEL_JOB) != job_id:
            return False
        self._transport.api.remove_container(found["Id"], v=True, force=True)
        return True

    def fence(self, name: str) -> bool:
        """Make sure that nothing comes to be under a name any more: False when something has.

        What takes the name stays there until it is swept with other leftovers: the request of a
        client that was killed may still be on its way.
        """
        labels = {
            config.LABEL: "true",
            config.LABEL_FENCE: "true",
            config.LABEL_HELPER: "true",
        }
        placeholder = placeholders.take_name(self._transport, name, labels)
        return placeholder is not None or self._is_fenced(name)

    def _is_fenced(self, name: str) -> bool:
        try:
            found = self._transport.api.inspect_container(name)
        except DaemonError as error:
            if not error.missing:
                raise
            return False
        return config.LABEL_FENCE in found["Config"]["Labels"]

    def _run(self, container: str) -> None:
        try:
            self._transport.api.start(container)
        except DaemonError as error:
            if self._has_started(container):
                return  # the error came too late to be a refusal
            if not _network_is_gone(error):
                raise
            # Pruned since the container was made: a network that no container uses yet.
            found = self._transport.api.inspect_container(container)
            ensure_network(self._transport, found["HostConfig"]["NetworkMode"])
            self._transport.api.start(container)

    def _has_started(self, container: str) -> bool:
        try:
            state = self._transport.api.inspect_container(container)["State"]
        except DaemonError as error:
            if not error.missing:
                raise
            return False
        return bool(container_time(state["StartedAt"]))

    def _create(self, name: str, body: Mapping[str, Any]) -> str:
        return self._transport.api.create(dict(body), name)


def is_withdrawn(error: DaemonError) -> bool:
    """Whether a start was refused because the container was removed, or is being removed."""
    return error.conflict or (error.missing and "no such container" in str(error).lower())


def _network_is_gone(error: DaemonError) -> bool:
    return error.missing and "network" in str(error)


def _archive(command: str) -> bytes:
    """The command as a file that every user of the container may read."""
    path = config.COMMAND_FILE.strip("/")
    folder = path.partition("/")[0]
    return pack([Member(folder, mode=0o755), Member(path, command, 0o644)])
