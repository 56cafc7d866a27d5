"""Checks of a request against the cluster, and the text of its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, CapacityError, UnsupportedError, ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.backend import Artefact
from tao_sdk.platforms.common.container_command import SHELL_NOTE
from tao_sdk.platforms.common.option_checks import check_image, check_variables
from tao_sdk.platforms.kubernetes import (
    capacity,
    command,
    kinds,
    manifests,
    naming,
    overlay,
    volumes,
)
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.cluster import Cluster
from tao_sdk.platforms.kubernetes.options import (
    DEFAULT_TTL_SECONDS,
    KubernetesOptions,
    check_namespace,
)
from tao_sdk.platforms.request import JobRequest
from tao_sdk.secrets import Secret

_LARGEST_SECRET = 1_000_000


def refuse_impossible(request: JobRequest) -> None:
    """Raise for a request that no cluster could run."""
    check_image(request.image, "Kubernetes")
    size = sum(len(name) + len(value.reveal().encode()) for name, value in request.env.items())
    if size > _LARGEST_SECRET:
        raise ValidationError(
            f"env_vars: {size:,} bytes do not fit into a Secret (1 MiB); pass large data as a file"
        )
    check_variables(request.env)
    if request.options.retries and request.options.node_retries:
        raise ValidationError(
            "node_retries: retries= already tries again what a failed node ended; leave one out"
        )
    if request.options.run_as_user == 0 and request.options.restricted:
        raise ValidationError("run_as_user: restricted= does not allow root (0)")
    if request.options.gang and not (request.options.queue or request.options.kind == "volcano"):
        raise ValidationError(
            "gang: Kueue starts all pods or none; name its queue (queue=), or use kind='volcano'"
        )


def namespace_of(request: JobRequest, of_context: str) -> str:
    """The namespace of the job: the keyword, TAO_K8S_NAMESPACE, that of the context, default."""
    chosen: str | None = request.options.namespace
    return chosen or default_namespace(of_context)


def default_namespace(of_context: str) -> str:
    from_settings = settings.lookup("TAO_K8S_NAMESPACE")
    if from_settings:
        return check_namespace("TAO_K8S_NAMESPACE", from_settings)
    return of_context or "default"


def named_secrets(options: KubernetesOptions) -> list[str]:
    """Existing Secrets whose values are in the job's environment."""
    sources = (source.partition("://") for source in options.env_from)
    return [name for kind, _, name in sources if kind == "secret"]


def login(request: JobRequest) -> tuple[str, Secret] | None:
    """User and password for an image on NVIDIA's registry without a pull Secret."""
    key = settings.lookup("NGC_KEY")
    if not key or not manifests.wants_login(request):
        return None
    return settings.get("DOCKER_USERNAME"), Secret(key)


class ClusterChecks:
    """Checks that a cluster can run a job."""

    def __init__(self, api: KubernetesClient, cluster: Cluster) -> None:
        self._api = api
        self._cluster = cluster

    def check(self, request: JobRequest, namespace: str) -> list[str]:
        """Warnings about a job. Raises if the cluster cannot run it."""
        options: KubernetesOptions = request.options
        if request.num_nodes > 1:
            self._cluster.require_version(1, 28, "num_nodes: a job on several nodes")
        if manifests.retries_of(options):
            what = "retries" if options.retries else "node_retries"
            self._cluster.require_version(1, 29, f"{what}: trying each pod again")
        for needed in kinds.NEEDED.get(options.kind, ()):
            if not self._cluster.serves(needed):
                raise UnsupportedError(
                    f"kind: this cluster has no {needed.kind} (no {needed.resource} in API "
                    f"{needed.api_version}); install it ({needed.website}), or leave kind= out"
                )
        kueue = options.queue and options.kind != "volcano"
        if kueue and not self._cluster.kueue_version():
            what = "gang" if options.gang else "queue"
            raise UnsupportedError(
                f"{what}: this cluster has no Kueue (no API kueue.x-k8s.io), so the job would "
                "never start; install it (https://kueue.sigs.k8s.io), or leave the queue out"
            )
        warnings = self._check_objects(options, namespace)
        for number, mount in enumerate(options.mounts):
            warnings += self._check_mount(f"mounts[{number}]", mount, request, namespace)
        return warnings

    def gpus(self, request: JobRequest) -> tuple[int, list[str]]:
        """GPUs per pod, and warnings. Raises `CapacityError` if there are too few."""
        if request.gpu_count == 0:
            return 0, []
        wanted = gpu_request(request.gpu_count, request.num_nodes, request.options)
        nodes = self._cluster.nodes()
        if nodes is None:
            if request.gpu_count == -1:
                raise ValidationError(
                    "gpu_count: -1 means all GPUs of a node, and you may not list nodes; give a "
                    "number"
                )
            unknown = "you may not list nodes, so it is unknown whether they have such GPUs"
            return request.gpu_count, [unknown]
        if request.gpu_count == -1:
            wanted = wanted._replace(gpus=max(1, capacity.largest(nodes, wanted)))
        refusal = capacity.why_never(wanted, nodes)
        if not refusal:
            return wanted.gpus, []
        if self._cluster.adds_nodes(nodes):
            waits = "The cluster adds nodes by itself, so the job is submitted and waits"
            return wanted.gpus, [f"{refusal}. {waits}"]
        raise CapacityError(refusal)

    def _check_objects(self, options: KubernetesOptions, namespace: str) -> list[str]:
        warnings: list[str] = []
        for name in options.image_pull_secret:
            hint = (
                f"kubectl create secret docker-registry {name} -n {namespace} "
                "--docker-server=… --docker-username=… --docker-password=…"
            )
            where = "image_pull_secret"
            found = self._find(where, "secrets", name, namespace, warnings, f": {hint}")
            if found and not str(found.get("type", "")).startswith("kubernetes.io/dockerc"):
                warnings.append(f"{where}: Secret {name} is not for a registry")
        for number, source in enumerate(options.env_from):
            kind, _, name = source.partition("://")
            self._find(f"env_from[{number}]", f"{kind}s", name, namespace, warnings)
        return warnings

    def _check_mount(
        self, where: str, mount: Mount, request: JobRequest, namespace: str
    ) -> list[str]:
        warnings: list[str] = []
        place = volumes.place_of(mount)
        if place.kind == "hostpath":
            warnings.append(
                f"{where}: {place.path} is a folder of the node that runs the pod, not of this "
                "machine"
            )
        elif place.kind == "configmap":
            self._find(where, "configmaps", place.name, namespace, warnings)
        elif place.kind == "secret":
            self._find(where, "secrets", place.name, namespace, warnings)
        elif place.kind == "pvc":
            claims = "persistentvolumeclaims"
            claim = self._find(where, claims, place.name, namespace, warnings)
            if claim:
                check_claim(where, claim, request.num_nodes, writes=not mount.read_only)
        return warnings

    def _find(
        self,
        where: str,
        resource: str,
        name: str,
        namespace: str,
        warnings: list[str],
        hint: str = "; create it, or correct its name",
    ) -> dict[str, Any] | None:
        """An object that a job needs. Raises if it is missing; warns if we may not look."""
        try:
            return self._api.get(naming.core_path(namespace, resource, name))
        except ApiError as error:
            if error.missing:
                raise ValidationError(
                    f"{where}: there is no {name} among the {resource} of namespace "
                    f"{namespace}{hint}"
                ) from error
            if error.forbidden:
                warnings.append(f"{where}: you may not check whether {name} exists")
                return None
            raise BackendUnreachableError(error.message) from error


