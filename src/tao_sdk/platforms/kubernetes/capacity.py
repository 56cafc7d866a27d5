"""Is there room for the GPUs that a job asks for? Pure: nodes and pods as the API lists them.

Per node, because a pod runs on one: eight nodes of one GPU each are no room for a pod of eight.
Nodes that the pod could not be put on (cordoned, not ready, without its labels, with a taint that
it does not tolerate) do not count. Affinity is left to the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.platforms.kubernetes.naming import GPU
from tao_sdk.platforms.kubernetes.quantities import amount

OPERATOR_GUIDE = (
    "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html"
)
NO_OPERATOR = (
    f"No {GPU} resources allocatable on the cluster: the NVIDIA GPU Operator (or device plugin) is "
    f"not installed, or no GPU node is up. Install it ({OPERATOR_GUIDE}) and check with: kubectl "
    "get nodes -o jsonpath='{.items[*].status.allocatable}'"
)
_OVER = ("Succeeded", "Failed")
_SCHEDULING = ("NoSchedule", "NoExecute")
_AUTOSCALED = ("karpenter.sh/", "cluster-autoscaler.kubernetes.io/", "k8s.io/cluster-autoscaler/")


class GpuRequest(NamedTuple):
    """What a job asks for."""

    gpus: int
    """Per pod."""
    pods: int = 1
    node_selector: Mapping[str, str] = {}
    tolerations: Sequence[Mapping[str, Any]] = ()


class Judgement(NamedTuple):
    """An error means that the job can never run here; warnings are for the plan."""

    error: str = ""
    warnings: tuple[str, ...] = ()


class Room(NamedTuple):
    """One node."""

    name: str
    gpus: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.gpus - self.used)


def judge(
    request: GpuRequest,
    nodes: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]] | None,
    *,
    autoscaler: bool = False,
) -> Judgement:
    """`pods` None: they could not be listed, so nothing is known about what is in use."""
    rooms = _rooms(nodes, pods or ())
    grows = autoscaler or any(map(_is_autoscaled, nodes))
    if not any(room.gpus for room in rooms.values()):
        return _never(NO_OPERATOR, grows=grows)
    fitting = [
        rooms[_name(node)]
        for node in nodes
        if why_not(node, request) == "" and rooms[_name(node)].gpus >= request.gpus
    ]
    if sum(room.gpus // request.gpus for room in fitting) < request.pods:
        return _never(_too_big(request, nodes, rooms, fitting), grows=grows)
    if pods is None:
        told = "pods of other namespaces cannot be listed, so GPUs in use were not counted"
        return Judgement(warnings=(told,))
    if sum(room.free // request.gpus for room in fitting) < request.pods:
        free = ", ".join(f"{room.name} {room.free} of {room.gpus}" for room in fitting)
        told = f"not enough GPUs are free now ({_asked(request)}; free: {free}): the job will wait"
        return Judgement(warnings=(told,))
    return Judgement()


def total_gpus(nodes: Sequence[Mapping[str, Any]]) -> int:
    """All GPUs that nodes offer."""
    return sum(_gpus(node) for node in nodes)


def largest(nodes: Sequence[Mapping[str, Any]], request: GpuRequest) -> int:
    """The most GPUs that one usable node has."""
    return max((_gpus(node) for node in nodes if not why_not(node, request)), default=0)


def why_not(node: Mapping[str, Any], request: GpuRequest) -> str:
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


def _never(told: str, *, grows: bool) -> Judgement:
    if not grows:
        return Judgement(error=told)
    return Judgement(
        warnings=(f"{told}. The cluster adds nodes by itself, so the job is submitted and waits",)
    )


def _too_big(
    request: GpuRequest,
    nodes: Sequence[Mapping[str, Any]],
    rooms: Mapping[str, Room],
    fitting: Sequence[Room],
) -> str:
    told = []
    for node in nodes:
        room = rooms[_name(node)]
        if not room.gpus:
            continue
        why = why_not(node, request)
        told.append(f"{room.name} has {room.gpus}" + (f" but {why}" if why else ""))
    some = "; ".join(told[:8]) + ("; …" if len(told) > 8 else "")
    what = "no node is big enough" if not fitting else "the nodes that fit are too few"
    return f"{what}: {_asked(request)} of {GPU}; {some}"


def _asked(request: GpuRequest) -> str:
    each = f"{request.gpus} GPU{'s' if request.gpus > 1 else ''} on one node"
    return f"{each}, {request.pods} times" if request.pods > 1 else each


def _rooms(
    nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]
) -> dict[str, Room]:
    used: dict[str, int] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in _OVER:
            used[node] = used.get(node, 0) + _asked_by(pod)
    return {_name(node): Room(_name(node), _gpus(node), used.get(_name(node), 0)) for node in nodes}


def _asked_by(pod: Mapping[str, Any]) -> int:
    """What its containers hold together; containers that run before them hold theirs alone."""
    spec = pod["spec"]
    together = sum(map(_limit, spec.get("containers") or ()))
    before = max(map(_limit, spec.get("initContainers") or ()), default=0)
    return max(together, before)


def _limit(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    asked = (resources.get("limits") or {}).get(GPU) or (resources.get("requests") or {}).get(GPU)
    return int(amount(str(asked or 0)))


def _gpus(node: Mapping[str, Any]) -> int:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return int(amount(str(allocatable.get(GPU, 0))))


def _name(node: Mapping[str, Any]) -> str:
    return str(node["metadata"]["name"])


def _is_autoscaled(node: Mapping[str, Any]) -> bool:
    metadata = node["metadata"]
    names = [*(metadata.get("labels") or ()), *(metadata.get("annotations") or ())]
    return any(name.startswith(_AUTOSCALED) for name in names)
