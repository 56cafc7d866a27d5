"""The GPUs of the daemon's host, and how a container is given some of them: pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tao_sdk.errors import CapacityError, ValidationError
from tao_sdk.platforms.docker.config import LABEL_GPU_KEYS, LABEL_GPUS
from tao_sdk.platforms.gpus.discovery import QUERY, Gpu, list_of
from tao_sdk.platforms.request import JobRequest


@dataclass(frozen=True)
class Wish:
    """What a job asks for: so many GPUs (-1: all), or exactly these."""

    count: int
    ids: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.count or self.ids)

    def __str__(self) -> str:
        return ",".join(self.ids) if self.ids else {-1: "all"}.get(self.count, str(self.count))


def wish_of(request: JobRequest) -> Wish:
    """The GPUs that a request asks for; `gpu_ids` wins over the default count."""
    ids = request.options.gpu_ids
    if ids and request.gpu_count not in (1, len(ids)):
        raise ValidationError(
            f"gpu_ids names {len(ids)} GPUs, gpu_count says {request.gpu_count}: leave gpu_count "
            "out, or make them agree"
        )
    for name in ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in request.env and (ids or request.gpu_count):
            raise ValidationError(
                f"env_vars.{name}: follows from the GPUs that the job is given; choose them with "
                "gpu_count= or gpu_ids="
            )
    return Wish(request.gpu_count, ids) if not ids else Wish(len(ids), ids)


def candidates(gpus: Sequence[Gpu], wish: Wish) -> tuple[list[Gpu], int]:
    """The GPUs that a job may take, best first, and how many of them it takes.

    GPUs that programs outside our books already use come last.
    """
    if wish.ids:
        by_name = {name: gpu for gpu in gpus for name in (gpu.index, gpu.key)}
        unknown = [name for name in wish.ids if name not in by_name]
        if unknown:
            raise CapacityError(
                f"gpu_ids: the Docker host has no GPU {', '.join(unknown)}; it has {list_of(gpus)}"
            )
        chosen = list(dict.fromkeys(by_name[name] for name in wish.ids))
        if len(chosen) != len(wish.ids):
            raise ValidationError(f"gpu_ids: {', '.join(wish.ids)} name the same GPU twice")
        return chosen, len(chosen)
    count = len(gpus) if wish.count == -1 else wish.count
    if count > len(gpus) or count == 0:
        hint = f"at most {len(gpus)} can be asked for" if gpus else "gpu_count=0 runs without"
        raise CapacityError(
            f"gpu_count: {wish} GPUs asked for, the Docker host has {list_of(gpus)}; {hint}"
        )
    return sorted(gpus, key=lambda gpu: (gpu.used_mib // 1024, int(gpu.index))), count


def is_tegra(info: Mapping[str, Any]) -> bool:
    """Is the daemon's host (not the client's) a Jetson or another Tegra machine?"""
    return "tegra" in str(info.get("KernelVersion", "")).lower()


def with_gpus(
    config: Mapping[str, Any], gpus: Sequence[Gpu], info: Mapping[str, Any]
) -> dict[str, Any]:
    """The same container with these GPUs."""
    given = copy.deepcopy(dict(config))
    chosen = sorted(gpus, key=lambda gpu: int(gpu.index))
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
