"""The plan of a local job: what its supervisor will be ordered to run. Looks, never creates."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tao_sdk import settings
from tao_sdk.errors import CapacityError, ValidationError
from tao_sdk.platforms.backend import Artefact, JobIdentity, Plan
from tao_sdk.platforms.common.container_command import MAX_ARGUMENT_BYTES, fits_argument
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.gpu_choice import GpuRequest, choose_gpus, refuse_own_choice
from tao_sdk.platforms.gpus import leases
from tao_sdk.platforms.gpus.leases import OuterLease
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.platforms.local.observe import reaching
from tao_sdk.platforms.local.orders import Orders, StagedFiles, current_umask
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import stop_seconds
from tao_sdk.process_identity import this_host
from tao_sdk.result_record import shim_argv
from tao_sdk.secrets import PLACEHOLDER

if TYPE_CHECKING:
    from tao_sdk.platforms.gpus.discovery import Gpu

_IMAGE_NOTE = "image {} is recorded, not used: local jobs are plain processes"

MAX_PROCESSES = 1024
"""Nodes of a job, each of which is a process of this machine with a log of its own."""


def plan_command(platform: str, root: Path, request: JobRequest, identity: JobIdentity) -> Plan:
    """A plan that runs the request's command in a shell."""
    chosen = request.options.results_root
    results_root = _check_results_root(chosen) if chosen else root / "results"
    files, argv = _command(request.shell_command, JobFolder(root / "jobs" / identity.job_id))
    staged = StagedFiles(files, [results_root / identity.job_id])
    return plan_argv(platform, root, request, identity, argv, staged, results_root, {})