def gpu_request(gpus: int, pods: int, options: KubernetesOptions) -> capacity.GpuRequest:
    """The GPUs of a job, and where its pods may be placed, overlay included."""
    placed: dict[str, Any] = {
        "nodeSelector": options.node_selector,
        "tolerations": (*options.tolerations, manifests.GPU_TOLERATION),
    }
    patch: Mapping[str, Any] = options.overlay or {}
    for key in ("spec", "template", "spec"):
        patch = patch.get(key) or {}
    placed = overlay.merge(placed, {key: patch[key] for key in placed if key in patch})
    return capacity.GpuRequest(
        gpus,
        pods,
        placed.get("nodeSelector", {}),
        placed.get("tolerations", ()),
    )


def check_claim(where: str, claim: Mapping[str, Any], nodes: int, *, writes: bool) -> None:
    """Raise if the pods cannot mount a claim as requested."""
    name = claim["metadata"]["name"]
    modes = (claim.get("spec") or {}).get("accessModes") or []
    if (claim.get("status") or {}).get("phase") == "Lost":
        raise ValidationError(f"{where}: claim {name} has lost its volume (phase Lost)")
    if writes and not any(mode.startswith("ReadWrite") for mode in modes):
        raise ValidationError(
            f"{where}: claim {name} is read-only ({', '.join(modes)}); mount it with :ro"
        )
    shared = "ReadWriteMany" in modes or (not writes and "ReadOnlyMany" in modes)
    if nodes > 1 and not shared:
        raise ValidationError(
            f"{where}: claim {name} ({', '.join(modes)}) can be mounted by one node only, and the "
            f"job has {nodes}; use a claim with ReadWriteMany"
        )


def results_address(place: volumes.Place | None, namespace: str, job_id: str) -> str:
    """The address of the job's results; "" if they stay in its pods."""
    if place is None:
        return ""
    below = place.below(job_id)
    if place.kind == "pvc":
        return f"pvc://{namespace}@{below.name}/{below.path}"
    return str(below)


def artefacts(
    objects: manifests.Objects, api: KubernetesClient, namespace: str, text: str
) -> tuple[Artefact, ...]:
    """Cluster, namespace and every object as it is sent, without secrets."""
    where = f"cluster {api.access.server} (context {api.access.context})\nnamespace {namespace}"
    shown = [Artefact("where", where)]
    shown += [Artefact(name, body) for name, body in objects.shown().items()]
    if command.part_count(text):
        shown.append(Artefact(command.COMMAND_FILE, text))
    return tuple(shown)


def notes(warnings: Sequence[str], results_dir: str, ttl: int | None) -> tuple[str, ...]:
    """The notes of a plan: warnings, and what is lost with the Job."""
    found = [SHELL_NOTE, *warnings]
    if ttl is None:
        return tuple(found)
    kept = f"a process attends to it while its Job is kept ({ttl} s after its end; ttl_seconds=)"
    if not results_dir:
        found.append(
            "no writable mount at /results and no S3_BUCKET_NAME: the files that the job writes "
            f"are lost with its pod, and its outcome and its log are lost unless {kept}"
        )
    elif ttl < DEFAULT_TTL_SECONDS:
        found.append(f"the log is lost unless {kept}")
    return tuple(found)
