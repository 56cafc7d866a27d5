"""What a plan says and what it refuses, apart from the container itself."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import UnsupportedError
from tao_sdk.models import Mount
from tao_sdk.platforms.backend import Artefact, JobIdentity
from tao_sdk.platforms.common.gpu_choice import GpuRequest
from tao_sdk.platforms.common.option_checks import check_image
from tao_sdk.platforms.docker import config, users
from tao_sdk.platforms.docker.client import DockerClient
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.request import JobRequest


def refuse_impossible(request: JobRequest) -> None:
    """Raise for what no daemon could run."""
    if request.num_nodes != 1:
        raise UnsupportedError(
            f"num_nodes: {request.num_nodes} nodes asked for; Docker runs a job on one machine "
            "(SLURM and Kubernetes run it on several)"
        )
    check_image(request.image, "Docker")


def auto_remove() -> bool:
    """DOCKER_AUTO_REMOVE: do we remove containers once everything about them is kept?"""
    return settings.get("DOCKER_AUTO_REMOVE").lower() in ("1", "true", "yes", "on")


def caller() -> users.Caller:
    """Who this process is."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""  # a user that this machine does not know by name
    return users.Caller(uid, os.getgid(), tuple(os.getgroups()), name)


def results_address(results: Mount | None, job_id: str, *, local: bool) -> str:
    """Where the results of a job will be; "" when they stay in its container."""
    if results is None:
        return ""
    if not results.source.startswith("/"):
        return f"docker-volume://{results.source}/{job_id}"
    return f"{results.source}/{job_id}" if local else f"docker-bind://{results.source}/{job_id}"


def artefacts(
    identity: JobIdentity,
    body: Mapping[str, Any],
    secret_names: frozenset[str],
    wish: GpuRequest,
    command: str | None,
    transport: DockerClient,
) -> tuple[Artefact, ...]:
    """What a person is shown: where, and the container word for word."""
    where = [f"daemon {transport.endpoint}", f"name {identity.name}"]
    where.append(f"gpus {wish}, leased when submitted" if wish.any else "gpus none")
    files = () if command is None else (Artefact(config.COMMAND_FILE, command),)
    return (
        Artefact("where", "\n".join(where)),
        Artefact("container", config.shown(body, secret_names)),
        *files,
    )


def notes(
    user: users.ContainerUser,
    results_dir: str,
    wish: GpuRequest,
    request: JobRequest,
    known: Sequence[Gpu] | None,
) -> tuple[str, ...]:
    """What a person should know before submitting."""
    told = [config.SHELL_NOTE]
    if user.note:
        told.append(user.note)
    if not results_dir:
        told.append(
            "no writable mount at /results: what the job writes stays in its container, and its "
            "outcome is known only while the daemon keeps that (S3_BUCKET_NAME sends declared "
            "outputs to a bucket)"
        )
    if wish.any and request.options.when_busy == "wait":
        told.append("a job that waits for GPUs is started by `tao-sdk watch` or `tao-sdk wait`")
    elif wish.any:
        told.append(
            "if the GPUs are taken the job is refused (when_busy='refuse', the default on Docker); "
            "when_busy='wait' queues it"
        )
    listed = {name for gpu in known or () for name in (gpu.index, gpu.key)}
    if unlisted := [name for name in wish.ids if name not in listed]:
        told.append(
            f"gpu_ids: {', '.join(unlisted)} cannot be checked beforehand. A job that names the "
            "same GPU otherwise (by UUID and not by number) may share it, and a part of a GPU "
            "(MIG) is not kept from a job that has the whole GPU"
        )
    return tuple(told)
