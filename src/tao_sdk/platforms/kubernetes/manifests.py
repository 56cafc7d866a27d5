"""From a request to the objects that the cluster is asked for: pure.

What `build` returns is sent word for word. A job that needs nothing but its Job is one object.
Anything else (a Secret with its environment, a Service, a long command) belongs to the Job and
goes with it, so the Job comes first: suspended, and marked as not yet submitted. The last step of
a submission takes both away, in one change. A JobSet or a TrainJob takes the Job's place as the
root, and always goes through these steps.
"""

from __future__ import annotations

import base64
import copy
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
# Nodes that are kept for GPU work have this taint; some clusters add the toleration themselves.
GPU_TOLERATION = {"key": naming.GPU, "operator": "Exists", "effect": "NoSchedule"}
# The resource (its plural name) and the object, in the order of their creation.
Companions = tuple[tuple[str, dict[str, Any]], ...]
# GPUs of a node whose default runtime is NVIDIA's would be visible to every container.
_NVIDIA = "nvidia.com/"
_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "void"}


@dataclass(frozen=True)
class ResolvedJob:
    """What the objects need beside the request."""

    job_id: str
    token: str
    namespace: str
    gpu_count: int
    credentials: Mapping[str, str]
    runner: Mapping[str, str]
    """Settings of the runner, where the command carries one."""
    stop_seconds: float
    login: tuple[str, Secret] | None = None
    """User and password of NVIDIA's registry, for an image there without a Secret of its own."""

    @property
    def name(self) -> str:
        return naming.job_name(self.job_id)


@dataclass(frozen=True)
class Objects:
    """Everything that a submission makes. Holds secrets: never printed, never stored."""

    job: dict[str, Any]
    companions: Companions = ()
    """What the root owns, created after it."""
    release: dict[str, Any] | None = field(default=None)
    """The change that lets the root start; None when it starts as it is."""
    wrapper: dict[str, Any] | None = None
    """The JobSet or TrainJob whose controller creates the Job."""
    before: Companions = ()
    """What the root refers to and must find; it owns them later."""

    @property
    def root(self) -> dict[str, Any]:
        """What is created first and owns everything else."""
        return self.wrapper or self.job

    def __repr__(self) -> str:
        return f"Objects({self.job['metadata']['name']})"

    def shown(self) -> dict[str, str]:
        """For people: values of Secrets left out."""
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
    """The root and what belongs to it."""
    options: KubernetesOptions = request.options
    companions = _companions(request, resolved)
    job = _job(request, resolved, companions)
    if options.overlay:
        job = overlay.merge(job, options.overlay)
    root, before = job, Companions()
    if options.kind == "jobset":
        root = _job_set(job, options)
    elif options.kind == "trainjob":
        root, before = _train_job(job, options, request.num_nodes)
    elif options.kind == "volcano":
        companions = (("podgroups", _pod_group(request, resolved)), *companions)
    # Kueue starts what has its label. Volcano has queues of its own.
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


def _job_set(job: Mapping[str, Any], options: KubernetesOptions) -> dict[str, Any]:
    spec = kinds.job_set_spec(job, retries_of(options), program_failures=bool(options.retries))
    if "ttlSecondsAfterFinished" in job["spec"]:
        spec["ttlSecondsAfterFinished"] = job["spec"]["ttlSecondsAfterFinished"]
    return _of_kind(kinds.JOBSET, job, spec)


def _train_job(
    job: Mapping[str, Any], options: KubernetesOptions, nodes: int
) -> tuple[dict[str, Any], Companions]:
    """A TrainJob and the runtime it refers to, which describes the pods."""
    template = kinds.job_set_spec(job, retries_of(options), program_failures=bool(options.retries))
    trainer = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template["replicatedJobs"][0]["template"]["metadata"]["labels"] |= trainer
    described = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": template}}
    runtime = _of_kind(kinds.TRAINING_RUNTIME, job, described)
    runtime["metadata"]["labels"][naming.LABEL_SUBMITTING] = "true"
    reference = {
        "apiGroup": kinds.TRAINJOB.api_version.partition("/")[0],
        "kind": kinds.TRAINING_RUNTIME.kind,
        "name": job["metadata"]["name"],
    }
    root = _of_kind(kinds.TRAINJOB, job, {"runtimeRef": reference, "trainer": {"numNodes": nodes}})
    if (ttl := job["spec"].get("ttlSecondsAfterFinished")) is not None:
        # Kubernetes keeps ended TrainJobs for ever: the SDK removes them, see cleanup.
        root["metadata"]["annotations"][naming.TTL_ANNOTATION] = str(ttl)
    return root, ((kinds.TRAINING_RUNTIME.resource, runtime),)


