"""What killed clients left on the daemon: found by label and age, and removed.

A client that is killed while it makes a container leaves one that was never started, with the
job's environment in it; one killed while it looks at the host leaves a window or a probe. All of
them are of use for seconds, so one of them that is many minutes old, by the daemon's clock, has no
owner who could still want it. Waiting jobs (`tao-queued-<id>`) and leases are not among them:
these may be old and wanted.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.clock import daemon_time
from tao_sdk.platforms.docker.launch import job_name
from tao_sdk.platforms.docker.placeholders import remove
from tao_sdk.platforms.docker.states import Container
from tao_sdk.platforms.docker.transport import DaemonError, DockerTransport

_log = logging.getLogger("tao_sdk.docker")
ABANDONED = timedelta(minutes=10)


def sweep(transport: DockerTransport) -> None:
    """Remove what nobody can want any more."""
    unstarted = _list(transport, {"label": [config.LABEL_TOKEN], "status": ["created"]})
    helpers = _list(transport, {"label": [config.LABEL_HELPER]})
    # By name as well: an image that somebody made of a job's container has its labels.
    found = [one for one in unstarted if one.name == job_name(one.job_id)] + helpers
    if not found:
        return
    now = daemon_time(transport)
    for container in found:
        if is_abandoned(container, now):
            _remove(transport, container)


def is_abandoned(container: Container, now: datetime) -> bool:
    """Is it idle, and has it been for longer than any client takes?"""
    if container.state == "created":
        return now - container.created_at > ABANDONED
    return container.ended and now - container.ended_at(now) > ABANDONED


def _remove(transport: DockerTransport, container: Container) -> None:
    try:
        if remove(transport, container.id):
            _log.info("removed %s, which a client that is gone left behind", container.name)
    except DaemonError as error:
        # Somebody else's rubbish must not keep this client from its work.
        _log.warning("%s, which a client left behind, cannot be removed: %s", container.name, error)


def _list(transport: DockerTransport, filters: dict[str, Any]) -> list[Container]:
    found = transport.get("/containers/json", all=True, filters=filters)
    return [Container.parse(entry) for entry in found]
