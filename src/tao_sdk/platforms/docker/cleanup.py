"""What goes: containers whose end is saved, results that were asked to go, and leftovers.

A client that is killed while it makes a container leaves one that was never started, with the
job's environment in it; one killed while it looks at the host leaves a window or a probe. All of
them are of use for seconds, so one that is many minutes old, by the daemon's clock, is swept.
Waiting jobs (`tao-queued-<id>`) and leases are not among them: these may be old and wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tao_sdk import settings
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.containers import Launcher, job_name
from tao_sdk.platforms.docker.evidence import EvidenceCollector, is_going
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.logs import ContainerLog
from tao_sdk.platforms.docker.placeholders import remove
from tao_sdk.platforms.docker.status import Container, Outcome
from tao_sdk.secrets import redact

_log = logging.getLogger("tao_sdk.docker")
ABANDONED = timedelta(minutes=10)


class Cleanup:
    """Removes what belongs to ended jobs of one daemon."""

    def __init__(
        self,
        transport: DockerClient,
        host: DockerHost,
        launcher: Launcher,
        evidence: EvidenceCollector,
        files: OutcomeFiles[Outcome],
    ) -> None:
        self._transport = transport
        self._host = host
        self._launcher = launcher
        self._evidence = evidence
        self._files = files

    def keep_and_remove(self, job: JobRef, container: Container) -> bool:
        """DOCKER_AUTO_REMOVE: the container goes once log and outcome are on our disk.

        False if it stays, because they cannot be saved; this is to be repeated then.
        """
        try:
            if self._files.outcome(job.job_id) is None:
                outcome, hide = self._evidence.ask_daemon(job, container.id)
                # The values to hide go with the container.
                tail = redact(outcome.log_tail, [*hide, *settings.known_secrets()])
                outcome = replace(outcome, log_tail=tail)
                self._files.keep(job.job_id, outcome, self._whole_log(container.id))
        except (DaemonError, OSError) as error:
            # Gone already: another process has saved it all, or the user removes it.
            going = isinstance(error, DaemonError) and is_going(error)
            if not going:
                _log.warning("%s stays: its log cannot be saved: %s", container.name, error)
            return isinstance(error, DaemonError) and error.missing
        remove(self._transport, container.id)
        return True

    def delete(self, job: JobRef) -> None:
        """Remove results, containers, and what we kept."""
        source = job.native["results"]
        if source:
            self._host.remove_folder(source, job.job_id, job.native["image"])
        self._launcher.remove_waiting(job.job_id)
        remove(self._transport, job_name(job.job_id))
        self._files.remove(job.job_id)

    def _whole_log(self, container: str) -> Iterator[bytes]:
        try:
            yield from ContainerLog(self._transport, container).copy()
        except DaemonError as error:
            # A log driver that keeps nothing: there is no log to lose.
            if "does not support reading" not in str(error):
                raise


def sweep(transport: DockerClient) -> None:
    """Remove what is of no use any more."""
    unstarted = _list(transport, {"label": [config.LABEL_TOKEN], "status": ["created"]})
    helpers = _list(transport, {"label": [config.LABEL_HELPER], "status": ["created", "exited"]})
    # By name as well: an image that was made of a job's container has its labels.
    found = [one for one in unstarted if one.name == job_name(one.job_id)] + helpers
    if not found:
        return
    now = transport.time()
    for container in found:
        if is_abandoned(container, now):
            _remove(transport, container)


def is_abandoned(container: Container, now: datetime) -> bool:
    """Whether an idle container is older than any client needs it."""
    return now - container.created_at > ABANDONED


def _remove(transport: DockerClient, container: Container) -> None:
    try:
        if remove(transport, container.id):
            _log.info("removed %s, which a client that is gone left behind", container.name)
    except DaemonError as error:
        # It must not keep this client from its work.
        _log.warning("%s, which a client left behind, cannot be removed: %s", container.name, error)


def _list(transport: DockerClient, filters: dict[str, Any]) -> list[Container]:
    found = transport.api.containers(all=True, filters=filters)
    return [Container.parse(entry) for entry in found]