def _pod_group(request: JobRequest, resolved: ResolvedJob) -> dict[str, Any]:
    """All pods start or none: Volcano's unit of scheduling."""
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


def _of_kind(kind: kinds.Kind, job: Mapping[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """An object of another kind with the metadata of a Job."""
    metadata = copy.deepcopy(job["metadata"])
    metadata.setdefault("annotations", {})
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": spec,
    }


def fence(name: str, namespace: str) -> dict[str, Any]:
    """A Job that takes a name and runs nothing.

    It has all of its zero completions at once, and the cluster removes it later.
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
    """What the container finds set, and nobody else may read."""
    own = {name: value.reveal() for name, value in request.env.items()}
    return {**resolved.credentials, **own}


def plain_environment(request: JobRequest, resolved: ResolvedJob) -> dict[str, str]:
    """What the container finds set, and everybody may read; yours wins where it may."""
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
    """The name of the Job, which a JobSet derives from its own."""
    if kinds.ROOTS[request.options.kind] is kinds.JOB:
        return resolved.name
    return kinds.child_of(resolved.name)


def _asks_for_parts(request: JobRequest) -> bool:
    """Is a part of a GPU (MIG, shared) asked for by its own name?

    A variable of the pod would win over what the device plugin says which part it is.
    """
    return any(name.startswith(_NVIDIA) for name in request.options.resources)


def wants_login(request: JobRequest) -> bool:
    """Is the image on NVIDIA's registry, and no Secret for it named?"""
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
        # A limit for the whole Job would count the failures of all its pods together.
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
    """How often each pod may be tried again, for whatever cause."""
    return options.retries or options.node_retries


def _failure_rules(options: KubernetesOptions) -> list[dict[str, Any]]:
    # Kubernetes marks the pods that a failed node, an eviction or a preemption ended.
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
        # Whoever deletes the Job, with kubectl as well, gives it this time to save and deliver.
        "terminationGracePeriodSeconds": math.ceil(resolved.stop_seconds),
        # Variables for every Service of the namespace are of no use, and may be thousands.
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
        # With the node's network, the cluster's names would not be known otherwise.
        "dnsPolicy": "ClusterFirstWithHostNet" if options.host_network else None,
        "hostIPC": options.host_ipc,
    }
    return {**spec, **{name: value for name, value in found.items() if value}}


def _security_context(options: KubernetesOptions) -> dict[str, Any]:
    found: dict[str, Any] = {
        "runAsUser": options.run_as_user,
        "runAsGroup": options.run_as_group,
        "fsGroup": options.fs_group,
        # Otherwise every start changes the owner of each file of a volume.
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
    """Memory and disk are promised and limited; processors are promised only, since a limit on
    them slows a job down that could have used idle ones.
    """
    asked: dict[str, str] = dict(request.options.resources)
    limits = {name: value for name, value in asked.items() if name != "cpu"}
    if resolved.gpu_count:
        limits[naming.GPU] = str(resolved.gpu_count)
    requests = {name: value for name, value in asked.items() if "/" not in name}
    found = {"requests": requests, "limits": limits}
    return {name: value for name, value in found.items() if value}


def _shared_memory(request: JobRequest) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Memory to share: 64 MiB, the default of containers, end in bus errors of data loaders.

    Without a size it is bounded by the pod's memory limit, or else by the node's memory.
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
    """Names for the pods, before they are ready: that is when they look for each other."""
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
