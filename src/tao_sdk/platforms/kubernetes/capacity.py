"""Whether the nodes of a cluster can take the GPUs that a job asks for. Pure.

A pod runs on one node: eight nodes of one GPU each have no room for a pod of eight. Nodes that the
pod cannot be placed on (cordoned, not ready, without its labels, with a taint that it does not
tolerate) do not count. GPUs that other pods hold now do count: the job waits for them, and the
scheduler's own message says so. Affinity is left to the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.platforms.kubernetes.naming import GPU
from tao_sdk.platforms.kubernetes.options import amount

Node = Mapping[str, Any]

OPERATOR_GUIDE = (
    "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html"
)
NO_OPERATOR = (
    f"No {GPU} resources allocatable on the cluster: the NVIDIA GPU Operator (or device plugin) is "
    f"not installed, or no GPU node is up. Install it ({OPERATOR_GUIDE}) and check with: kubectl "
    "get nodes -o jsonpath='{.items[*].status.allocatable}'"
)
_SCHEDULING = ("NoSchedule", "NoExecute")
_AUTOSCALED = ("karpenter.sh/", "cluster-autoscaler.kubernetes.io/", "k8s.io/cluster-autoscaler/")
_NAMED_NODES = 8


class GpuRequest(NamedTuple):
    """What a job asks for."""

    gpus: int
    """Per pod."""
    pods: int = 1
    node_selector: Mapping[str, str] = {}
    tolerations: Sequence[Mapping[str, Any]] = ()


def why_never(request: GpuRequest, nodes: Sequence[Node]) -> str:
    """Why these nodes can never run the job, however idle they are; "" if they can."""
    if not total_gpus(nodes):
        return NO_OPERATOR
    room = sum(_gpus(node) // request.gpus for node in nodes if not why_not(node, request))
    if room >= request.pods:
        return ""
    offers = []
    for node in nodes:
        if _gpus(node):
            why = why_not(node, request)
            offers.append(f"{_name(node)} has {_gpus(node)}" + (f" but {why}" if why else ""))
    more = "; …" if len(offers) > _NAMED_NODES else ""
    what = "the nodes that fit are too few" if room else "no node is big enough"
    return f"{what}: {_asked(request)} of {GPU}; {'; '.join(offers[:_NAMED_NODES])}{more}"


def adds_nodes(nodes: Iterable[Node]) -> bool:
    """Whether nodes bear the marks of an autoscaler."""
    names = (
        name
        for node in nodes
        for field in ("labels", "annotations")
        for name in node["metadata"].get(field) or ()
    )
    return any(name.startswith(_AUTOSCALED) for name in names)


def total_gpus(nodes: Iterable[Node]) -> int:
    """All GPUs that nodes offer."""
    return sum(_gpus(node) for node in nodes)


def largest(nodes: Iterable[Node], request: GpuRequest) -> int:
    """The most GPUs that one usable node has."""
    return max((_gpus(node) for node in nodes if not why_not(node, request)), default=0)


def why_not(node: Node, request: GpuRequest) -> str:
    """Why a pod cannot be put on a node, apart from its size; "" if it can."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "is cordoned"
    labels = node["metadata"].get("labels") or {}
    for name, value in request.node_selector.items():
        if labels.get(name) != value:
            return f"has not the label {name}={value}"
    for taint in spec.get("taints") or ():
        if taint.get("effect") in _SCHEDULING and not _is_tolerated(taint, request.tolerations):
            return f"has the taint {taint['key']}:{taint['effect']}"
    ready = [
        condition["status"]
        for condition in (node.get("status") or {}).get("conditions") or ()
        if condition["type"] == "Ready"
    ]
    return "is not ready" if ready and ready[0] != "True" else ""


def _is_tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        key = toleration.get("key")
        if not key:
            if toleration.get("operator") == "Exists":
                return True
            continue
        if key != taint.get("key"):
            continue
        if toleration.get("operator", "Equal") == "Exists":
            return True
        if (toleration.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _asked(request: GpuRequest) -> str:
    each = f"{request.gpus} GPU{'s' if request.gpus > 1 else ''} on one node"
    return f"{each}, {request.pods} times" if request.pods > 1 else each


def _gpus(node: Node) -> int:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return int(amount(str(allocatable.get(GPU, 0))))


def _name(node: Node) -> str:
    return str(node["metadata"]["name"])
