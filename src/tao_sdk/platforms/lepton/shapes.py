"""Choosing the shape and the node group of a job. Pure.

A shape is a size of machine that a node group offers. A job gets the one with exactly the requested
number of GPUs, else the smallest with more. Without GPUs it gets a usual CPU shape, else the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.errors import CapacityError, ValidationError
from tao_sdk.platforms.lepton.naming import id_of, number, part, whole

CPU_PREFERENCE = ("cpu.medium", "cpu.large", "cpu.small")
_LISTABLE = "deployment"


class Shape(NamedTuple):
    """A size of machine."""

    id: str
    gpus: int
    gpu_type: str
    cpus: float = 0.0
    memory_mb: int = 0
    gpu_memory_mb: int = 0
    group: str = ""
    """The node group that offers it; "" if all do."""
    offered: bool = True

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Shape:
        spec = part(found, "spec")
        listed = spec.get("listable_in")
        return cls(
            id=id_of(found),
            gpus=whole(spec.get("accelerator_num")),
            gpu_type=str(spec.get("accelerator_type") or ""),
            cpus=number(spec.get("cpu")),
            memory_mb=whole(spec.get("memory_in_mb")),
            gpu_memory_mb=whole(spec.get("accelerator_memory_in_mb")),
            group=str(spec.get("node_group_id") or ""),
            offered=not isinstance(listed, list) or _LISTABLE in listed,
        )

    @property
    def has_gpus(self) -> bool:
        return bool(self.gpu_type) and self.gpus > 0


class Group(NamedTuple):
    """A node group."""

    id: str
    name: str

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Group:
        name = str(part(found, "metadata").get("name") or "")
        return cls(id_of(found), name or id_of(found))


class Choice(NamedTuple):
    """The shape and the node group of a job."""

    shape: str
    gpus: int
    group: str
    """Its id; "" for any."""
    note: str = ""


def find_group(groups: Sequence[Group], wanted: str) -> Group:
    """The node group of that id or name."""
    for group in groups:
        if wanted in (group.id, group.name):
            return group
    raise ValidationError(
        f"dedicated_node_group: the workspace has no {wanted!r}; there is: {_names(groups)}"
    )


def choose(
    shapes: Iterable[Shape], groups: Sequence[Group], gpus: int, named: str, group: str
) -> Choice:
    """The shape with `gpus` GPUs (-1: the largest number of all), or the one that is named.

    Raises `CapacityError` if none is large enough.
    """
    known = {one.id: one.name for one in groups}
    # Of equal ones, those of a node group first: the workspace pays for it anyway.
    there = sorted(
        (one for one in shapes if not group or one.group in ("", group)),
        key=lambda one: (one.group not in known, one.id),
    )
    if named:
        return _named(there, named, gpus, group)
    offered = [one for one in there if one.offered]
    where = f"node group {known.get(group, group)}" if group else "this workspace"
    if gpus == 0:
        return _without_gpus(offered, group, where)
    able = sorted((one for one in offered if one.has_gpus), key=lambda one: one.gpus)
    if gpus == -1 and able:
        gpus = able[-1].gpus
    fitting = [one for one in able if one.gpus >= gpus]
    if not fitting:
        sizes = ", ".join(dict.fromkeys(f"{one.id} ({one.gpus})" for one in able)) or "none"
        raise CapacityError(
            f"no shape of {where} has {'any GPU' if gpus == -1 else f'{gpus} GPUs'}; shapes with "
            f"GPUs: {sizes}. For more, use several nodes (num_nodes=) or another node group"
        )
    best = fitting[0]
    more = f"no shape has exactly {gpus} GPUs: {best.id} has {best.gpus}"
    return Choice(best.id, gpus, group or best.group, more if best.gpus != gpus else "")


def _named(there: Sequence[Shape], named: str, gpus: int, group: str) -> Choice:
    found = next((one for one in there if one.id == named), None)
    if found is None:
        ids = ", ".join(dict.fromkeys(one.id for one in there)) or "none"
        raise ValidationError(f"resource_shape: there is no {named!r} here; there is: {ids}")
    if gpus > found.gpus:
        raise CapacityError(f"resource_shape: {named} has {found.gpus} GPUs, not {gpus}")
    return Choice(found.id, found.gpus if gpus == -1 else gpus, group or found.group)


def _without_gpus(offered: Sequence[Shape], group: str, where: str) -> Choice:
    plain = [one for one in offered if not one.has_gpus and one.id.startswith("cpu.")]
    for name in CPU_PREFERENCE:
        for shape in plain:
            if shape.id == name:
                return Choice(shape.id, 0, group or shape.group)
    if not plain:
        raise CapacityError(
            f"{where} offers no CPU shape (cpu.*): ask for GPUs, or name a shape (resource_shape=)"
        )
    return Choice(plain[0].id, 0, group or plain[0].group)


def described(shape: Shape, groups: Mapping[str, str]) -> dict[str, Any]:
    """A shape in the form of `list_resource_shapes`."""
    return {
        "cluster": groups.get(shape.group, shape.group),
        "gpu_type": shape.id,
        "instance_type": shape.gpu_type or shape.id,
        "gpu_count": shape.gpus,
        "cpu_cores": shape.cpus,
        "system_memory": shape.memory_mb,
        "gpu_memory": shape.gpu_memory_mb,
        "backend_type": "lepton",
    }


def _names(groups: Sequence[Group]) -> str:
    return ", ".join(group.name for group in groups) or "none"
