"""Making and starting job containers, and taking back what was made but not started."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.common.archives import Member, pack
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases, Lease
from tao_sdk.platforms.docker.placeholders import remove, take_name

_LABELS = {config.LABEL: "true"}
_HELPER_LABELS = {**_LABELS, config.LABEL_HELPER: "true"}
_FENCE_LABELS = {**_HELPER_LABELS, config.LABEL_FENCE: "true"}
# Making a network takes a moment; a process that has kept others from it for longer has died.
_NETWORK_SECONDS = 15


class LeaseLostError(SubmissionRejectedError):
    """The GPUs may be another job's by now; nothing was started."""


def job_name(job_id: str) -> str:
    return f"tao-job-{job_id}"


def queued_name(job_id: str) -> str:
    return f"tao-queued-{job_id}"


def refused_name(job_id: str) -> str:
    """The name of a waiting container once the daemon has refused to start its job."""
    return f"tao-refused-{job_id}"


class Launcher:
    """Makes and starts the containers of one daemon."""

    def __init__(self, transport: DockerClient, leases: DaemonLeases) -> None:
        self._transport = transport
        self._leases = leases

    def create(self, name: str, body: Mapping[str, Any], command: str | None) -> str:
        """Make a container that does not run yet, with its command as a file; its id."""
        api = self._transport.api
        try:
            container = api.create(dict(body), name)
        except DaemonError as error:
            if not _network_is_gone(error):
                raise
            ensure_network(self._transport, body["HostConfig"]["NetworkMode"])
            container = api.create(dict(body), name)
        if command is not None:
            api.put_archive(container, "/", _archive(command))
        return container

    def start(self, container: str, lease: Lease | None) -> None:
        """Start a container; if the daemon refuses, the container is removed."""
        if lease is not None and not self._leases.still_held(lease):
            remove(self._transport, container)
            raise LeaseLostError(
                "the GPUs may be another job's by now: this one took too long to start, or "
                "its leases were removed (docker container prune); submit it again"
            )
        locks = lease.descriptors if lease is not None else []
        try:
            with self._leases.locked_until_end(container, locks):
                self._run(container)
        except DaemonError:
            # Refused for certain: a container whose start failed does not run.
            remove(self._transport, container)
            raise

    def remove_waiting(self, job_id: str) -> None:
        """Remove the container in which a job waits, if there is one."""
        # In this order: it may be renamed in between.
        for name in (queued_name(job_id), refused_name(job_id)):
            remove(self._transport, name)

    def remove_own(self, job_id: str) -> bool:
        """Remove a container that has the job's name, if it is the job's; False if it is not."""
        found = self.inspect(job_name(job_id))
        if found is None:
            return True  # another process has removed it meanwhile
        if found["Config"]["Labels"].get(config.LABEL_JOB) != job_id:
            return False
        self._transport.api.remove_container(found["Id"], v=True, force=True)
        return True

    def fence(self, name: str) -> bool:
        """Take a name, so that no container gets it any more; False if another one has it.

        The fence stays until it is swept with other leftovers: the request of a client that was
        killed may still be on its way.
        """
        if take_name(self._transport, name, _FENCE_LABELS) is not None:
            return True
        found = self.inspect(name)
        return found is not None and config.LABEL_FENCE in found["Config"]["Labels"]

    def inspect(self, container: str) -> dict[str, Any] | None:
        """All that the daemon says about a container; None if it is gone."""
        try:
            found: dict[str, Any] = self._transport.api.inspect_container(container)
        except DaemonError as error:
            if error.missing:
                return None
            raise
        return found

    def _run(self, container: str) -> None:
        try:
            self._transport.api.start(container)
        except DaemonError as error:
            found = self.inspect(container)
            if found is not None and container_time(found["State"]["StartedAt"]):
                return  # the error came too late to be a refusal
            if found is None or not _network_is_gone(error):
                raise
            # Pruned since the container was made: a network that no container uses yet.
            ensure_network(self._transport, found["HostConfig"]["NetworkMode"])
            self._transport.api.start(container)


def ensure_network(transport: DockerClient, name: str) -> None:
    """Make the network if it is missing, once, however many clients try at the same time.

    Names of networks are not unique: two requests at once make two, even with the daemon's own
    check, and from then on every container that names it is refused. Names of containers are
    unique, so one of those serves as a lock.
    """
    lock = "tao-network-" + re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    deadline = time.monotonic() + _NETWORK_SECONDS
    while not _network_exists(transport, name):
        holder = take_name(transport, lock, _HELPER_LABELS)
        if holder is None:
            if time.monotonic() > deadline:
                remove(transport, lock)
            time.sleep(0.05)
            continue
        try:
            if not _network_exists(transport, name):
                transport.api.create_network(name, check_duplicate=True, labels=_LABELS)
        finally:
            remove(transport, holder)


def _network_exists(transport: DockerClient, name: str) -> bool:
    try:
        transport.api.inspect_network(name)
    except DaemonError as error:
        if error.missing:
            return False
        raise
    return True


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
