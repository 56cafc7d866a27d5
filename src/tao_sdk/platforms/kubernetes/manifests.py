"""From a request to the objects that are created in the cluster. Pure.

What `build` returns is sent unchanged. A simple job is one object, its Job. Other objects (a Secret
with its environment, a Service, a long command) are owned by the Job and deleted with it, so the
Job is created first: suspended, and marked as not yet submitted. The last step of a submission
removes mark and suspension in one change. A JobSet or a TrainJob takes the place of the Job as the
root, and always goes through these steps.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tao_sdk.platforms.common.mounts import RESULTS
from tao_sdk.platforms.kubernetes import command as commands
from tao_sdk.platforms.kubernetes import kinds, naming, overlay, volumes
from tao_sdk.platforms.kubernetes.options import KubernetesOptions
from tao_sdk.platforms.request import JobRequest
from tao_sdk.secrets import PLACEHOLDER, Secret

DEFAULT_PORT = "29500"
NGC_REGISTRY = "nvcr.io"
_FENCE_TTL_SECONDS = 600
# The taint of nodes that are reserved for GPU work. Some clusters add the toleration themselves.
GPU_TOLERATION = {"key": naming.GPU, "operator": "Exists", "effect": "NoSchedule"}
# Resources (plural names) and objects, in the order of their creation.
Companions = tuple[tuple[str, dict[str, Any]], ...]
# If the default runtime of a node is NVIDIA's, every container sees its GPUs.
_NVIDIA = "nvidia.com/"
_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "void"}


@dataclass(frozen=True)
class ResolvedJob:
    """What the objects depend on beside the request."""

    job_id: str
    token: str
    namespace: str
    gpu_count: int
    credentials: Mapping[str, str]
    runner: Mapping[str, str]
    """Settings of the runner, if the command contains one."""
    stop_seconds: float
    login: tuple[str, Secret] | None = None
    """User and password of NVIDIA's registry, for an image there without a pull Secret."""

    @property
    def name(self) -> str:
        return naming.job_name(self.job_id)


@dataclass(frozen=True)
class Objects:
    """All objects of a submission. They hold secrets: never print or store them."""

    job: dict[str, Any]
    companions: Companions = ()
    """Owned by the root and created after it."""
    release: dict[str, Any] | None = field(default=None)
    """The change that lets the root start; None if it starts at once."""
    wrapper: dict[str, Any] | None = None
    """The JobSet or TrainJob whose controller creates the Job."""
    before: Companions = ()
    """Created before the root, which refers to them, and owned by it later."""

    @property
    def root(self) -> dict[str, Any]:
        """The object that owns all others."""
        return self.wrapper or self.job

    def __repr__(self) -> str:
        return f"Objects({self.job['metadata']['name']})"

    def shown(self) -> dict[str, str]:
        """The objects as text, without the values of Secrets."""
        texts = {f"{name} {one['metadata']['name']}": _pretty(one) for name, one in self.before}
        texts[self.root["kind"].lower()] = _pretty(self.root)
        for resource, one in self.companions:
            visible = one
            if one["kind"] == "Secret":
                visible = {**one, "data": dict.fromkeys(one["data"], PLACEHOLDER)}
            elif one["kind"] == "ConfigMap":
                size = len(base64.b64decode(one["binaryData"]["part"]))
                visible = {**one, "binaryData": {"part": f"[{size:,} bytes of the command]"}}
            texts[f"{resource} {one['metadata']['name']}"] = _pretty(visible)
        if self.release is not None:
            texts["then"] = _pretty(self.release)
        return texts


def build(request: JobRequest, resolved: ResolvedJob) -> Objects:
    """The objects of a job."""
    options: KubernetesOptions = request.options
    companions = _companions(request, resolved)
    job = _job(request, resolved, companions)
    if options.overlay:
        job = overlay.merge(job, options.overlay)
    root, before = job, Companions()
    if options.kind == "jobset":
        root = kinds.job_set(job, _restarts(options))
    elif options.kind == "trainjob":
        root, runtime = kinds.train_job(job, _restarts(options), request.num_nodes)
        before = ((kinds.TRAINING_RUNTIME.resource, runtime),)
    elif options.kind == "volcano":
        companions = (("podgroups", _pod_group(request, resolved)), *companions)
    # Kueue starts objects with its label. Volcano has queues of its own.
    queue = "" if options.kind == "volcano" else options.queue
    labels = root["metadata"]["labels"]
    if root is job and not companions:
        if queue:
            labels[naming.QUEUE_LABEL] = queue
            job["spec"]["suspend"] = True
        return Objects(job)
    if root is not job:
        companions = (("jobs", fence(resolved.name, resolved.namespace)), *companions)
    root["spec"]["suspend"] = True
    labels[naming.LABEL_SUBMITTING] = "true"
    release: dict[str, Any] = {"metadata": {"labels": {naming.LABEL_SUBMITTING: None}}}
    if queue:
        release["metadata"]["labels"][naming.QUEUE_LABEL] = queue
    else:
        release["spec"] = {"suspend": False}
    return Objects(job, companions, release, None if root is job else root, before)


