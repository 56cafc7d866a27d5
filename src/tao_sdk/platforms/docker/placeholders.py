"""Containers that never run: names used as locks, and windows onto the host's files.

A container's name is unique on a daemon, and making one is atomic: all that a lock needs. These
containers are made from an empty image of our own, cost milliseconds and need no other image.
"""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from docker.utils import decode_json_header

from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.client import DaemonError, DockerClient

REPOSITORY, TAG = "tao-sdk-placeholder", "1"
_IMAGE = f"{REPOSITORY}:{TAG}"
_EMPTY_TAR = bytes(10_240)
WINDOW = "/window"
"""Where a window shows a path of the host."""
# The daemon writes modes as Go does: folder, link, device, pipe, socket, character device.
_FOLDER = 1 << 31
_NOT_REGULAR = _FOLDER | 1 << 27 | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21


def take_name(transport: DockerClient, name: str, labels: Mapping[str, str]) -> str | None:
    """Take a name: the id of its placeholder, or None when it is taken."""
    try:
        return _create(transport, name, labels, {})
    except DaemonError as error:
        if error.conflict:
            return None
        raise


def remove(transport: DockerClient, container: str) -> bool:
    """Remove a container that is not running; False when it was gone already or lives."""
    try:
        transport.api.remove_container(container, v=True)
    except DaemonError as error:
        if error.missing or error.conflict:
            return False
        raise
    return True


def withdraw(transport: DockerClient, container: str) -> bool:
    """Take a container back that was made but not started; False when it has run."""
    # Asking for the details waits for a start that is under way; a running container is not
    # removed without force; and what is removed cannot be started any more.
    try:
        found = transport.api.inspect_container(container)
    except DaemonError as error:
        if error.missing:
            return True
        raise
    return found["State"]["Status"] == "created" and remove(transport, container)


@contextmanager
def window(transport: DockerClient, source: str, image: str = "") -> Iterator[str]:
    """A container through which a folder, file or volume of the daemon's host can be read.

    Raises `DaemonError` when there is no such path. With an `image` that the host has, nothing is
    made but the container, which is removed again.
    """
    kind = "bind" if source.startswith("/") else "volume"
    if kind == "volume":
        _demand_volume(transport, source)
    mount = {"Type": kind, "Source": source, "Target": WINDOW, "ReadOnly": True}
    name = f"tao-window-{uuid.uuid4().hex[:12]}"
    labels = {config.LABEL: "true", config.LABEL_HELPER: "true"}
    container = _create(transport, name, labels, {"Mounts": [mount]}, image)
    try:
        yield container
    finally:
        remove(transport, container)


def _demand_volume(transport: DockerClient, name: str) -> None:
    """A container that names a volume would make it, and looking must not."""
    try:
        transport.api.inspect_volume(name)
    except DaemonError as error:
        if error.missing:
            raise DaemonError(404, f"the volume {name} does not exist", error.call) from error
        raise


class PathStat(NamedTuple):
    """A path in a container, as the daemon describes it."""

    size: int
    mode: int

    @classmethod
    def parse(cls, described: Mapping[str, Any]) -> PathStat:
        return cls(int(described["size"]), int(described["mode"]))

    @property
    def is_folder(self) -> bool:
        return bool(self.mode & _FOLDER)

    @property
    def is_regular(self) -> bool:
        return not self.mode & _NOT_REGULAR


def stat(transport: DockerClient, container: str, path: str) -> PathStat | None:
    """What a path in a container is; None when there is none."""
    try:
        headers = transport.api.head_archive(container, path).headers
    except DaemonError as error:
        if error.missing:
            return None
        raise
    return PathStat.parse(decode_json_header(headers["X-Docker-Container-Path-Stat"]))


def read_file(transport: DockerClient, source: str, path: str, limit: int) -> bytes | None:
    """A small file below a folder or volume of the daemon's host; None when it is not there."""
    try:
        with window(transport, source) as container:
            return read_from_container(transport, container, f"{WINDOW}/{path}", limit)
    except DaemonError as error:
        if error.missing or "does not exist" in str(error):
            return None
        raise


def read_from_container(
    transport: DockerClient, container: str, path: str, limit: int
) -> bytes | None:
    """A small file in a container, running or not; None when there is none."""
    try:
        pieces, described = transport.api.get_archive(container, path)
        found = PathStat.parse(described)
        if found.size > limit or not found.is_regular:
            return None
        with transport.reaching():
            data = b"".join(pieces)
    except DaemonError as error:
        if error.missing or "not a directory" in str(error):
            return None
        raise
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            held = archive.extractfile(member) if member.isfile() else None
            if held is not None:
                return held.read()
    return None


def _create(
    transport: DockerClient,
    name: str,
    labels: Mapping[str, str],
    host: Mapping[str, Any],
    image: str = "",
) -> str:
    body = {
        "Image": image or _IMAGE,
        "Cmd": ["never-runs"],
        "Labels": dict(labels),
        "HostConfig": {"NetworkMode": "none", **host},
    }
    try:
        return transport.api.create(body, name)
    except DaemonError as error:
        if image or not error.missing:
            raise
    transport.api.import_image_from_data(_EMPTY_TAR, REPOSITORY, TAG)
    return transport.api.create(body, name)
