"""The GPUs of the daemon's host, and how a container is given some of them: pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.platforms.common.gpu_choice import GpuRequest, refuse_own_choice
from tao_sdk.platforms.docker.config import LABEL_GPU_KEYS, LABEL_GPUS
from tao_sdk.platforms.gpus.discovery import QUERY, Gpu
from tao_sdk.platforms.request import JobRequest

HOST = "the Docker host"


def request_of(request: JobRequest) -> GpuRequest:
    """The GPUs that a request asks for."""
    wanted = GpuRequest.of(request)
    if wanted.any:
        refuse_own_choice(request, "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    return wanted


def with_unlisted(listed: Sequence[Gpu] | None, wanted: GpuRequest) -> list[Gpu]:
    """The GPUs that a host lists, and those that the job names and no list has.

    Parts of a GPU (MIG) are in no list. Other names are accepted only where the host cannot list
    its GPUs (None).
    """
    known = {name for gpu in listed or () for name in (gpu.index, gpu.key)}
    unlisted = [
        name
        for name in wanted.ids
        if name not in known and (listed is None or name.startswith("MIG-"))
    ]
    return [*(listed or ()), *(Gpu(name, name) for name in dict.fromkeys(unlisted))]


def is_tegra(info: Mapping[str, Any]) -> bool:
    """Whether the daemon's host (not the client's) is a Jetson or another Tegra machine."""
    return "tegra" in str(info.get("KernelVersion", "")).lower()


def with_gpus(
    config: Mapping[str, Any], gpus: Sequence[Gpu], info: Mapping[str, Any]
) -> dict[str, Any]:
    """The same container with these GPUs."""
    given = copy.deepcopy(dict(config))
    chosen = sorted(gpus, key=lambda gpu: (not gpu.index.isdigit(), len(gpu.index), gpu.index))
    ids = [gpu.index for gpu in chosen]
    keys = ",".join(gpu.key for gpu in chosen)
    given["Labels"] = {**given["Labels"], LABEL_GPUS: ",".join(ids), LABEL_GPU_KEYS: keys}
    if is_tegra(info):
        given["HostConfig"]["Runtime"] = "nvidia"
        given["Env"] = [
            *(
                e
                for e in given["Env"]
                if not e.startswith(("NVIDIA_VISIBLE_", "NVIDIA_DRIVER_CAP"))
            ),
            f"NVIDIA_VISIBLE_DEVICES={','.join(ids)}",
            "NVIDIA_DRIVER_CAPABILITIES=all",
        ]
        return given
    given["HostConfig"]["DeviceRequests"] = [
        {"Driver": "", "DeviceIDs": ids, "Capabilities": [["gpu"]], "Options": {}}
    ]
    return given


def keys_given(labels: Mapping[str, str]) -> list[str]:
    """The GPUs that a container has, by the names under which they are leased."""
    keys = labels.get(LABEL_GPU_KEYS, "")
    return keys.split(",") if keys else []


def names_given(labels: Mapping[str, str]) -> set[str]:
    """The GPUs that a container or a lease has, by their numbers and by their lease names.

    The lease name of a GPU that was named by number and could not be listed is that number.
    """
    indexes = labels.get(LABEL_GPUS, "")
    return {*keys_given(labels), *(indexes.split(",") if indexes else ())}


def probe_config(
    image: str, info: Mapping[str, Any], query: Sequence[str] = QUERY
) -> dict[str, Any]:
    """A short-lived container that lists the GPUs of its host."""
    host: dict[str, Any] = {"NetworkMode": "none"}
    env = []
    if is_tegra(info):
        host["Runtime"] = "nvidia"
        env = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all"]
    else:
        host["DeviceRequests"] = [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]
    return {
        "Image": image,
        "Entrypoint": [query[0]],
        "Cmd": list(query[1:]),
        "Env": env,
        "HostConfig": host,
    }
