"""`overlay=`: a patch merged into the Job, for fields without a keyword. Pure.

Mappings are merged; None removes a key. Lists whose items have names (containers, volumes,
variables) are merged by name, mounts by their path; other lists are replaced. A patch cannot change
what the SDK itself sets and relies on, such as the name of the Job.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.kubernetes.naming import CONTAINER, GPU, OUR_LABELS, QUEUE_LABEL
from tao_sdk.platforms.request import RESERVED_ENV

_TEMPLATE = "spec.template.spec"
_OURS = f"{_TEMPLATE}.containers[{CONTAINER}]"
_INSTEAD = {
    "metadata.namespace": "use namespace=",
    "spec.backoffLimit": "use retries=",
    "spec.backoffLimitPerIndex": "use retries=",
    "spec.maxFailedIndexes": "use retries=",
    "spec.completions": "use num_nodes=",
    "spec.parallelism": "use num_nodes=",
    "spec.suspend": "use queue=",
    f"{_OURS}.image": "use image=",
    f"{_OURS}.command": "use command=",
    f"{_OURS}.envFrom": "use env_vars=",
    f"{_OURS}.resources.limits.{GPU}": "use gpu_count=",
    f"{_OURS}.resources.requests.{GPU}": "use gpu_count=",
}
_PROTECTED = (
    "apiVersion",
    "kind",
    "status",
    "metadata.name",
    "metadata.generateName",
    "metadata.ownerReferences",
    "metadata.finalizers",
    "spec.completionMode",
    "spec.selector",
    "spec.manualSelector",
    "spec.managedBy",
    f"{_TEMPLATE}.restartPolicy",
    f"{_TEMPLATE}.subdomain",
    f"{_TEMPLATE}.hostname",
    f"{_OURS}.args",
    *_INSTEAD,
    *(f"metadata.labels.{name}" for name in (*OUR_LABELS, QUEUE_LABEL)),
    *(f"spec.template.metadata.labels.{name}" for name in OUR_LABELS),
    *(f"{_OURS}.env[{name}]" for name in RESERVED_ENV),
)


def check_overlay(where: str, value: Any) -> dict[str, Any]:
    """Check a patch; refuse changes of fields that the SDK relies on."""
    if not isinstance(value, Mapping):
        raise ValidationError(f"{where}: expected a mapping such as {{'spec': {{'template': …}}}}")
    for path in _paths("", value):
        for kept in _PROTECTED:
            if path == kept or path.startswith((f"{kept}.", f"{kept}[")) or _hides(path, kept):
                instead = _INSTEAD.get(kept, "the SDK relies on it")
                raise ValidationError(f"{where}.{path}: cannot be changed here; {instead}")
    return dict(value)


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a patch into a Job."""
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            held = merged.get(key)
            merged[key] = merge(held if isinstance(held, Mapping) else {}, value)
        elif _key_of(value) and isinstance(merged.get(key), list):
            merged[key] = _merge_items(merged[key], value, _key_of(value))
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def _merge_items(base: list[Any], patch: Sequence[Any], key: str) -> list[Any]:
    merged = list(base)
    for item in patch:
        for place, held in enumerate(merged):
            if held.get(key) == item[key]:
                merged[place] = merge(held, item)
                break
        else:
            merged.append(merge({}, item))
    return merged


def _key_of(value: Any) -> str:
    """The key that identifies the items of a list; "" if there is none."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return ""
    for key in ("mountPath", "name"):
        if all(isinstance(item, Mapping) and key in item for item in value):
            return key
    return ""


def _paths(above: str, value: Any) -> Iterator[str]:
    """The paths of all that a patch sets, such as `spec.template.spec.containers[tao].image`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _paths(f"{above}.{key}" if above else str(key), item)
    elif key := _key_of(value):
        for item in value:
            for name, inner in item.items():
                if name != key:
                    yield from _paths(f"{above}[{item[key]}].{name}", inner)
            if set(item) == {key}:
                yield f"{above}[{item[key]}]"
    else:
        yield above


def _hides(path: str, kept: str) -> bool:
    """Whether setting this path would replace a protected field below it."""
    return kept.startswith((f"{path}.", f"{path}["))
