"""What a preflight is asked to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.request import check_gpu_count, check_node_count
from tao_sdk.preflight.flags import PREFLIGHT, Flags


@dataclass(frozen=True)
class PreflightRequest:
    """A launch as far as it is known before anything is made."""

    platform: str
    """Name or alias in the bank's manifest."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Label -> path or URI, as the job will use it."""
    required_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label -> fields that each record of that file must have."""
    sample_limit: int = 20
    """How many records of a file are looked at."""
    skip_platform_access: bool = False
    """Look at nothing that is not on this machine. Not for a real launch."""
    container_image: str = ""
    smoke_image: str = ""
    """Image of the container that looks for GPUs; default: the job's own, else
    TAO_GPU_SMOKE_IMAGE."""
    pull_smoke_image: bool = False
    """Pull that image if the Docker host has not got it. It stays there."""
    image_supported_sms: tuple[str, ...] = ()
    gpu_arch_allowlist: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label -> architectures that it supports."""
    gpu_archs: tuple[str, ...] = ()
    """Architectures of the GPUs that the job will get, where they cannot be looked up."""
    gpu_count: int | None = None
    """GPUs that the job needs on each node; 0 is a job without."""
    num_nodes: int = 1
    min_gpu_memory_gb: float | None = None
    low_vram_threshold_gb: float = 50.0
    target_gpu_count: int | None = None
    """GPUs of the target, where they cannot be looked up."""
    target_gpu_memory_gb: tuple[float, ...] = ()
    """Their memory: one number for each, or one for all."""
    effective_batch: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Label -> batch and shards: each shard must have a whole batch of records."""
    docker_host: str = ""
    model_credentials: tuple[str, ...] = ()
    """Variables that the model needs, such as HF_TOKEN."""
    confirmed_mounts: bool = False
    """Somebody has proof that mounted paths are there in the job."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `create_job` that the launch sets, such as `partition`: they win over the
    variables, so they are what is looked at."""
    flags: Flags = PREFLIGHT
    """What remedies tell people to type."""

    def __post_init__(self) -> None:
        if self.gpu_count is not None:
            check_gpu_count("GPUs", self.gpu_count)
        check_node_count("nodes", self.num_nodes)
        least = self.min_gpu_memory_gb
        if least is not None and not 0 <= least < float("inf"):
            raise ValidationError(f"GPU memory: {least} is not a number of gigabytes")

    @property
    def wants_gpus(self) -> bool:
        return self.gpu_count != 0
