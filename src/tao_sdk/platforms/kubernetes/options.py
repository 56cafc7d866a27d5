"""The keywords of `create_job` that only Kubernetes has, and their checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.option_checks import check_each, check_matching, check_switch
from tao_sdk.platforms.kubernetes.naming import GPU, OUR_LABELS, QUEUE_LABEL
from tao_sdk.platforms.kubernetes.overlay import check_overlay
from tao_sdk.platforms.kubernetes.volumes import check_mounts
from tao_sdk.platforms.request import (
    Keyword,
    check_positive,
    check_text,
    check_whole_number,
    one_of,
)

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEY = re.compile(
    r"(?:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGTPE]|[KMGTPE]i)?")
_UNITS = {
    "m": 0.001,
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}
DEFAULT_TTL_SECONDS = 3600
# Resources whose name in Kubernetes is not a Python identifier.
_RESOURCES = {"ephemeral_storage": "ephemeral-storage"}


check_namespace = check_matching(
    _NAMESPACE, "is not a namespace: lower-case letters, digits and '-', at most 63"
)
_check_name = check_matching(_NAME, "is not a name that Kubernetes accepts")
_check_names = check_each(_check_name, "the name of a Secret")


def check_quantity(where: str, value: Any) -> str:
    """An amount as Kubernetes writes it: 500m, 2, 64Gi. Numbers are accepted, too."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = f"{value:g}" if isinstance(value, float) else str(value)
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise ValidationError(
            f"{where}: {value!r} is not an amount: a number, or text such as 500m, 16, 64Gi"
        )
    return value


def amount(text: str) -> float:
    """The amount that a quantity stands for; 0 if it cannot be parsed."""
    match = _QUANTITY.fullmatch(text)
    return float(match[1]) * _UNITS[match[2] or ""] if match else 0.0


