"""The network of job containers: made when missing, once."""

from __future__ import annotations

import re
import time

from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.placeholders import remove, take_name

_LABELS = {config.LABEL: "true"}
_RIGHT_LABELS = {**_LABELS, config.LABEL_HELPER: "true"}
# Making a network takes a moment; a process that holds the right to it for longer has died.
_LONGEST_SECONDS = 15


def ensure_network(transport: DockerClient, name: str) -> None:
    """Have a network of that name, however many clients want it at the same time.

    Names of networks are not unique: two requests at once make two, even with the daemon's own
    check, and from then on every container that names it is refused. Names of containers are
    unique, so one of those is taken first.
    """
    right = "tao-network-" + re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    deadline = time.monotonic() + _LONGEST_SECONDS
    while not _exists(transport, name):
        holder = take_name(transport, right, _RIGHT_LABELS)
        if holder is None:
            if time.monotonic() > deadline:
                remove(transport, right)
            time.sleep(0.05)
            continue
        try:
            if not _exists(transport, name):
                transport.api.create_network(name, check_duplicate=True, labels=_LABELS)
        finally:
            remove(transport, holder)


def _exists(transport: DockerClient, name: str) -> bool:
    try:
        transport.api.inspect_network(name)
    except DaemonError as error:
        if error.missing:
            return False
        raise
    return True
