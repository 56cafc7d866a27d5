"""How many nodes, GPUs, processors and hours. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings, packaged_defaults

_LEAD_HOURS = 0.2
_SHORTEST_HOURS = 0.1
# sbatch takes no more.
_MAX_WARNING_SECONDS = 65_535


class Resources(NamedTuple):
    """The resources of one attempt."""

    nodes: int
    gpus_per_node: int
    cpus_per_task: int
    exclusive: bool
    time_minutes: int
    warn_seconds: int
    """How long before the wall time the job is warned; 0 is never."""


def resources_of(request: JobRequest, cluster: ClusterSettings) -> Resources:
    """What to ask Slurm for."""
    max_gpus = cluster.max_gpus_per_node
    nodes, gpus = request.num_nodes, request.gpu_count
    if gpus == -1:
        gpus = max_gpus
    if gpus > max_gpus:
        if nodes > 1:
            raise ValidationError(
                f"gpu_count: {gpus} with num_nodes={nodes}: a node has {max_gpus} GPUs "
                "(SLURM_MAX_GPUS_PER_NODE), and gpu_count is per node; ask for at most that"
            )
        nodes, gpus = math.ceil(gpus / max_gpus), max_gpus
    hours = request.options.time_hours or cluster.time_hours
    exclusive = request.options.exclusive
    return Resources(
        nodes=nodes,
        gpus_per_node=gpus,
        cpus_per_task=request.options.cpus_per_task or _cpus(nodes, gpus, cluster),
        exclusive=gpus >= max_gpus if exclusive is None else exclusive,
        time_minutes=max(1, math.floor(hours * 60 + 0.5)),
        warn_seconds=_warning(hours, cluster, own=bool(request.options.time_hours)),
    )


def _cpus(nodes: int, gpus: int, cluster: ClusterSettings) -> int:
    if nodes == 1 and gpus > 1:
        return min(cluster.cpus_per_task * gpus, cluster.max_cpus_per_task)
    return cluster.cpus_per_task


def _warning(hours: float, cluster: ClusterSettings, *, own: bool) -> int:
    """Seconds from the warning to the end of the wall time."""
    if not cluster.warn_before_limit:
        return 0
    # A time-out of the environment belongs to the wall time of the environment.
    warned = None if own else cluster.timeout_hours
    if warned is None:
        warned = warned_after(hours)
    return max(0, min(round((hours - warned) * 3600), _MAX_WARNING_SECONDS))


def warned_after(hours: float) -> float:
    """Default hours after which a job of that wall time is asked to save and stop."""
    return max(_SHORTEST_HOURS, hours - _LEAD_HOURS)


def check_wall_time(partitions: str, minutes: int, known: dict[str, int | None]) -> None:
    """Refuse a wall time that none of the partitions grants.

    `known` has the limits in minutes of the cluster's partitions; None is unlimited.
    """
    names = [name for name in partitions.split(",") if name]
    unknown = [name for name in names if known and name not in known]
    if unknown and unknown == names:
        raise ValidationError(
            f"partition: this cluster has no {' nor '.join(unknown)}; it has "
            f"{', '.join(sorted(known))}. Set SLURM_PARTITION or partition="
        )
    limits = [_limit(name, known) for name in names if name not in unknown]
    if any(limit is None for limit in limits):
        return
    longest = max((limit for limit in limits if limit is not None), default=minutes)
    if minutes > longest:
        raise ValidationError(
            f"time_hours: {minutes / 60:g} h is more than partition {partitions} grants "
            f"({longest / 60:g} h): ask for less (SLURM_TIME_HOURS, time_hours=), or for a "
            "partition with longer jobs"
        )


def _limit(name: str, known: dict[str, int | None]) -> int | None:
    """The limit that the cluster reports, or the lower one of the packaged platform data."""
    limits = (known.get(name), packaged_defaults().limits.get(name))
    return min((limit for limit in limits if limit is not None), default=None)