def _pod_group(request: JobRequest, resolved: ResolvedJob) -> dict[str, Any]:
    """Volcano's unit of scheduling: all pods start or none."""
    spec = {
        "minMember": request.num_nodes,
        "queue": request.options.queue,
        "priorityClassName": request.options.priority_class,
    }
    return {
        "apiVersion": kinds.POD_GROUP.api_version,
        "kind": kinds.POD_GROUP.kind,
        "metadata": _metadata(request, resolved, resolved.name),
        "spec": {name: value for name, value in spec.items() if value},
    }


def fence(name: str, namespace: str) -> dict[str, Any]:
    """A Job that occupies a name and runs nothing.

    It completes at once, because it has zero completions; the cluster removes it later.
    """
    never = {"name": naming.CONTAINER, "image": "tao-sdk/never-runs", "command": ["false"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {naming.LABEL_FENCE: "true"},
        },
        "spec": {
            "completions": 0,
            "parallelism": 0,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _FENCE_TTL_SECONDS,
            "template": {"spec": {"restartPolicy": "Never", "containers": [never]}},
        },
    }


def owner_of(root: Mapping[str, Any]) -> dict[str, Any]:
    """The reference that deletes an object with the root."""
    return {
        "apiVersion": root["apiVersion"],
        "kind": root["kind"],
        "name": root["metadata"]["name"],
        "uid": root["metadata"]["uid"],
        "controller": False,
    }


def secret_environment(request: JobRequest, resolved: ResolvedJob) -> dict[str, str]:
    """The variables of the container that are secret."""
    own = {name: value.reveal() for name, value in request.env.items()}
    return {**resolved.credentials, **own}


def plain_environment(request: JobRequest, resolved: ResolvedJob) -> dict[str, str]:
    """The other variables of the container. `env_vars` win, except over those of the SDK."""
    env = dict(resolved.runner)
    if resolved.gpu_count == 0 and not _asks_for_parts(request):
        env.update(_NO_GPUS)
    if request.num_nodes > 1:
        env["MASTER_PORT"] = DEFAULT_PORT
    env = {name: value for name, value in env.items() if name not in request.env}
    if request.num_nodes > 1:
        name = resolved.name
        env |= {
            "WORLD_SIZE": str(request.num_nodes),
            "NNODES": str(request.num_nodes),
            "NUM_GPU_PER_NODE": str(resolved.gpu_count),
            "NPROC_PER_NODE": str(resolved.gpu_count),
            "MASTER_ADDR": f"{_job_name(request, resolved)}-0.{name}",
        }
    env |= {"TAO_JOB_ID": resolved.job_id, "TAO_ATTEMPT": "1"}
    if volumes.results_place(request.options.mounts) is not None:
        env["TAO_RESULTS_ROOT"] = RESULTS
    return env


def _job_name(request: JobRequest, resolved: ResolvedJob) -> str:
    """The name of the Job; a JobSet derives it from its own."""
    if kinds.ROOTS[request.options.kind] is kinds.JOB:
        return resolved.name
    return kinds.child_of(resolved.name)


def _asks_for_parts(request: JobRequest) -> bool:
    """Whether the job requests a part of a GPU (MIG, shared) under its own resource name.

    Then the device plugin sets NVIDIA_VISIBLE_DEVICES, and a variable of the pod would override it.
    """
    return any(name.startswith(_NVIDIA) for name in request.options.resources)


def wants_login(request: JobRequest) -> bool:
    """Whether the image is on NVIDIA's registry, and the request names no pull Secret."""
    at_nvidia = request.image.partition("/")[0] == NGC_REGISTRY
    return at_nvidia and not request.options.image_pull_secret


