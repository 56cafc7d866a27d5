"""The shape of a job: GPUs per node, and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tao_sdk.platforms.gpus.discovery import discover
from tao_sdk.platforms.request import check_gpu_count, check_node_count
from tao_sdk.skills.actions import places_of_count
from tao_sdk.skills.model_skill import ActionMetadata

__all__ = ["ComputeShape", "compute_shape", "suggested_gpus", "suggested_nodes"]


def _gpus_in_spec(where: str, value: Any) -> int | None:
    """A spec may leave the number to the program (-1), which says nothing about the job."""
    return None if check_gpu_count(where, value) == -1 else int(value)


_CHECKS: Mapping[str, Callable[[str, Any], int | None]] = {
    "gpu_spec_key": _gpus_in_spec,
    "node_spec_key": check_node_count,
}


@dataclass(frozen=True)
class ComputeShape:
    """What is known of it; None is not known."""

    gpus: int | None
    nodes: int | None
    gpu_key: str = ""
    """Where the spec holds the number of GPUs; "" where it does not."""
    node_key: str = ""
    conflicts: tuple[str, ...] = ()
    """Where the spec says another number than the job gets."""


def compute_shape(
    metadata: ActionMetadata,
    main: Mapping[str, Any],
    gpus: int | None,
    nodes: int | None,
    overrides: Mapping[str, Any],
) -> ComputeShape:
    """The shape that was asked for: as such, or by a value of the spec.

    `main` is the model's main file: sidecars do not repeat its keys.
    """
    keys = {
        setting: str(metadata.info.get(setting) or main.get(setting) or "") for setting in _CHECKS
    }
    shorthand = {**(main.get("spec_shorthand_keys") or {})}
    in_spec = {
        setting: _number(keys[setting], metadata.name, shorthand, overrides, check)
        for setting, check in _CHECKS.items()
    }
    conflicts = tuple(_conflicts(keys, in_spec, {"gpu_spec_key": gpus, "node_spec_key": nodes}))
    return ComputeShape(
        gpus=in_spec["gpu_spec_key"] if gpus is None else gpus,
        nodes=in_spec["node_spec_key"] if nodes is None else nodes,
        gpu_key=keys["gpu_spec_key"],
        node_key=keys["node_spec_key"],
        conflicts=conflicts,
    )


def suggested_gpus(platform: Mapping[str, Any], backend_type: str) -> int:
    """What the platform's defaults say; on this machine no more than it has."""
    suggested = int(platform["resource_defaults"].get("num_gpus") or 1)
    return min(suggested, len(discover())) if backend_type == "local" else suggested


def suggested_nodes(platform: Mapping[str, Any]) -> int:
    return int(platform["resource_defaults"].get("num_nodes") or 1)


def _number(
    key: str,
    action: str,
    shorthand: Mapping[str, str],
    overrides: Mapping[str, Any],
    check: Callable[[str, Any], int | None],
) -> int | None:
    places = places_of_count(action, key)
    for asked, value in overrides.items():
        if key and shorthand.get(asked, asked) in places:
            return check(asked, value)
    return None


def _conflicts(
    keys: Mapping[str, str], in_spec: Mapping[str, int | None], asked: Mapping[str, int | None]
) -> Iterator[str]:
    words = {"gpu_spec_key": "GPUs per node", "node_spec_key": "nodes"}
    for setting, word in words.items():
        said, wanted = in_spec[setting], asked[setting]
        if said is not None and wanted is not None and said != wanted:
            yield f"{keys[setting]} is {said} in the spec, but the job gets {wanted} {word}"
