"""What a search varies: built from a training schema, before anything runs.

The space is static and flat. Every trial has a value on every axis; a value that has no effect in
a trial (the strength of an augmentation that is off) keeps its default in the spec and is named
`inactive`. In our measurements models of flat spaces predict better than those of conditional ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tao_sdk.automl.dimensions import Choice, Dimension, Real, Whole, is_number
from tao_sdk.automl.exclusions import reason_against
from tao_sdk.automl.parameters import Encoding, List, Plain, Power, Related, Subset
from tao_sdk.automl.ranges import Range, RangeError, range_of
from tao_sdk.automl.relations import ordered, with_room
from tao_sdk.errors import ValidationError
from tao_sdk.skills.conditions import DEPENDS_ON, parse_condition
from tao_sdk.skills.names import choices_for
from tao_sdk.skills.spec_values import is_unset, value_at

__all__ = ["CUSTOM_FIELDS", "Parameter", "Space", "build_space"]

CUSTOM_FIELDS = {
    "valid_min": "minimum",
    "valid_max": "maximum",
    "valid_options": "enum",
    "option_weights": "option_weights",
    "depends_on": "depends_on",
    "math_cond": "math_cond",
    "disable_list": "disable_list",
    "log": "log",
}
"""What `custom_param_ranges` may say of a parameter, and the schema's word for it."""
_NUMBERS = frozenset({"float", "number", "int", "integer", "ordered_int"})
_WHOLE = frozenset({"int", "integer", "ordered_int"})
_LISTS = frozenset({"list", "array", "list_1_normal", "list_2", "list_3"})
_GATES = frozenset({"enable", "enabled"})


@dataclass(frozen=True)
class Parameter:
    """One value of the spec that is searched."""

    path: str
    default: Any
    encoding: Encoding | Related
    notes: tuple[str, ...] = ()
    """What differs from the schema, and why."""
    popular: bool = False

    @property
    def depends_on(self) -> str:
        """Path of a value that must be known first."""
        return self.encoding.other if isinstance(self.encoding, Related) else ""

    def describe(self) -> str:
        return self.encoding.describe()


