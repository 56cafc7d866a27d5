"""A request becomes the body of the call that creates its container: pure.

A plan shows that body, without the values of secrets. Only the GPUs are added later: they are
leased when the job is submitted.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tao_sdk.models import Mount
from tao_sdk.platforms.common.container_command import fits_argument
from tao_sdk.platforms.common.mounts import RESULTS, results_mount
from tao_sdk.platforms.docker.options import DockerOptions
from tao_sdk.platforms.docker.users import ContainerUser, remapping
from tao_sdk.platforms.request import JobRequest
from tao_sdk.result_record import shim_argv
from tao_sdk.secrets import PLACEHOLDER

LABEL = "tao-toolkit"
LABEL_JOB = "tao-sdk-job-id"
LABEL_TOKEN = "tao-sdk-token"  # noqa: S105 - a name; the token tells submissions apart
LABEL_BACKEND = "tao-sdk-backend"
LABEL_GPUS = "tao-sdk-gpus"
LABEL_GPU_KEYS = "tao-sdk-gpu-keys"
LABEL_QUEUED = "tao-sdk-queued"
LABEL_LEASE = "tao-sdk-gpu-lease"
LABEL_FENCE = "tao-sdk-fence"
LABEL_HELPER = "tao-sdk-helper"  # needed for a moment only; an old one is swept
LABEL_KEPT = "tao-sdk-auto-remove"
BACKEND_VALUE = "local-docker"

COMMAND_FILE = "/tao-job/command.sh"
"""The file for a command that is too long for a command line."""

# bash where the image has it, because that is what commands are written for; sh otherwise.
_SHELL = (
    'for d in "$HOME" "${TAO_RESULTS_ROOT:+$TAO_RESULTS_ROOT/$TAO_JOB_ID}"; do '
    '[ -z "$d" ] || [ -d "$d" ] || mkdir -p "$d" 2>/dev/null; done; '
    'if [ -x /bin/bash ]; then exec /bin/bash "$@"; else exec /bin/sh "$@"; fi'
)
SHELL_NOTE = "the command runs in /bin/bash, or in /bin/sh if the image has no bash"

# What NVIDIA asks for with its images. Not memlock, which it asks for as well: InfiniBand needs it,
# one machine does not, and a daemon that may not raise it could start no container at all.
_ULIMITS = (("stack", 67_108_864, 67_108_864),)
# GPUs of a machine whose default runtime is NVIDIA's would be visible to every container.
NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "void"}


@dataclass(frozen=True)
class ContainerSettings:
    """What the container needs beside the request."""

    job_id: str
    token: str
    network: str
    user: ContainerUser
    info: Mapping[str, Any]
    credentials: Mapping[str, str]
    runner: Mapping[str, str]
    """Settings of the runner, where the command carries one."""
    stop_seconds: float
    keep_container: bool = True


def container_config(request: JobRequest, given: ContainerSettings) -> dict[str, Any]:
    """The body of the create call, without GPUs."""
    options: DockerOptions = request.options
    results = results_mount(options.mounts)
    fixed = {"TAO_JOB_ID": given.job_id, "TAO_ATTEMPT": "1"}
    if results is not None:
        fixed["TAO_RESULTS_ROOT"] = RESULTS
    env = {**given.user.env, **given.runner, **given.credentials}
    if request.gpu_count == 0 and not options.gpu_ids:
        env.update(NO_GPUS)
    env.update({name: value.reveal() for name, value in request.env.items()})
    env.update(fixed)
    program, *arguments = command_words(request.shell_command)
    config = {
        "Image": request.image,
        # Otherwise the image's own entry point would run, with this command as its arguments.
        "Entrypoint": [program],
        "Cmd": arguments,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": _labels(request, given),
        # `docker stop`, too, leaves the job the time to deliver its results.
        "StopTimeout": math.ceil(given.stop_seconds),
        "HostConfig": _host_config(request, given),
    }
    if options.cwd:
        config["WorkingDir"] = options.cwd
    if given.user.user:
        config["User"] = given.user.user
    return config


def command_words(command: str) -> list[str]:
    """The words to run: the result shim, the shell, the command (or the file that has it)."""
    if fits_argument(command):
        return shim_argv(["/bin/sh", "-c", _SHELL, "tao-shell", "-c", command])
    return shim_argv(["/bin/sh", "-c", _SHELL, "tao-shell", COMMAND_FILE])


def command_file(command: str) -> str | None:
    """The text of COMMAND_FILE, when the command is too long for a command line."""
    return None if fits_argument(command) else command


def shown(config: Mapping[str, Any], secret_names: frozenset[str]) -> str:
    """The config as text, without the values of secret variables."""
    visible = copy.deepcopy(dict(config))
    visible["Env"] = [
        f"{name}={PLACEHOLDER if name in secret_names else value}"
        for name, _, value in (entry.partition("=") for entry in config["Env"])
    ]
    return json.dumps(visible, indent=2, ensure_ascii=False)


def environment_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The environment in a container's config, as a mapping."""
    return dict(entry.partition("=")[::2] for entry in config.get("Env") or ())


def _labels(request: JobRequest, given: ContainerSettings) -> dict[str, str]:
    labels = {
        LABEL: "true",
        LABEL_JOB: given.job_id,
        LABEL_TOKEN: given.token,
        LABEL_BACKEND: BACKEND_VALUE,
        "tao-sdk-network": request.network_arch,
        "tao-sdk-action": request.action,
    }
    if not given.keep_container:
        labels[LABEL_KEPT] = "true"
    return labels


def _host_config(request: JobRequest, given: ContainerSettings) -> dict[str, Any]:
    options, info = request.options, given.info
    host: dict[str, Any] = {
        "NetworkMode": given.network,
        "Mounts": [_mount(mount) for mount in options.mounts],
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,  # the daemon would remove log and exit code as well
        "Ulimits": _ulimits(options.ulimits, info),
    }
    # Without an init program on the daemon's host, containers run, but reap no orphans.
    if (info.get("InitCommit") or {}).get("ID") != "N/A":
        host["Init"] = True
    if options.ipc:
        host["IpcMode"] = options.ipc
    if options.ipc != "host":
        host["ShmSize"] = options.shm_size or _default_shm(options.memory, info)
    if options.cpus:
        host["NanoCpus"] = int(options.cpus * 1e9)
    if options.memory:
        host["Memory"] = options.memory
        host["MemorySwap"] = options.memory  # without swap, a limit is one
    if given.user.groups:
        host["GroupAdd"] = list(given.user.groups)
    return host


def _mount(mount: Mount) -> dict[str, Any]:
    kind = "bind" if mount.source.startswith("/") else "volume"
    return {
        "Type": kind,
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
    }


def _default_shm(memory: int | None, info: Mapping[str, Any]) -> int:
    """Half of the memory, as the kernel's own default: data loaders need gigabytes."""
    available = min(memory or info["MemTotal"], info["MemTotal"])
    return int(available) // 2


def _ulimits(
    wanted: tuple[tuple[str, int, int], ...], info: Mapping[str, Any]
) -> list[dict[str, Any]]:
    limits = {name: (soft, hard) for name, soft, hard in wanted}
    if not remapping(info.get("SecurityOptions") or ()):  # a rootless daemon may not raise any
        for name, soft, hard in _ULIMITS:
            limits.setdefault(name, (soft, hard))
    return [{"Name": n, "Soft": soft, "Hard": hard} for n, (soft, hard) in limits.items()]
