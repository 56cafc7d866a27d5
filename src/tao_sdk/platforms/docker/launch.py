"""Making and starting containers, and taking back what was made but not started."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.platforms.docker import config, lease_holder, placeholders
from tao_sdk.platforms.docker.leases import TENTATIVE_SECONDS, DaemonLeases, Lease
from tao_sdk.platforms.docker.transport import DaemonError, DockerTransport


def job_name(job_id: str) -> str:
    return f"tao-job-{job_id}"


def queued_name(job_id: str) -> str:
    return f"tao-queued-{job_id}"


class Launcher:
    """Containers of one daemon."""

    def __init__(
        self, transport: DockerTransport, leases: DaemonLeases, make_network: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._leases = leases
        self._make_network = make_network

    def create(self, name: str, body: Mapping[str, Any], command: str | None) -> str:
        """Make a container that does not run yet; its id."""
        try:
            container = self._create(name, body)
        except DaemonError as error:
            if not (error.missing and "network" in str(error)):
                raise
            self._make_network()  # somebody removed it since we looked
            container = self._create(name, body)
        if command is not None:
            self._transport.upload(
                "PUT", f"/containers/{container}/archive", _archive(command), {}, path="/"
            )
        return container

    def start(self, container: str, lease: Lease | None) -> None:
        """Start a container; when the daemon cannot, nothing of it is left."""
        # This machine may have slept: others may have taken our GPUs for abandoned.
        slept = lease is not None and lease.age > TENTATIVE_SECONDS / 2
        if lease is not None and slept and not self._leases.still_held(lease):
            placeholders.remove(self._transport, container)
            raise SubmissionRejectedError(
                "the GPUs were given to another job because this one took too long to start; "
                "submit it again"
            )
        try:
            self._transport.post(f"/containers/{container}/start")
        except DaemonError:
            # Refused for certain: a container whose start failed does not run.
            placeholders.remove(self._transport, container)
            raise
        if lease is not None and lease.descriptors:
            path = self._transport.endpoint.url.removeprefix("unix://")
            lease_holder.start(path, container, lease.descriptors.values())

    def withdraw(self, container: str) -> bool:
        """Take a container back that was made but not started; False when it has run."""
        # Asking for the details waits for a start that is under way; a running container is not
        # removed without force; and what is removed cannot be started any more.
        try:
            found = self._transport.get(f"/containers/{container}/json")
        except DaemonError as error:
            if error.missing:
                return True
            raise
        if found["State"]["Status"] != "created":
            return False
        return placeholders.remove(self._transport, container)

    def remove_own(self, job_id: str) -> bool:
        """Remove a container that has the job's name, if it is the job's; False if it is not."""
        found = self._transport.get(f"/containers/{job_name(job_id)}/json")
        if found["Config"]["Labels"].get(config.LABEL_JOB) != job_id:
            return False
        self._transport.delete(f"/containers/{found['Id']}", force=True, v=True)
        return True

    def fence(self, name: str) -> bool:
        """Make sure that a name is not about to be used: False when it is."""
        labels = {config.LABEL: "true", config.LABEL_FENCE: "true"}
        placeholder = placeholders.take_name(self._transport, name, labels)
        if placeholder is None:
            self._remove_fence(name)
            return False
        placeholders.remove(self._transport, placeholder)
        return True

    def _remove_fence(self, name: str) -> None:
        """Remove what a settler that was killed left under this name, if it is that."""
        try:
            found = self._transport.get(f"/containers/{name}/json")
        except DaemonError as error:
            if not error.missing:
                raise
            return
        if config.LABEL_FENCE in found["Config"]["Labels"]:
            placeholders.remove(self._transport, found["Id"])

    def _create(self, name: str, body: Mapping[str, Any]) -> str:
        return str(self._transport.post("/containers/create", dict(body), name=name)["Id"])


def _archive(command: str) -> bytes:
    """The command as a file that every user of the container may read."""
    data = command.encode()
    folder, _, name = config.COMMAND_FILE.strip("/").partition("/")
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        made = tarfile.TarInfo(folder)
        made.type, made.mode, made.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
        archive.addfile(made)
        file = tarfile.TarInfo(f"{folder}/{name}")
        file.size, file.mode, file.mtime = len(data), 0o644, int(time.time())
        archive.addfile(file, io.BytesIO(data))
    return held.getvalue()
