"""A spec against the schema of its action.

The schemas are JSON Schema in spirit, with TAO's names of types and with `Infinity` for no limit.
What a template leaves open (blank, null, `???`) is not judged, nor is `${env:NAME}`, which gets its
value in the container.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tao_sdk.planning.placeholders import env_names
from tao_sdk.skills.conditions import broken_condition
from tao_sdk.skills.errors import MetadataError
from tao_sdk.skills.spec_values import is_unset, value_at

__all__ = ["ACTION_WORDS", "TYPES", "SpecProblem", "validate_spec"]

ACTION_WORDS = frozenset(
    {
        "dataset_convert",
        "distill",
        "evaluate",
        "export",
        "gen_trt_engine",
        "generate",
        "inference",
        "prune",
        "quantize",
        "retrain",
        "train",
    }
)
"""Sections of a spec that belong to one action each."""

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "integer": (int,),
    "ordered_int": (int,),
    "float": (int, float),
    "number": (int, float),
    "bool": (bool,),
    "boolean": (bool,),
    "string": (str,),
    "collection": (dict,),
    "object": (dict,),
    "list": (list,),
    "array": (list,),
    "optional_list": (list,),
    "subset_list": (list,),
    "list_1_backbone": (list,),
    "list_2": (list,),
    "list_3": (list,),
    "categorical": (str, int, float, bool, list),
}
TYPES = frozenset(_TYPES)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_WORDS |= {dict: "a section", list: "a list"}
_LENGTHS = {"list_2": 2, "list_3": 3}


class SpecProblem(NamedTuple):
    """What is wrong with one value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def validate_spec(
    spec: Mapping[str, Any], schema: Mapping[str, Any], action: str = ""
) -> list[SpecProblem]:
    """Everything in the spec that the schema forbids.

    With `action`, sections that belong to another action are not demanded: some schemas do.
    """
    foreign = ACTION_WORDS - {action} if action else frozenset()
    return list(_Validator(spec, foreign).section(spec, schema, ""))


class _Validator:
    def __init__(self, spec: Mapping[str, Any], foreign: frozenset[str]) -> None:
        self._spec = spec
        self._foreign = foreign

    def section(
        self, value: Mapping[str, Any], node: Mapping[str, Any], path: str
    ) -> Iterator[SpecProblem]:
        for name in node.get("required") or []:
            if name not in value and not (not path and name in self._foreign):
                yield SpecProblem(_join(path, name), "is required and not in the spec")
        properties = node.get("properties") or {}
        for name, item in value.items():
            child = properties.get(name)
            # Some schemas keep lists of their own among the properties.
            if isinstance(child, dict):
                yield from self.value(item, child, _join(path, name))

    def value(self, value: Any, node: Mapping[str, Any], path: str) -> Iterator[SpecProblem]:
        if is_unset(value) or env_names(value if isinstance(value, str) else ""):
            return
        if alternatives := node.get("anyOf"):
            if all(any(self.value(value, one, path)) for one in alternatives):
                words = " or ".join(_kind_words(str(one.get("type"))) for one in alternatives)
                yield SpecProblem(path, f"must be {words}, not {value!r}")
            return
        kind = str(node.get("type") or "")
        if not _has_type(value, kind):
            yield SpecProblem(path, f"must be {_kind_words(kind)}, not {value!r}")
        elif isinstance(value, dict):
            yield from self.section(value, node, path)
        elif isinstance(value, list):
            yield from self._items(value, node, kind, path)
        else:
            yield from self._scalar(value, node, path)

    def _scalar(self, value: Any, node: Mapping[str, Any], path: str) -> Iterator[SpecProblem]:
        allowed = node.get("enum")
        if allowed and not _is_among(value, allowed):
            yield SpecProblem(path, f"must be one of {_listed(allowed)}, not {value!r}")
        pattern = node.get("pattern")
        if isinstance(value, str) and pattern and not _looks_like(value, pattern, path):
            yield SpecProblem(path, f"must look like {pattern}, not {value!r}")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield from self._number(value, node, path)

    def _number(self, value: float, node: Mapping[str, Any], path: str) -> Iterator[SpecProblem]:
        low, high = _limit(node.get("minimum")), _limit(node.get("maximum"))
        if low is not None and value < low:
            yield SpecProblem(path, f"must be at least {low}, not {value!r}")
        elif high is not None and value > high:
            yield SpecProblem(path, f"must be at most {high}, not {value!r}")
        elif condition := node.get("math_cond"):
            needed = broken_condition(value, str(condition), self._depended_on(node))
            if needed:
                yield SpecProblem(path, f"must be {needed}, not {value!r}")

    def _items(
        self, items: list[Any], node: Mapping[str, Any], kind: str, path: str
    ) -> Iterator[SpecProblem]:
        length = _LENGTHS.get(kind, len(items))
        if len(items) != length:
            yield SpecProblem(path, f"must have {length} items, not {len(items)}")
            return
        if kind == "categorical":
            allowed = node.get("enum") or []
            if items not in allowed and not all(_is_among(item, allowed) for item in items):
                yield SpecProblem(path, f"must be one of {_listed(allowed)}, not {items!r}")
            return
        for index, item in enumerate(items):
            rules = {
                key: limit[index] if isinstance(limit, list) and key != "enum" else limit
                for key in ("minimum", "maximum", "enum")
                if (limit := node.get(key)) is not None
                and (key == "enum" or not isinstance(limit, list) or index < len(limit))
            }
            yield from self._scalar(item, rules, f"{path}[{index}]")

    def _depended_on(self, node: Mapping[str, Any]) -> list[float]:
        keys = [key.strip() for key in str(node.get("depends_on") or "").split(",")]
        values = [value_at(self._spec, key) for key in keys if key]
        return [
            value
            for value in values
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _has_type(value: Any, kind: str) -> bool:
    types = _TYPES.get(kind)
    if types is None:
        return True
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types)


def _kind_words(kind: str) -> str:
    types = _TYPES.get(kind, (str,))
    if kind == "categorical":
        return "one of the choices"
    return _WORDS[types[-1]]


def _looks_like(value: str, pattern: str, path: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error as error:
        raise MetadataError(f"{path}: the schema's pattern {pattern!r} is none: {error}") from error


def _limit(declared: Any) -> float | None:
    """A bound, unless it is infinite or none at all."""
    is_number = isinstance(declared, (int, float)) and math.isfinite(declared)
    return declared if is_number else None


def _is_among(value: Any, allowed: list[Any]) -> bool:
    # True is not the number 1 here.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed)


def _listed(allowed: list[Any]) -> str:
    return ", ".join(map(repr, allowed))
