"""Reading dataclasses back from JSON that this version, another one, or a broken disk wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from tao_sdk.errors import DamagedRowError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Kind = TypeVar("_Kind", bound="DataclassInstance")


def from_json(kind: type[_Kind], text: str, where: object) -> _Kind:
    """An instance of a flat dataclass; raises `DamagedRowError` naming `where`.

    Unknown fields are ignored, because a newer version may have written more. Fields may be text,
    numbers, switches, None, or tuples of text.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise DamagedRowError(f"{where} is damaged: it is not JSON") from None
    if not isinstance(found, dict):
        raise DamagedRowError(f"{where} is damaged: it holds no JSON object")
    return kind(**_values(kind, found, where))


def _values(kind: type[_Kind], found: Mapping[str, Any], where: object) -> dict[str, Any]:
    hints = get_type_hints(kind)
    values = {}
    for each in fields(kind):
        if each.name not in found:
            if each.default is MISSING:
                raise DamagedRowError(f"{where} is damaged: it has no {each.name}")
            continue
        value = found[each.name]
        if hints[each.name] == tuple[str, ...] and isinstance(value, list):
            value = tuple(value)
        if not _fits(value, hints[each.name]):
            raise DamagedRowError(f"{where} is damaged: its {each.name} cannot be {value!r:.40}")
        values[each.name] = value
    return values


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(item, str) for item in value)
    accepted = get_args(hint) or (hint,)
    # An int is a float to a type checker, and JSON does not tell the two apart. A bool is neither.
    return type(value) in accepted or (type(value) is int and float in accepted)