def plan_argv(
    platform: str,
    root: Path,
    request: JobRequest,
    identity: JobIdentity,
    argv: Sequence[str],
    staged: StagedFiles,
    results_root: Path,
    extra_env: Mapping[str, str],
) -> Plan:
    """A plan that starts exactly these words, for a job below the folder `root`."""
    _check_words(argv)
    refuse_own_choice(request, "CUDA_VISIBLE_DEVICES")
    if request.num_nodes > MAX_PROCESSES:
        raise CapacityError(
            f"num_nodes: {request.num_nodes} nodes asked for; here each is a process of this "
            f"machine, at most {MAX_PROCESSES}"
        )
    folder = JobFolder(root / "jobs" / identity.job_id)
    cwd = _check_cwd(request.options.cwd)
    # The lease of the local job in which this process runs, if it has GPUs.
    outer = OuterLease.parse(settings.lookup("TAO_LEASED_GPUS"))
    usable, per_node = _gpus_for(request, outer)
    visible = {
        "TAO_JOB_ID": identity.job_id,
        "TAO_RESULTS_ROOT": str(results_root),
        "TAO_ATTEMPT": "1",
        "TAO_GROUP_SIGNALS": "1",
        **{name: text for name, text in extra_env.items() if name not in request.env},
    }
    if per_node and "CUDA_DEVICE_ORDER" not in request.env:
        visible["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the numbers of nvidia-smi are CUDA's, too
    secret = job_credentials(request.env)
    secret.update({name: value.reveal() for name, value in request.env.items()})
    orders = Orders(
        job_id=identity.job_id,
        token=identity.token,
        folder=str(folder.path),
        cwd=cwd,
        argv=shim_argv(argv),
        env={**_inherited(), **secret, **visible},
        secret_names=sorted({*secret, *settings.secret_names()}),
        nodes=request.num_nodes,
        gpus_per_node=per_node,
        gpu_indexes=[gpu.index for gpu in usable],
        gpu_keys=[gpu.key for gpu in usable],
        lease_folder=settings.get("TAO_GPU_LEASE_DIR"),
        when_busy=request.options.when_busy,
        grace_seconds=stop_seconds(runner=request.payload is not None),
        gpu_fraction=request.options.gpu_fraction,
        outer_lease=outer.name if outer and per_node else "",
        umask=current_umask(),
    )
    results = str(results_root / identity.job_id)
    with reaching(root):
        root_name = folder.root_name
    return Plan(
        identity=identity,
        platform=platform,
        request=request,
        artefacts=_artefacts(orders, staged.files, visible, secret),
        intent={
            "folder": str(folder.path),
            "nodes": request.num_nodes,
            "host": this_host(),
            "root": root_name,
        },
        results_dir=results,
        local_results_dir=results,
        warnings=(_IMAGE_NOTE.format(request.image),) if request.image else (),
        payload=(orders, staged),
    )


def _inherited() -> dict[str, str]:
    """The caller's environment, less what would make this job a part of another one."""
    return {
        name: value
        for name, value in settings.process_environment().items()
        if name not in settings.RENDEZVOUS and name != "TAO_LEASED_GPUS"
    }


def _check_words(argv: Sequence[str]) -> None:
    for number, word in enumerate(argv):
        if not fits_argument(word):
            raise ValidationError(
                f"word {number} of the command has {len(word.encode()):,} bytes, more than the "
                f"{MAX_ARGUMENT_BYTES:,} that a program can be given: pass it in a file"
            )


def _command(command: str, folder: JobFolder) -> tuple[dict[str, str], list[str]]:
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    if fits_argument(command):
        return {}, [shell, "-c", command]
    return {"command.sh": command}, [shell, str(folder.path / "command.sh")]


def _check_cwd(cwd: str | None) -> str:
    place = absolute_path("cwd", cwd or ".")
    if not examine("cwd", place, place.is_dir):
        raise ValidationError(f"cwd: {place} is not a folder of this machine")
    return str(place)


def _check_results_root(text: str) -> Path:
    """The folder below which results go; an error when it can be seen that it cannot be made."""
    place = absolute_path("results_root", text)
    nearest = place
    while not examine("results_root", nearest, nearest.exists):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise ValidationError(f"results_root: {nearest} is not a folder; choose another place")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ValidationError(
            f"results_root: no permission to write in {nearest}; choose a folder of yours"
        )
    return place


def absolute_path(option: str, text: str) -> Path:
    """The path that an option names; an error that names the option if there is none."""
    try:
        return Path(text).expanduser().absolute()
    except FileNotFoundError as error:
        raise ValidationError(
            f"{option}: {text} is relative, and the current folder was removed; name a whole path"
        ) from error
    except RuntimeError as error:  # the home of an unknown user
        raise ValidationError(f"{option}: {text}: {error}") from error


def examine(option: str, path: Path, question: Callable[[], bool]) -> bool:
    """Ask the file system about a path; its errors name the option."""
    try:
        return question()
    except OSError as error:
        raise ValidationError(f"{option}: cannot inspect {path}: {error.strerror}") from error


def _gpus_for(request: JobRequest, outer: OuterLease | None) -> tuple[list[Gpu], int]:
    """The GPUs this job may take from, and how many each node takes."""
    wanted = GpuRequest.of(request)
    if not wanted.any:
        return [], 0
    from tao_sdk.platforms.gpus.discovery import discover  # jobs without GPUs do not need it

    found = discover()
    place = "this machine"
    if outer is not None:
        if leases.has_ended(settings.get("TAO_GPU_LEASE_DIR"), outer):
            raise ValidationError(
                "TAO_LEASED_GPUS names GPUs of a job that has ended; unset it, and "
                "CUDA_VISIBLE_DEVICES, to lease GPUs of this machine"
            )
        found = [gpu for gpu in found if gpu.key in outer.keys]
    if outer is not None or settings.lookup("TAO_JOB_ID"):
        place = "the job in which this one is started"
    return choose_gpus(found, wanted, place)


def _artefacts(
    orders: Orders,
    files: Mapping[str, str],
    visible: Mapping[str, str],
    secret: Mapping[str, str],
) -> tuple[Artefact, ...]:
    environment = [f"{name}={value}" for name, value in sorted(visible.items())]
    environment += [f"{name}={PLACEHOLDER}" for name in sorted(secret)]
    environment.append("… and the environment of the calling process")
    if orders.outer_lease:
        source = "shared with the outer job:"
    else:
        source = f"when_busy={orders.when_busy}, leased from"
    part = f" ({orders.gpu_fraction:g} of each)" if orders.gpu_fraction < 1 else ""
    gpus = (
        f"{orders.gpus_per_node} per node{part}, {source} {', '.join(orders.gpu_indexes)}"
        if orders.gpus_per_node
        else "none"
    )
    where = [f"cwd {orders.cwd}", f"nodes {orders.nodes}", f"gpus {gpus}", f"job {orders.folder}"]
    return (
        Artefact("command", shlex.join(orders.argv)),
        Artefact("environment", "\n".join(environment)),
        Artefact("process", "\n".join(where)),
        *(Artefact(name, text) for name, text in files.items()),
    )
