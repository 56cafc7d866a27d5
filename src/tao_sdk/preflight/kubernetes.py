"""Before a launch on Kubernetes: the cluster, the namespace, our rights there, GPUs and claims.

Nothing is made: permissions are asked for, not tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import PlatformError
from tao_sdk.platforms.kubernetes import capacity
from tao_sdk.platforms.kubernetes import preflight as cluster_checks
from tao_sdk.platforms.kubernetes.auth import ClusterAccess, NoAccessError
from tao_sdk.platforms.kubernetes.client import KubernetesClient, Timeouts
from tao_sdk.platforms.kubernetes.cluster import Cluster, Items
from tao_sdk.platforms.kubernetes.options import KubernetesOptions
from tao_sdk.platforms.kubernetes.plan import gpu_request
from tao_sdk.platforms.request import checked_options
from tao_sdk.preflight.checks import FAILED, Check, Task, failed, passed, skipped, warning
from tao_sdk.preflight.credentials import credential_checks
from tao_sdk.preflight.gpu_architecture import as_sm
from tao_sdk.preflight.gpus import GpuFacts, gpu_checks
from tao_sdk.preflight.host_setup import check_command
from tao_sdk.preflight.paths import mount_tasks, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.runner.uris import scheme_of

_PVC = "pvc"
_DRIVER = 580
# NVIDIA's feature discovery describes the GPUs of a node by these, older and newer.
_DRIVER_LABELS = ("nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major")
_NODE_RUNTIME = (
    f"On self-managed GPU nodes run:\n  {check_command('kubernetes')}\n"
    "Where the provider or the GPU Operator looks after the driver, set "
    "TAO_K8S_SKIP_NODE_RUNTIME_CHECK=1."
)
_QUICK = Timeouts(connect=5.0, read=15.0, write=15.0, busy=5.0)


def kubernetes_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """All that is looked at."""
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("kubernetes.access", partial(_cluster_checks, request)),
        *mount_tasks(request, "Kubernetes", _PVC),
        *unsupported_tasks(request, _PVC),
    ]


def _cluster_checks(request: PreflightRequest) -> Iterator[Check]:
    if request.skip_platform_access:
        yield skipped("kubernetes.access", "not asked: platform access is skipped")
        yield from gpu_checks(request, None)
        return
    try:
        access = ClusterAccess.find()
    except NoAccessError as error:
        yield failed(
            "kubernetes.access",
            str(error),
            "Configure kubectl (for example: aws eks update-kubeconfig --name my-cluster), or set "
            "KUBECONFIG.",
        )
        return
    api = KubernetesClient(access, _QUICK)
    try:
        reached = _reach(api)
        yield reached
        if reached.status == "passed":
            own = request.options.get("namespace") or settings.lookup("TAO_K8S_NAMESPACE")
            namespace = own or access.namespace or "default"
            yield from _namespace_checks(api, namespace, request)
            yield from _node_checks(api, request)
    finally:
        api.close()


def _reach(api: KubernetesClient) -> Check:
    try:
        version = api.get("/version").get("gitVersion", "?")
    except PlatformError as error:
        return failed("kubernetes.access", str(error), "Try: kubectl get nodes")
    return passed("kubernetes.access", f"Kubernetes {version} at {api.access}")


def _namespace_checks(
    api: KubernetesClient, namespace: str, request: PreflightRequest
) -> Iterator[Check]:
    found = cluster_checks.namespace(api, namespace)
    if not found.ok:
        yield failed("kubernetes.namespace", f"there is no {found.what}", found.detail)
        yield skipped("kubernetes.permissions", f"not asked: there is no {found.what}")
        return
    note = f" ({found.detail})" if found.detail else ""
    yield passed("kubernetes.namespace", f"{found.what}{note}")
    refused = [each for each in cluster_checks.permissions(api, namespace) if not each.ok]
    if refused:
        yield failed(
            "kubernetes.permissions",
            f"you may not {', '.join(each.what for each in refused)}",
            "\n".join(
                [
                    *(f"{each.what}: {each.detail}" for each in refused),
                    "Ask for the role `edit` in that namespace, or set TAO_K8S_NAMESPACE to one "
                    "where you have it.",
                ]
            ),
        )
    else:
        yield passed(
            "kubernetes.permissions", f"you may create, watch and delete jobs in {namespace}"
        )
    for claim in cluster_checks.claims(api, namespace, _claims(request)):
        name = f"kubernetes.claim:{claim.what.split()[1]}"
        if claim.ok:
            yield passed(name, f"{claim.what}: {claim.detail or 'there'}")
        else:
            yield failed(
                name, f"{claim.what}: {claim.detail}", "kubectl get pvc lists those there."
            )


def _claims(request: PreflightRequest) -> list[str]:
    """The claims that paths such as pvc://claim/folder name."""
    named = [path for path in request.paths.values() if scheme_of(path) == _PVC]
    return sorted({path.partition("://")[2].partition("/")[0] for path in named} - {""})