def _job(request: JobRequest, resolved: ResolvedJob, companions: Companions) -> dict[str, Any]:
    options: KubernetesOptions = request.options
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": options.ttl_seconds,
        "template": {
            "metadata": {"labels": {**options.labels, **_labels(request, resolved)}},
            "spec": _pod_spec(request, resolved, [one for _, one in companions]),
        },
    }
    is_root = kinds.ROOTS[options.kind] is kinds.JOB
    if request.num_nodes > 1 or (retries_of(options) and is_root):
        spec |= {
            "completionMode": "Indexed",
            "completions": request.num_nodes,
            "parallelism": request.num_nodes,
        }
    if is_root and retries_of(options):
        # `backoffLimit` would count the failures of all pods together.
        del spec["backoffLimit"]
        spec |= {"backoffLimitPerIndex": retries_of(options), "maxFailedIndexes": 0}
    if options.node_retries or (is_root and options.retries):
        spec["podFailurePolicy"] = {"rules": _failure_rules(options)}
    if options.active_deadline_seconds:
        spec["activeDeadlineSeconds"] = options.active_deadline_seconds
    labels = {**options.labels, **_labels(request, resolved), naming.LABEL_TOKEN: resolved.token}
    metadata: dict[str, Any] = {
        "name": resolved.name,
        "namespace": resolved.namespace,
        "labels": labels,
    }
    noted = dict(options.annotations)
    if options.annotations:
        metadata["annotations"] = dict(options.annotations)
    if options.kind == "volcano":
        noted[naming.POD_GROUP_ANNOTATION] = resolved.name
    if noted:
        spec["template"]["metadata"]["annotations"] = noted
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def retries_of(options: KubernetesOptions) -> int:
    """How often each pod may be tried again, for any cause."""
    return options.retries or options.node_retries


def _restarts(options: KubernetesOptions) -> kinds.Restarts:
    return kinds.Restarts(retries_of(options), program_failures=bool(options.retries))


def _failure_rules(options: KubernetesOptions) -> list[dict[str, Any]]:
    # Kubernetes marks pods that were ended by a failed node, an eviction or a preemption.
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    if options.retries:
        return [{"action": "Ignore", "onPodConditions": disrupted}]
    failed = {"containerName": naming.CONTAINER, "operator": "NotIn", "values": [0]}
    return [
        {"action": "Count", "onPodConditions": disrupted},
        {"action": "FailJob", "onExitCodes": failed},
    ]


def _pod_spec(
    request: JobRequest, resolved: ResolvedJob, companions: list[dict[str, Any]]
) -> dict[str, Any]:
    options: KubernetesOptions = request.options
    parts = [one["metadata"]["name"] for one in companions if one["kind"] == "ConfigMap"]
    command_volumes, command_mounts = commands.command_volumes(parts)
    user_volumes, user_mounts = volumes.pod_volumes(options.mounts)
    shm_volumes, shm_mounts = _shared_memory(request)
    container: dict[str, Any] = {
        "name": naming.CONTAINER,
        "image": request.image,
        "command": commands.container_command(
            request.shell_command, retried=bool(retries_of(options))
        ),
        "env": _environment(request, resolved),
        "resources": _resources(request, resolved),
        "volumeMounts": [*shm_mounts, *user_mounts, *command_mounts],
    }
    sources = [_env_source(*source.split("://")) for source in options.env_from]
    if secret_environment(request, resolved):
        # The last source wins: env_vars= over existing objects.
        sources.append(_env_source("secret", _env_name(resolved)))
    if sources:
        container["envFrom"] = sources
    if options.restricted:
        container["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    if options.image_pull_policy:
        container["imagePullPolicy"] = options.image_pull_policy
    if options.cwd:
        container["workingDir"] = options.cwd
    tolerations = list(options.tolerations)
    if resolved.gpu_count and GPU_TOLERATION not in tolerations:
        tolerations.append(GPU_TOLERATION)
    pull = list(options.image_pull_secret)
    if resolved.login is not None:
        pull.append(_pull_name(resolved))
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [*shm_volumes, *user_volumes, *command_volumes],
        # Any deletion, also by kubectl, gives the job this time to save and deliver.
        "terminationGracePeriodSeconds": math.ceil(resolved.stop_seconds),
        # Variables for each Service of the namespace are useless, and may be thousands.
        "enableServiceLinks": False,
        "automountServiceAccountToken": options.service_account_token,
    }
    found = {
        # A JobSet sets its own, and its Service.
        "subdomain": resolved.name if _needs_service(request) else None,
        "nodeSelector": options.node_selector,
        "tolerations": tolerations,
        "affinity": options.affinity,
        "imagePullSecrets": [{"name": name} for name in pull],
        "serviceAccountName": options.service_account,
        "securityContext": _security_context(options),
        "priorityClassName": options.priority_class,
        "schedulerName": "volcano" if options.kind == "volcano" else None,
        "hostNetwork": options.host_network,
        # Otherwise a pod on the node's network cannot resolve names of the cluster.
        "dnsPolicy": "ClusterFirstWithHostNet" if options.host_network else None,
        "hostIPC": options.host_ipc,
    }
    return {**spec, **{name: value for name, value in found.items() if value}}