@dataclass(frozen=True)
class Space:
    """Everything that is searched."""

    parameters: tuple[Parameter, ...]
    """In an order in which each comes after those that it depends on."""
    spec: Mapping[str, Any]
    """The spec that every trial starts from."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Leaves that could be searched and are not, with the reason."""

    @cached_property
    def dimensions(self) -> dict[str, Dimension]:
        """The axes, by name."""
        axes: dict[str, Dimension] = {}
        for parameter in self.parameters:
            axes.update(parameter.encoding.dimensions(parameter.path))
        return axes

    def values(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the spec at a point, by path. Inactive ones have their defaults."""
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            path = parameter.path
            values[path] = self._encoding(parameter, values).decode(path, point)
        for path in self._inactive(values):
            values[path] = self._default(path)
        return values

    def inactive(self, point: Mapping[str, Any]) -> frozenset[str]:
        """Paths of values that have no effect at this point."""
        return self._inactive(self.values(point))

    def point(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The point of these values; what is not given has its default."""
        values = {parameter.path: parameter.default for parameter in self.parameters} | dict(values)
        point: dict[str, Any] = {}
        for parameter in self.parameters:
            path = parameter.path
            point.update(self._encoding(parameter, values).encode(path, values[path]))
        return point

    def default_point(self) -> dict[str, Any]:
        """The point of the spec as it is without a search."""
        return self.point({})

    def _default(self, path: str) -> Any:
        return next(one.default for one in self.parameters if one.path == path)

    def _encoding(self, parameter: Parameter, values: Mapping[str, Any]) -> Encoding:
        """With the other value, where it depends on one: a searched value, or one of the spec."""
        encoding = parameter.encoding
        if not isinstance(encoding, Related):
            return encoding
        other = encoding.other
        number = values[other] if other in values else value_at(self.spec, other)
        return encoding.given(parameter.path, number)

    def _inactive(self, values: Mapping[str, Any]) -> frozenset[str]:
        closed = tuple(
            f"{gate.rpartition('.')[0]}."
            for gate, value in values.items()
            if value is False and gate.rpartition(".")[2] in _GATES
        )
        return frozenset(
            path
            for path in values
            if closed and path.startswith(closed) and path.rpartition(".")[2] not in _GATES
        )


def build_space(
    schema: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    action: str = "train",
    names: Iterable[str] | None = None,
    custom_ranges: Mapping[str, Mapping[str, Any]] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Space:
    """The space of a schema.

    Without `names`, all leaves that the schema opens to a search, less those that a search should
    not touch; with them, exactly those. `limits` are further upper bounds, for example of batch
    sizes. Raises `ValidationError`, with the key's path, for whatever cannot be searched.
    """
    builder = _Builder(dict(_leaves(schema)), spec, action, limits or {})
    builder.customise(custom_ranges or {})
    found = builder.named(list(names)) if names is not None else builder.enabled()
    if not found:
        reasons = "".join(f"\n  {path}: {why}" for path, why in sorted(builder.excluded.items()))
        raise ValidationError(
            "nothing to search: the schema opens no parameter to a search. Name some with "
            f"automl_hyperparameters.{reasons}"
        )
    return Space(tuple(with_room(list(ordered(found)), spec)), spec, builder.excluded)


class _Builder:
    def __init__(
        self,
        leaves: dict[str, Mapping[str, Any]],
        spec: Mapping[str, Any],
        action: str,
        limits: Mapping[str, int],
    ) -> None:
        self._leaves = leaves
        self._spec = spec
        self._action = action
        self._limits = limits
        self.excluded: dict[str, str] = {}
        self._custom: dict[str, set[str]] = {}
        """Which fields of which parameters are the user's."""

    def customise(self, ranges: Mapping[str, Mapping[str, Any]]) -> None:
        """Put the user's ranges in the place of the schema's."""
        for path, given in ranges.items():
            leaf = self._leaf(path, "custom_param_ranges")
            if not isinstance(given, Mapping):
                raise ValidationError(f"custom_param_ranges: {path}: must be fields, not {given!r}")
            changes = {}
            for name, value in given.items():
                if name not in CUSTOM_FIELDS:
                    hint = choices_for(name, CUSTOM_FIELDS)
                    raise ValidationError(f"custom_param_ranges: {path}: no field {name!r}: {hint}")
                if name in ("valid_min", "valid_max") and not _is_bound(value):
                    raise ValidationError(
                        f"custom_param_ranges: {path}: {name} must be a finite number, or a list "
                        f"of them, not {value!r}"
                    )
                changes[CUSTOM_FIELDS[name]] = value
            self._leaves[path] = {**leaf, **changes}
            self._custom[path] = set(changes)

    def named(self, names: list[str]) -> list[Parameter]:
        found = []
        for path in dict.fromkeys(names):
            leaf = self._leaf(path, "automl_hyperparameters")
            if str(leaf.get("automl_enabled")).lower() == "false" and path not in self._custom:
                raise ValidationError(
                    f"automl_hyperparameters: {path}: the schema closes it to a search; a range in "
                    "custom_param_ranges opens it"
                )
            try:
                found.append(self._parameter(path, leaf))
            except RangeError as error:
                raise ValidationError(
                    f"{path}: {error}; give one in custom_param_ranges (valid_min, valid_max)"
                ) from None
        return found

    def enabled(self) -> list[Parameter]:
        found = []
        for path, leaf in self._leaves.items():
            if path not in self._custom and str(leaf.get("automl_enabled")).lower() != "true":
                continue
            reason = "" if path in self._custom else reason_against(path, self._action)
            if not reason and is_unset(value_at(self._spec, path)):
                reason = "is not in the spec"
            if reason:
                self.excluded[path] = reason
                continue
            try:
                found.append(self._parameter(path, leaf))
            except RangeError as error:
                if path in self._custom:
                    raise ValidationError(f"custom_param_ranges: {path}: {error}") from None
                self.excluded[path] = str(error)
        return found

    def _leaf(self, path: str, where: str) -> Mapping[str, Any]:
        if path not in self._leaves:
            hint = choices_for(path, self._leaves)
            raise ValidationError(f"{where}: the schema has no parameter {path!r}: {hint}")
        return self._leaves[path]

    def _parameter(self, path: str, leaf: Mapping[str, Any]) -> Parameter:
        default = value_at(self._spec, path)
        if is_unset(default):
            default = leaf.get("default")
        encoding, notes = self._encoding(path, leaf, default)
        return Parameter(
            path=path,
            default=default,
            encoding=encoding,
            notes=tuple(notes),
            popular=leaf.get("popular") is True,
        )

    def _encoding(
        self, path: str, leaf: Mapping[str, Any], default: Any
    ) -> tuple[Encoding | Related, list[str]]:
        kind = _kind(leaf, default)
        options = leaf.get("enum")
        if kind == "subset_list" and options:
            if not isinstance(default, list):
                raise RangeError(f"its value must be a list, not {default!r}")
            return Subset(tuple(options)), []
        if kind == "optional_list":
            if not (everything := list(options or default or [])):
                raise RangeError("an optional list needs items to choose")
            return Plain(_choice(path, (None, everything), {}, default)), []
        if kind in ("bool", "boolean"):
            return Plain(_choice(path, (False, True), leaf, default)), []
        if options and kind not in _LISTS:
            return Plain(_choice(path, tuple(options), leaf, default)), []
        if kind in _LISTS:
            return self._list(path, leaf, default, kind)
        if kind in _NUMBERS:
            return self._number(path, leaf, default, is_whole=kind in _WHOLE)
        raise RangeError(f"a value of type {kind or 'unknown'!r} has no range")

    def _number(
        self, path: str, leaf: Mapping[str, Any], default: Any, *, is_whole: bool
    ) -> tuple[Encoding | Related, list[str]]:
        if not is_number(default):
            raise RangeError(f"its value {default!r} is no finite number")
        given = self._custom.get(path, ())
        found = range_of(path, default, leaf, is_whole=is_whole, log=leaf.get("log"), given=given)
        notes = [f"{bound} bound derived from the default" for bound in found.ours]
        limit = self._limits.get(path)
        if limit is not None and limit < found.high:
            if limit < found.low:
                raise RangeError(f"it may be {limit} at most, and its least value is {found.low:g}")
            found = found._replace(high=limit)
            notes.append(f"at most {limit} for this amount of data")
        pieces = parse_condition(str(leaf.get("math_cond") or ""))
        encoding, found = _conditional(leaf, found, pieces, is_whole=is_whole)
        return encoding or Plain(_numbers(found, is_whole=is_whole)), notes

    def _list(
        self, path: str, leaf: Mapping[str, Any], default: Any, kind: str
    ) -> tuple[Encoding | Related, list[str]]:
        if not isinstance(default, list) or not default:
            raise RangeError(f"a list needs a default with items, not {default!r}")
        items: list[Dimension] = []
        notes = []
        for index, item in enumerate(default):
            if isinstance(item, bool) or not isinstance(item, (int, float)):
                raise RangeError(f"its items must be numbers, not {item!r}")
            bounds = {key: _item_of(leaf.get(key), index) for key in ("minimum", "maximum")}
            if isinstance(item, int) and None in bounds.values():
                raise RangeError("a list of whole numbers needs bounds")
            found = range_of(path, item, bounds, is_whole=isinstance(item, int))
            notes += [f"[{index}]: {bound} bound derived from the default" for bound in found.ours]
            items.append(_numbers(found, is_whole=isinstance(item, int)))
        whole = all(isinstance(item, int) for item in default)
        return List(
            tuple(items),
            are_equal=kind == "list_3" and len(set(default)) == 1,
            is_sorted=whole and default == sorted(default),
        ), notes


def _numbers(found: Range, *, is_whole: bool) -> Dimension:
    low, high = (math.ceil(found.low), math.floor(found.high)) if is_whole else found[:2]
    if low > high:
        raise RangeError(f"there is no value from {found.low:g} to {found.high:g}")
    if is_whole:
        return Whole(int(low), int(high), log=found.log)
    return Real(float(found.low), float(found.high), found.log)


def _conditional(
    leaf: Mapping[str, Any],
    found: Range,
    pieces: list[tuple[str, str]],
    *,
    is_whole: bool,
) -> tuple[Encoding | Related | None, Range]:
    """The encoding that a condition asks for, or bounds that keep it."""
    for sign, operand in pieces:
        if operand == DEPENDS_ON:
            other = str(leaf.get("depends_on") or "").split(",")[0].strip()
            if not other or sign not in (">", ">=", "<", "<="):
                continue
            return Related(
                other,
                is_above=sign in (">", ">="),
                low=found.low,
                high=found.high,
                is_whole=is_whole,
                is_strict=sign in (">", "<"),
            ), found
        number = float(operand)
        if sign == "^":
            return _power(number, found), found
        if sign == "/":
            step = int(number)
            if step < 1:
                raise RangeError(f"multiples of {number:g} cannot be searched")
            low = math.ceil(found.low / step) * step
            high = math.floor(found.high / step) * step
            if low > high:
                raise RangeError(f"no multiple of {step} is between its bounds")
            return Plain(Whole(low, high, step)), found
        found = _narrowed(found, sign, number, is_whole=is_whole)
    return None, found


def _power(base: float, found: Range) -> Power:
    if base <= 1 or not base.is_integer():
        raise RangeError(f"powers of {base:g} cannot be searched")
    exponents = [
        exponent for exponent in range(64) if found.low <= int(base) ** exponent <= found.high
    ]
    if not exponents:
        raise RangeError(f"no power of {base:g} is between its bounds")
    return Power(int(base), exponents[0], exponents[-1])


def _narrowed(found: Range, sign: str, number: float, *, is_whole: bool) -> Range:
    """The range without what a comparison forbids. An excluded 0 becomes the smallest step."""
    width = found.high - found.low
    step = 1 if is_whole else width * 1e-6
    if sign == ">" and found.low <= number:
        return found._replace(low=number + step)
    if sign == ">=" and found.low < number:
        return found._replace(low=number)
    if sign == "<" and found.high >= number:
        return found._replace(high=number - step)
    if sign == "<=" and found.high > number:
        return found._replace(high=number)
    return found


def _choice(path: str, options: tuple[Any, ...], leaf: Mapping[str, Any], default: Any) -> Choice:
    weights = tuple(leaf.get("option_weights") or ())
    if weights and (
        len(weights) != len(options)
        or not all(isinstance(one, (int, float)) and one >= 0 for one in weights)
        or sum(weights) <= 0
    ):
        raise ValidationError(
            f"{path}: option_weights must be {len(options)} numbers, one for each option, not "
            f"{list(weights)!r}"
        )
    choice = Choice(options, tuple(map(float, weights)))
    if not choice.holds(default):
        raise RangeError(f"its value {default!r} is none of {list(options)!r}")
    return choice


def _kind(leaf: Mapping[str, Any], default: Any) -> str:
    """The type of a leaf; where the schema offers several, that of its default."""
    if kind := leaf.get("type"):
        return str(kind)
    for one in leaf.get("anyOf") or []:
        if one.get("type") in _WHOLE and isinstance(default, int):
            return "int"
        if one.get("type") in _NUMBERS and isinstance(default, (int, float)):
            return "float"
    return ""


def _is_bound(value: Any) -> bool:
    return is_number(value) or (isinstance(value, list) and all(map(is_number, value)))


def _item_of(bound: Any, index: int) -> Any:
    if isinstance(bound, list):
        return bound[index] if index < len(bound) else None
    return bound


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every value that the schema describes, by dotted path."""
    for name, child in (node.get("properties") or {}).items():
        if not isinstance(child, Mapping):
            continue  # some schemas keep lists of their own among the properties
        path = f"{prefix}.{name}" if prefix else name
        if child.get("properties"):
            yield from _leaves(child, path)
        else:
            yield path, child