def _check_pairs(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValidationError(f"{where}: expected {{'key': 'value'}}")
    found = {}
    for key, item in value.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ValidationError(f"{where}: {key!r} is not a key that Kubernetes accepts")
        if key in OUR_LABELS or key == QUEUE_LABEL:
            instead = "use queue= instead" if key == QUEUE_LABEL else "it is the SDK's own"
            raise ValidationError(f"{where}.{key}: {instead}")
        found[key] = check_text(f"{where}.{key}", item)
    return found


def _check_labels(where: str, value: Any) -> dict[str, str]:
    found = _check_pairs(where, value)
    for key, item in found.items():
        if not _LABEL_VALUE.fullmatch(item):
            raise ValidationError(
                f"{where}.{key}: {item!r} is not the value of a label: at most 63 letters, digits "
                "and _ . -"
            )
    return found


def _check_tolerations(where: str, value: Any) -> tuple[dict[str, Any], ...]:
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValidationError(
            f"{where}: expected a list such as [{{'key': 'gpu', 'operator': 'Exists'}}]"
        )
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise ValidationError(f"{where}[{number}]: expected a mapping, got {item!r}")
        one_of("Exists", "Equal")(f"{where}[{number}].operator", item.get("operator", "Equal"))
        one_of(*_EFFECTS)(f"{where}[{number}].effect", item.get("effect", ""))
    return tuple(dict(item) for item in value)


def _check_source(where: str, value: Any) -> str:
    """`secret://name` or `configmap://name`; a bare name is a Secret."""
    text = check_text(where, value)
    kind, mark, name = text.rpartition("://")
    if (mark and kind not in ("secret", "configmap")) or not _NAME.fullmatch(name):
        raise ValidationError(f"{where}: {text!r} is not secret://name or configmap://name")
    return f"{kind or 'secret'}://{name}"


def _check_mapping(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValidationError(f"{where}: expected a mapping, got {type(value).__name__}")
    return dict(value)


def _check_resources(where: str, value: Any) -> dict[str, str]:
    """{'cpu': 8, 'memory': '64Gi', 'ephemeral_storage': '100Gi', 'rdma/hca': 1}"""
    found = {}
    for name, item in _check_mapping(where, value).items():
        resource = _RESOURCES.get(name, name)
        if resource == GPU:
            raise ValidationError(f"{where}.{name}: request GPUs with gpu_count=")
        if resource not in ("cpu", "memory", "ephemeral-storage") and "/" not in str(resource):
            raise ValidationError(
                f"{where}.{name}: expected cpu, memory, ephemeral_storage or a resource of a "
                "device plugin, whose name has a slash (rdma/hca)"
            )
        found[str(resource)] = check_quantity(f"{where}.{name}", item)
    return found


def _check_shm(where: str, value: Any) -> str:
    """A quantity; 0 means no volume for shared memory."""
    text = check_quantity(where, value)
    return text if amount(text) else "0"


def _check_range(largest: int) -> Callable[[str, Any], int]:
    def check(where: str, value: Any) -> int:
        number = check_whole_number(where, value)
        if not 0 <= number <= largest:
            raise ValidationError(f"{where}: {number} is not between 0 and {largest:,}")
        return number

    return check


_check_retries = _check_range(1000)
_check_id = _check_range((1 << 31) - 1)


class KubernetesOptions(NamedTuple):
    """The keywords of a job that only Kubernetes has."""

    namespace: Annotated[
        str | None, Keyword("namespace of the Job; default: TAO_K8S_NAMESPACE", check_namespace)
    ] = None
    image_pull_secret: Annotated[
        tuple[str, ...], Keyword("Secrets of the namespace for the registry", _check_names)
    ] = ()
    image_pull_policy: Annotated[
        str | None, Keyword("when to pull", one_of("Always", "IfNotPresent", "Never"))
    ] = None
    node_selector: Annotated[
        Mapping[str, str], Keyword("labels that nodes must have", _check_labels)
    ] = MappingProxyType({})
    tolerations: Annotated[
        tuple[dict[str, Any], ...],
        Keyword("taints of nodes that do not matter", _check_tolerations),
    ] = ()
    affinity: Annotated[
        Mapping[str, Any] | None,
        Keyword("affinity of the pods, as Kubernetes writes it", _check_mapping),
    ] = None
    resources: Annotated[
        Mapping[str, str],
        Keyword(
            "per node: {'cpu': 8, 'memory': '64Gi', 'ephemeral_storage': '100Gi'}", _check_resources
        ),
    ] = MappingProxyType({})
    shm_size: Annotated[
        str | None,
        Keyword("size of /dev/shm, in memory; default: what the node allows", _check_shm),
    ] = None
    mounts: Annotated[
        tuple[Mount, ...],
        Keyword("volumes: 'pvc://claim[/folder]:/data[:ro]', nfs://…, Mount", check_mounts),
    ] = ()
    env_from: Annotated[
        tuple[str, ...],
        Keyword(
            "environment from existing objects: 'secret://name', 'configmap://name'",
            check_each(_check_source, "secret://name or configmap://name"),
        ),
    ] = ()
    service_account: Annotated[str | None, Keyword("service account of the pods", _check_name)] = (
        None
    )
    service_account_token: Annotated[
        bool, Keyword("True: mount the token of the service account", check_switch)
    ] = False
    run_as_user: Annotated[
        int | None, Keyword("user id of the container; default: the image's", _check_id)
    ] = None
    run_as_group: Annotated[
        int | None, Keyword("group id of the container; default: the image's", _check_id)
    ] = None
    fs_group: Annotated[int | None, Keyword("group id that owns mounted volumes", _check_id)] = None
    restricted: Annotated[
        bool,
        Keyword("True: no root, no privileges (Pod Security level `restricted`)", check_switch),
    ] = False
    priority_class: Annotated[str | None, Keyword("priority class of the pods", _check_name)] = None
    labels: Annotated[
        Mapping[str, str], Keyword("labels of Job and pods, beside ours", _check_labels)
    ] = MappingProxyType({})
    annotations: Annotated[
        Mapping[str, str], Keyword("annotations of Job and pods", _check_pairs)
    ] = MappingProxyType({})
    active_deadline_seconds: Annotated[
        int | None, Keyword("the Job is ended after this time", check_positive)
    ] = None
    ttl_seconds: Annotated[int, Keyword("how long the cluster keeps the ended Job", _check_id)] = (
        DEFAULT_TTL_SECONDS
    )
    host_network: Annotated[
        bool, Keyword("the node's network, as RDMA may need it", check_switch)
    ] = False
    host_ipc: Annotated[bool, Keyword("the node's shared memory", check_switch)] = False
    cwd: Annotated[
        str | None, Keyword("working directory in the container; default: the image's", check_text)
    ] = None
    kind: Annotated[
        str,
        Keyword(
            "the object that runs the job: 'job', 'jobset', 'trainjob', or 'volcano' (a Job that "
            "Volcano places)",
            one_of("job", "jobset", "trainjob", "volcano"),
        ),
    ] = "job"
    queue: Annotated[
        str | None,
        Keyword("queue of Kueue (or of Volcano) that decides when the job starts", _check_name),
    ] = None
    gang: Annotated[
        bool, Keyword("True: all pods or none, which needs Kueue or Volcano", check_switch)
    ] = False
    retries: Annotated[
        int, Keyword("how often each pod is tried again after a failure", _check_retries)
    ] = 0
    node_retries: Annotated[
        int,
        Keyword(
            "how often each pod is tried again after its node failed or evicted it; a failure of "
            "the program is final",
            _check_retries,
        ),
    ] = 0
    overlay: Annotated[
        Mapping[str, Any] | None,
        Keyword("a patch for the Job, for what has no keyword", check_overlay),
    ] = None
