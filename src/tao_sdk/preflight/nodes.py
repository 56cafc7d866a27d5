"""Findings about the number of nodes: pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tao_sdk.preflight.checks import Check, Task, failed, passed
from tao_sdk.preflight.request import PreflightRequest


def one_machine_tasks(request: PreflightRequest, platform: str) -> list[Task]:
    """What is wrong with several nodes on a platform whose jobs run on one machine."""
    return [] if request.num_nodes == 1 else [Task("nodes", partial(_refused, request, platform))]


def partition_nodes(told: str, asked: list[str], nodes: int) -> Iterator[Check]:
    """Whether a partition of Slurm has, and gives a job, as many nodes.

    `told` is what `scontrol show partition` prints. A job runs in one of the partitions asked for.
    """
    found: dict[str, int] = {}
    for line in told.splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        limits = [fields.get(name, "") for name in ("TotalNodes", "MaxNodes")]
        known = [int(limit) for limit in limits if limit.isdigit()]
        if fields.get("PartitionName") in asked and known:
            found[fields["PartitionName"]] = min(known)
    if nodes == 1 or not found:
        return
    listed = ", ".join(f"{name} {most}" for name, most in found.items())
    if nodes > max(found.values()):
        yield failed(
            "nodes",
            f"nodes needed: {nodes}; a job gets at most: {listed}",
            "Ask for fewer nodes, or choose another partition.",
        )
    else:
        yield passed("nodes", f"nodes needed: {nodes}; a job gets at most: {listed}")


def _refused(request: PreflightRequest, platform: str) -> Iterator[Check]:
    yield failed(
        "nodes",
        f"nodes needed: {request.num_nodes}; {platform} runs a job on one machine",
        "Ask for 1 node with more GPUs, or choose a platform with several: slurm, kubernetes, "
        "lepton.",
    )
