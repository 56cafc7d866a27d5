"""The flags that remedies name: those of the command under which they are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flags:
    """The words to type to follow a remedy; "" where the command has no such flag."""

    path: str = "--path"
    """Takes LABEL=PATH."""
    docker_host: str = "--docker-host"
    smoke_image: str = "--gpu-smoke-image"
    pull_smoke_image: str = "--pull-smoke-image"
    gpu_arch: str = "--gpu-arch"
    target_gpu_count: str = "--target-gpu-count"
    target_gpu_memory: str = "--target-gpu-memory-gb"
    skip_platform_access: str = "--skip-platform-access"


PREFLIGHT = Flags()
"""Of `tao-sdk preflight` and `check_tao_launch_preflight.py`."""
LAUNCH = Flags(
    path="--set",  # labels are spec keys there
    docker_host="",
    smoke_image="",
    pull_smoke_image="",
    gpu_arch="",
    target_gpu_count="",
    target_gpu_memory="",
    skip_platform_access="",
)
"""Of `tao-sdk launch`, which looks everything up itself."""


def with_flag(sentence: str, flag: str) -> str:
    """A sentence about a flag, in the place of its {}; "" where there is no such flag."""
    return sentence.format(flag) if flag else ""
