"""Parameters whose ranges depend on each other: their order, and ranges in which all have room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tao_sdk.automl.dimensions import Real, Whole
from tao_sdk.automl.parameters import Plain, Related
from tao_sdk.errors import ValidationError
from tao_sdk.skills.spec_values import value_at

if TYPE_CHECKING:
    from tao_sdk.automl.space import Parameter

__all__ = ["ordered", "with_room"]


def ordered(parameters: list[Parameter]) -> Iterator[Parameter]:
    """Each parameter after the one that it depends on."""
    waiting = {parameter.path: parameter for parameter in parameters}
    while waiting:
        ready = [one for one in waiting.values() if one.depends_on not in waiting]
        if not ready:
            raise ValidationError(f"parameters depend on each other: {', '.join(sorted(waiting))}")
        for parameter in ready:
            yield waiting.pop(parameter.path)


def with_room(parameters: list[Parameter], spec: Mapping[str, Any]) -> list[Parameter]:
    """The parameters, with ranges in which each relation can hold."""
    known = {parameter.path: parameter for parameter in parameters}
    for child in parameters:
        relation = child.encoding
        if not isinstance(relation, Related):
            continue
        other = known.get(relation.other)
        if other is None:
            _require_room(child.path, relation, value_at(spec, relation.other))
        elif isinstance(other.encoding, Plain):
            known[other.path] = _limited(other, other.encoding, child.path, relation)
    return [known[parameter.path] for parameter in parameters]


def _limited(other: Parameter, encoding: Plain, child: str, relation: Related) -> Parameter:
    """The other parameter, within bounds that leave room for the child."""
    axis = encoding.dimension
    if not isinstance(axis, (Real, Whole)):
        raise ValidationError(f"{child} depends on {other.path}, which is not a number")
    edge = relation.edge
    _require_room(child, relation, axis.low if relation.is_above else axis.high)
    if relation.is_above:
        low, high = axis.low, min(axis.high, edge)
    else:
        low, high = max(axis.low, edge), axis.high
    if (low, high) == (axis.low, axis.high):
        return other
    if isinstance(axis, Whole):
        axis = replace(axis, low=int(low), high=int(high))
    else:
        axis = replace(axis, low=low, high=high)
    word = "at most" if relation.is_above else "at least"
    notes = (*other.notes, f"{word} {edge:g}, so that {child} has room")
    return replace(other, encoding=Plain(axis), notes=notes)


def _require_room(child: str, relation: Related, other: Any) -> None:
    if isinstance(other, bool) or not isinstance(other, (int, float)):
        raise ValidationError(f"{child} depends on {relation.other}, which is {other!r}, no number")
    if relation.is_above and other > relation.edge:
        raise ValidationError(
            f"{child} must be above {relation.other}, which is at least {other:g}, and at most "
            f"{relation.high:g}: there is no such value"
        )
    if not relation.is_above and other < relation.edge:
        raise ValidationError(
            f"{child} must be below {relation.other}, which is at most {other:g}, and at least "
            f"{relation.low:g}: there is no such value"
        )
