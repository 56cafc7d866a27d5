"""Paths of a Docker host that is another machine, seen through containers that never run."""

from __future__ import annotations

from collections.abc import Iterator

from tao_sdk.platforms.docker import placeholders
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.host import locate
from tao_sdk.preflight import json_records
from tao_sdk.preflight.checks import Check
from tao_sdk.preflight.data import FILE, FOLDER, MISSING, Look, data_checks, wanted_fields
from tao_sdk.preflight.paths import file_path, not_a_path
from tao_sdk.preflight.request import PreflightRequest

_VOLUME = "docker-volume://"


def remote_checks(
    transport: DockerClient, request: PreflightRequest, label: str, image: str
) -> Iterator[Check]:
    """Findings about one path; `image` is one that the host has."""
    address = request.paths[label]
    source, below = locate(address) if address.startswith(_VOLUME) else (file_path(address), "")
    if not source:
        yield from not_a_path(request, label)
        return
    if not below and source.startswith("/"):
        source = source.rstrip("/") or "/"
    look = _look(transport, request, label, image, (source, below))
    remedy = (
        f"Copy the data to {address} on the Docker host. A path of this machine is not one there."
    )
    yield from data_checks(
        request, label, look, f"the Docker host ({transport.endpoint.url})", remedy
    )


def _look(
    transport: DockerClient,
    request: PreflightRequest,
    label: str,
    image: str,
    place: tuple[str, str],
) -> Look:
    source, below = place
    try:
        with placeholders.window(transport, source, image) as window:
            inside = f"{placeholders.WINDOW}/{below}".rstrip("/")
            stat = placeholders.stat(transport, window, inside)
            if stat is None:
                return Look(MISSING)
            if stat.is_folder:
                return Look(FOLDER)
            fields = wanted_fields(request, label)
            if fields is None:
                return Look(FILE)
            if stat.size > json_records.LARGEST:
                return Look(FILE, {"too_large": True})
            data = placeholders.read_from_container(transport, window, inside, json_records.LARGEST)
    except DaemonError as error:
        if "does not exist" in str(error):
            return Look(MISSING)
        raise
    if data is None:
        return Look(FILE, {"error": "it is no regular file"})
    return Look(FILE, json_records.examine_text(data, fields, request.sample_limit))
