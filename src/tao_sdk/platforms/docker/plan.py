"""A request becomes a plan: checked, with the container word for word. Looks, creates nothing."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tao_sdk import settings
from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.backend import Artefact, JobIdentity, Plan
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.gpu_choice import GpuRequest, choose_gpus
from tao_sdk.platforms.common.mounts import results_mount
from tao_sdk.platforms.common.option_checks import check_image
from tao_sdk.platforms.docker import config, gpus, users
from tao_sdk.platforms.docker.client import DockerClient
from tao_sdk.platforms.docker.host import DockerHost
from tao_sdk.platforms.docker.identity import Identity
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import results_in_bucket, runner_settings, stop_seconds


class ContainerOrder(NamedTuple):
    """The payload of a plan."""

    body: Mapping[str, Any]
    """The body of the create call, without GPUs. Has secrets."""
    gpus: GpuRequest
    command: str | None
    """The text of COMMAND_FILE, when the command is too long for a command line."""
    folders: Sequence[Path]
    """Folders of this machine to be made."""


def make_plan(
    request: JobRequest,
    identity: JobIdentity,
    transport: DockerClient,
    host: DockerHost,
    daemon: Identity,
) -> Plan:
    """Say exactly what a submission would do; raise for what cannot run."""
    _refuse_impossible(request)
    wanted = gpus.request_of(request)
    info, local = transport.info, transport.endpoint.local
    known = host.known_gpus() if wanted.any else None
    if known is not None:
        choose_gpus(gpus.with_unlisted(known, wanted), wanted, gpus.HOST)
    mounts: tuple[Mount, ...] = request.options.mounts
    folders = _missing_folders(mounts) if local else []
    results = results_mount(mounts)
    user = users.choose(
        request.options, _caller(), local=local, results=results is not None, info=info
    )
    credentials = job_credentials(request.env)
    body = config.container_config(
        request,
        config.ContainerSettings(
            job_id=identity.job_id,
            token=identity.token,
            network=settings.get("DOCKER_NETWORK"),
            user=user,
            info=info,
            credentials=credentials,
            runner=runner_settings(request),
            stop_seconds=stop_seconds(runner=request.payload is not None),
            keep_container=not _auto_remove(),
        ),
    )
    secret_names = frozenset({*request.env, *credentials})
    order = ContainerOrder(body, wanted, config.command_file(request.shell_command), folders)
    if results is None:
        results_dir = results_in_bucket(request, config.environment_of(body), identity.job_id)
    else:
        results_dir = _results_address(results, identity.job_id, local=local)
    is_here = local and results is not None and results.source.startswith("/")
    return Plan(
        identity=identity,
        platform="docker",
        request=request,
        artefacts=_artefacts(identity, order, secret_names, transport),
        intent={
            **daemon.known().native(),
            "endpoint": transport.endpoint.url,
            "results": results.source if results else "",
            "image": request.image,
            "secret_names": sorted(secret_names),
        },
        results_dir=results_dir,
        local_results_dir=results_dir if is_here else "",
        warnings=_notes(user, results_dir, wanted, request, known),
        payload=order,
    )


def _refuse_impossible(request: JobRequest) -> None:
    if request.num_nodes != 1:
        raise UnsupportedError(
            f"num_nodes: {request.num_nodes} nodes asked for; Docker runs a job on one machine "
            "(SLURM and Kubernetes run it on several)"
        )
    check_image(request.image, "Docker")


def _missing_folders(mounts: Sequence[Mount]) -> list[Path]:
    """The folders to be made on this machine; a remote daemon checks its own."""
    missing = []
    for number, mount in enumerate(mounts):
        source = Path(mount.source)
        if not source.is_absolute() or source.exists():
            continue
        if mount.read_only:
            raise ValidationError(
                f"mounts[{number}]: {source} is not on this machine, and a read-only mount of "
                "nothing makes no sense"
            )
        missing.append(source)
    return missing


def _auto_remove() -> bool:
    """DOCKER_AUTO_REMOVE: whether we remove containers once everything about them is kept."""
    return settings.get("DOCKER_AUTO_REMOVE").lower() in ("1", "true", "yes", "on")


def _caller() -> users.Caller:
    """The user of this process."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""  # a user that this machine does not know by name
    return users.Caller(uid, os.getgid(), tuple(os.getgroups()), name)


def _results_address(results: Mount, job_id: str, *, local: bool) -> str:
    if not results.source.startswith("/"):
        return f"docker-volume://{results.source}/{job_id}"
    return f"{results.source}/{job_id}" if local else f"docker-bind://{results.source}/{job_id}"


def _artefacts(
    identity: JobIdentity,
    order: ContainerOrder,
    secret_names: frozenset[str],
    transport: DockerClient,
) -> tuple[Artefact, ...]:
    where = [f"daemon {transport.endpoint}", f"name {identity.name}"]
    where.append(f"gpus {order.gpus}, leased when submitted" if order.gpus.any else "gpus none")
    shown = [
        Artefact("where", "\n".join(where)),
        Artefact("container", config.shown(order.body, secret_names)),
    ]
    if order.command is not None:
        shown.append(Artefact(config.COMMAND_FILE, order.command))
    return tuple(shown)


def _notes(
    user: users.ContainerUser,
    results_dir: str,
    wanted: GpuRequest,
    request: JobRequest,
    known: Sequence[Gpu] | None,
) -> tuple[str, ...]:
    """What the user should know before submitting."""
    notes = [config.SHELL_NOTE]
    if user.note:
        notes.append(user.note)
    if not results_dir:
        notes.append(
            "no writable mount at /results: what the job writes stays in its container, and its "
            "outcome is known only while the daemon keeps that (S3_BUCKET_NAME sends declared "
            "outputs to a bucket)"
        )
    if wanted.any and request.options.when_busy == "wait":
        notes.append("a job that waits for GPUs is started by `tao-sdk watch` or `tao-sdk wait`")
    elif wanted.any:
        notes.append(
            "if the GPUs are taken the job is refused (when_busy='refuse', the default on Docker); "
            "when_busy='wait' queues it"
        )
    listed = {name for gpu in known or () for name in (gpu.index, gpu.key)}
    if unlisted := [name for name in wanted.ids if name not in listed]:
        notes.append(
            f"gpu_ids: {', '.join(unlisted)} cannot be checked beforehand. A job that names the "
            "same GPU otherwise (by UUID and not by number) may share it, and a part of a GPU "
            "(MIG) is not kept from a job that has the whole GPU"
        )
    return tuple(notes)