def _node_checks(api: KubernetesClient, request: PreflightRequest) -> Iterator[Check]:
    if not request.wants_gpus:
        yield from gpu_checks(request, [])
        return
    cluster = Cluster(api)
    nodes = cluster.nodes()
    if nodes is None:
        yield warning("kubernetes.gpus", "you may not list nodes, so nothing is known of GPUs")
        yield from gpu_checks(request, None)
        return
    yield _capacity(cluster, nodes, request)
    if capacity.total_gpus(nodes):
        yield from _node_runtime(nodes)
    yield from kind_checks(request, nodes)


def _capacity(cluster: Cluster, nodes: Items, request: PreflightRequest) -> Check:
    total = capacity.total_gpus(nodes)
    if not total and not request.gpu_count:
        return warning("kubernetes.gpus", capacity.NO_OPERATOR)
    gpus = max(1, request.gpu_count or 1)
    wish = gpu_request(gpus, request.num_nodes, _placement(request.options))
    refusal = capacity.why_never(wish, nodes)
    if refusal and cluster.adds_nodes(nodes):
        return warning("kubernetes.gpus", f"{refusal}. The cluster adds nodes by itself")
    if refusal:
        return failed("kubernetes.gpus", refusal, "Ask for less, or add nodes.")
    return passed("kubernetes.gpus", f"{total} GPUs are allocatable")


def _placement(options: Mapping[str, Any]) -> KubernetesOptions:
    """What the job says about where its pods may be put, as the platform reads it."""
    says = ("node_selector", "tolerations", "overlay")
    given = {name: options[name] for name in says if options.get(name)}
    return checked_options(KubernetesOptions, given)


def kind_checks(request: PreflightRequest, nodes: Items) -> Iterator[Check]:
    """Whether nodes have GPUs that suit the job; a job can choose among different ones."""
    kinds = {gpu.kind: gpu for node in nodes for gpu in labelled_gpus(node)}
    # How many there are is told node by node: a job has those of one.
    judged = {
        kind: [check for check in gpu_checks(request, [gpu]) if check.name != "gpu.count"]
        for kind, gpu in kinds.items()
    }
    if not judged:
        yield from (check for check in gpu_checks(request, None) if check.name != "gpu.count")
        return
    suitable = [
        kind for kind, checks in judged.items() if all(each.status != FAILED for each in checks)
    ]
    yield from judged[suitable[0] if suitable else next(iter(judged))]
    others = [kind for kind in judged if kind not in suitable]
    if suitable and others:
        product = kinds[suitable[0]].model
        yield warning(
            "gpu.kinds",
            f"nodes with {', '.join(others)} do not suit the job",
            f'Keep it off them: node_selector={{"nvidia.com/gpu.product": "{product}"}}',
        )


def _node_runtime(nodes: Items) -> Iterator[Check]:
    """What feature discovery says of the drivers. Looking for oneself would take a pod."""
    name = "kubernetes.node_runtime"
    if settings.lookup("TAO_K8S_SKIP_NODE_RUNTIME_CHECK") == "1":
        yield skipped(name, "TAO_K8S_SKIP_NODE_RUNTIME_CHECK=1")
        return
    drivers = {
        str(node["metadata"]["name"]): _driver(node)
        for node in nodes
        if capacity.total_gpus([node])
    }
    old = [f"{node} ({major})" for node, major in drivers.items() if major and major < _DRIVER]
    if old:
        yield warning(
            name, f"driver older than {_DRIVER} on {', '.join(old)}", _NODE_RUNTIME, drivers=drivers
        )
    elif not all(drivers.values()):
        yield warning(
            name,
            "the nodes do not tell which driver they have, so it was not compared",
            _NODE_RUNTIME,
        )
    else:
        newest = ", ".join(map(str, sorted({major or 0 for major in drivers.values()})))
        yield passed(name, f"driver {newest} on {len(drivers)} GPU nodes")


def _driver(node: Mapping[str, Any]) -> int | None:
    labels = node["metadata"].get("labels") or {}
    told = next((labels[name] for name in _DRIVER_LABELS if name in labels), "")
    return int(told) if str(told).isdigit() else None


def labelled_gpus(node: Mapping[str, Any]) -> list[GpuFacts]:
    """The GPUs of a node as feature discovery describes them; none where it does not."""
    labels = node["metadata"].get("labels") or {}
    major, minor = (labels.get(f"nvidia.com/gpu.compute.{part}", "") for part in ("major", "minor"))
    memory = labels.get("nvidia.com/gpu.memory", "")
    if not memory and not major:
        return []
    facts = GpuFacts(
        index="0",
        key=str(node["metadata"]["name"]),
        total_mib=int(memory) if memory.isdigit() else None,
        sm=as_sm(f"{major}.{minor or 0}"),
        model=labels.get("nvidia.com/gpu.product", ""),
    )
    return [facts] * capacity.total_gpus([node])
