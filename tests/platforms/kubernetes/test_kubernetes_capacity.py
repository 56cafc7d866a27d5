"""Whether nodes as the API lists them can take a job's GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tao_sdk.platforms.kubernetes.capacity import (
    GpuRequest,
    adds_nodes,
    largest,
    total_gpus,
    why_never,
)

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def node(name: str, gpus: int, *, ready: str = "True", labels: Any = None, **spec: Any) -> Any:
    allocatable = {"cpu": "64", "memory": "512Gi"}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": allocatable,
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready},
            ],
        },
    }


def test_room() -> None:
    assert why_never(GpuRequest(8), [node("a", 8)]) == ""
    assert why_never(GpuRequest(4, pods=4), [node("a", 8), node("b", 8)]) == ""


@pytest.mark.seed("003.4")
@pytest.mark.seed("003.8")
def test_no_gpus_at_all_means_no_gpu_operator() -> None:
    found = why_never(GpuRequest(1), [node("a", 0)])
    assert found.startswith("No nvidia.com/gpu resources allocatable on the cluster")
    assert "gpu-operator" in found


@pytest.mark.seed("003.4")
def test_eight_nodes_of_one_gpu_are_no_room_for_a_pod_of_eight() -> None:
    """Lesson W14: the sum over all nodes says nothing about one pod."""
    found = why_never(GpuRequest(8), [node(f"n{n}", 1) for n in range(8)])
    assert "no node is big enough" in found
    assert "n0 has 1" in found


@pytest.mark.seed("003.4")
def test_too_few_nodes_for_all_pods() -> None:
    found = why_never(GpuRequest(8, pods=3), [node("a", 8), node("b", 8)])
    assert "too few" in found
    assert "3 times" in found


@pytest.mark.parametrize(
    ("unfit", "why"),
    [
        (node("a", 8, unschedulable=True), "is cordoned"),
        (node("a", 8, ready="Unknown", labels={"gpu-type": "h100"}), "is not ready"),
        (node("a", 8, labels={"gpu-type": "a100"}), "has not the label gpu-type=h100"),
        (node("a", 8, labels={"gpu-type": "h100"}, taints=[GPU_TAINT]), "has the taint"),
    ],
)
def test_nodes_that_the_pod_cannot_be_put_on(unfit: Any, why: str) -> None:
    """Lesson W14: selectors, taints, cordons ignored."""
    found = why_never(GpuRequest(8, node_selector={"gpu-type": "h100"}), [unfit])
    assert f"a has 8 but {why}" in found


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    ],
)
def test_taints_that_are_tolerated(toleration: Any) -> None:
    tainted = node("a", 8, taints=[GPU_TAINT])
    assert why_never(GpuRequest(8, tolerations=[toleration]), [tainted]) == ""


def test_taints_that_only_discourage_do_not_matter() -> None:
    taint = {**GPU_TAINT, "effect": "PreferNoSchedule"}
    assert why_never(GpuRequest(8), [node("a", 8, taints=[taint])]) == ""


@pytest.mark.parametrize("sign", ["karpenter.sh/nodepool", "k8s.io/cluster-autoscaler/enabled"])
def test_signs_of_an_autoscaler(sign: str) -> None:
    """Lesson W14: autoscaled clusters blocked."""
    assert adds_nodes([node("a", 0), node("b", 0, labels={sign: "x"})])
    assert not adds_nodes([node("a", 0)])


def test_totals() -> None:
    nodes = [node("a", 8), node("b", 4, unschedulable=True), node("c", 0)]
    assert total_gpus(nodes) == 12
    assert largest(nodes, GpuRequest(-1)) == 8