def _security_context(options: KubernetesOptions) -> dict[str, Any]:
    found: dict[str, Any] = {
        "runAsUser": options.run_as_user,
        "runAsGroup": options.run_as_group,
        "fsGroup": options.fs_group,
        # Otherwise every start changes the owner of every file of a volume.
        "fsGroupChangePolicy": None if options.fs_group is None else "OnRootMismatch",
        "runAsNonRoot": options.restricted or None,
        "seccompProfile": {"type": "RuntimeDefault"} if options.restricted else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _env_source(kind: str, name: str) -> dict[str, Any]:
    return {"secretRef" if kind == "secret" else "configMapRef": {"name": name}}


def _environment(request: JobRequest, resolved: ResolvedJob) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = [
        {"name": name, "value": commands.escape(value)}
        for name, value in plain_environment(request, resolved).items()
    ]
    if request.num_nodes > 1:
        env.append(_from_annotation("NODE_RANK", naming.INDEX_ANNOTATION))
    if retries_of(request.options):
        is_root = kinds.ROOTS[request.options.kind] is kinds.JOB
        counted = naming.FAILURES_ANNOTATION if is_root else naming.RESTARTS_ANNOTATION
        env.append(_from_annotation(commands.FAILURES, counted))
    return env


def _from_annotation(name: str, annotation: str) -> dict[str, Any]:
    path = f"metadata.annotations['{annotation}']"
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(request: JobRequest, resolved: ResolvedJob) -> dict[str, Any]:
    """Requests and limits. CPUs have no limit: it would keep a job from using idle ones."""
    asked: dict[str, str] = dict(request.options.resources)
    limits = {name: value for name, value in asked.items() if name != "cpu"}
    if resolved.gpu_count:
        limits[naming.GPU] = str(resolved.gpu_count)
    requests = {name: value for name, value in asked.items() if "/" not in name}
    found = {"requests": requests, "limits": limits}
    return {name: value for name, value in found.items() if value}


def _shared_memory(request: JobRequest) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The volume at /dev/shm and its mount.

    64 MiB, the default of containers, cause bus errors of data loaders. Without a size, the limit
    is the pod's memory limit or else the node's memory.
    """
    asked = request.options.shm_size
    taken = any(mount.target == "/dev/shm" for mount in request.options.mounts)  # noqa: S108 - in the container
    if asked == "0" or taken or request.options.host_ipc:
        return [], []
    held: dict[str, Any] = {"medium": "Memory"}
    if asked:
        held["sizeLimit"] = asked
    name = "tao-shm"
    return [{"name": name, "emptyDir": held}], [{"name": name, "mountPath": "/dev/shm"}]  # noqa: S108 - in the container


def _companions(request: JobRequest, resolved: ResolvedJob) -> Companions:
    made: list[tuple[str, dict[str, Any]]] = []
    env = secret_environment(request, resolved)
    if env:
        made.append(("secrets", _secret(request, resolved, _env_name(resolved), "Opaque", env)))
    if resolved.login is not None:
        user, password = resolved.login
        auth = base64.b64encode(f"{user}:{password.reveal()}".encode()).decode()
        entry = {"username": user, "password": password.reveal(), "auth": auth}
        text = json.dumps({"auths": {NGC_REGISTRY: entry}})
        kind = "kubernetes.io/dockerconfigjson"
        held = _secret(request, resolved, _pull_name(resolved), kind, {".dockerconfigjson": text})
        made.append(("secrets", held))
    for number, part in enumerate(commands.parts(request.shell_command)):
        metadata = _metadata(request, resolved, f"{resolved.name}-command-{number}")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        made.append(("configmaps", {**body, "immutable": True, "binaryData": {"part": part}}))
    if _needs_service(request):
        made.append(("services", _service(request, resolved)))
    return tuple(made)


def _needs_service(request: JobRequest) -> bool:
    return request.num_nodes > 1 and kinds.ROOTS[request.options.kind] is kinds.JOB


def _service(request: JobRequest, resolved: ResolvedJob) -> dict[str, Any]:
    """Names for the pods. They must resolve before the pods are ready, to find each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(request, resolved, resolved.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {naming.JOB_NAME_LABEL: resolved.name},
        },
    }


def _secret(
    request: JobRequest, resolved: ResolvedJob, name: str, kind: str, values: Mapping[str, str]
) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    metadata = _metadata(request, resolved, name)
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}
    return {**body, "immutable": True, "data": data}


def _metadata(request: JobRequest, resolved: ResolvedJob, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": resolved.namespace, "labels": _labels(request, resolved)}


def _labels(request: JobRequest, resolved: ResolvedJob) -> dict[str, str]:
    return {
        naming.LABEL: "true",
        naming.LABEL_JOB: resolved.job_id,
        naming.LABEL_NETWORK: naming.label_value(request.network_arch),
        naming.LABEL_ACTION: naming.label_value(request.action),
    }


def _env_name(resolved: ResolvedJob) -> str:
    return f"{resolved.name}-env"


def _pull_name(resolved: ResolvedJob) -> str:
    return f"{resolved.name}-pull"


def _pretty(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
