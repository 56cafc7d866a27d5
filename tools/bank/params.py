"""Tables of parameters: `train.optim.lr: {float: 0.0002, above: 0, max: 1.0, automl: true}`.

The first key is the type and its value the default (null: none). The others limit or explain:

    min, max       inclusive limits             above         an exclusive lower limit
    of             the choices                  pattern       what a text must look like
    multiple_of, power_of, not                  conditions on a number
    depends_on     a parameter that this one is about; more_than: which it must exceed
    weights        how often AutoML tries each choice
    automl         a parameter that AutoML searches by default
    popular        one that people change most

A parameter of several types is `{any_of: [bool, string], value: false}`. At the top, `include`
takes sections of `shared.params.yaml`, and `repeat: {distill.teacher: model}` one section for
another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_SIGNS = {"multiple_of": "/", "power_of": "^", "not": "!="}
_PLAIN = {"min": "minimum", "max": "maximum", "of": "enum", "weights": "option_weights"}
_KNOWN = {*_SIGNS, *_PLAIN, "above", "pattern", "depends_on", "more_than", "automl", "popular"}


@dataclass(frozen=True)
class Parameter:
    """One line of a table."""

    key: str
    types: tuple[str, ...]
    default: Any
    limits: Mapping[str, Any]

    @property
    def root(self) -> str:
        return self.key.partition(".")[0]

    @property
    def is_searched(self) -> bool:
        return bool(self.limits.get("automl"))

    @property
    def is_popular(self) -> bool:
        return bool(self.limits.get("popular"))

    def node(self, description: str) -> dict[str, Any]:
        """The parameter as a schema has it."""
        node: dict[str, Any] = {}
        if len(self.types) == 1:
            node["type"] = self.types[0]
        else:
            node["anyOf"] = [{"type": name} for name in self.types]
        if self.default is not None:
            node["default"] = self.default
        if description:
            node["description"] = description
        node |= {name: self.limits[short] for short, name in _PLAIN.items() if short in self.limits}
        node |= self._condition()
        if "pattern" in self.limits:
            node["pattern"] = self.limits["pattern"]
        if self.is_searched:
            node["automl_enabled"] = True
        if self.is_popular:
            node["popular"] = True
        return node

    def _condition(self) -> dict[str, Any]:
        condition: dict[str, Any] = {}
        if "above" in self.limits:
            # The limit itself as well, for readers that know no conditions.
            condition["minimum"] = float(self.limits["above"])
            condition["math_cond"] = f"> {condition['minimum']}"
        for short, sign in _SIGNS.items():
            if short in self.limits:
                condition["math_cond"] = f"{sign} {self.limits[short]}"
        if "depends_on" in self.limits:
            condition["depends_on"] = self.limits["depends_on"]
        if "more_than" in self.limits:
            condition["depends_on"] = self.limits["more_than"]
            condition["math_cond"] = "> depends_on"
        return condition


Table = dict[str, Parameter]


def read_table(path: Path) -> Table:
    """A table with the sections that it includes."""
    lines: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    included, repeated = lines.pop("include", []), lines.pop("repeat", {})
    for place, section in repeated.items():
        # A teacher is given, not searched for; its own lines come after, and so win.
        again = {
            f"{place}{key.removeprefix(section)}": _not_searched(line)
            for key, line in lines.items()
            if key.startswith(f"{section}.")
        }
        lines = again | lines
    lines = dict(sorted(lines.items(), key=lambda item: "." in item[0]))
    for section in included:
        lines |= _shared_section(path, section)
    return {key: _parameter(path, key, line) for key, line in lines.items()}


def _shared_section(path: Path, section: str) -> dict[str, Any]:
    shared = yaml.safe_load((path.parent / "shared.params.yaml").read_text(encoding="utf-8"))
    found = {key: line for key, line in shared.items() if key.startswith(f"{section}.")}
    if not found:
        raise ValueError(f"{path.name}: shared.params.yaml has no section {section}")
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"train.optim.lr": 1}` as `{"train": {"optim": {"lr": 1}}}`."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return tree


def _not_searched(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "automl"}


def _parameter(path: Path, key: str, line: Mapping[str, Any]) -> Parameter:
    items: Iterator[tuple[str, Any]] = iter(line.items())
    kind, default = next(items)
    limits = dict(items)
    types = (kind,)
    if kind == "any_of":
        types, default = tuple(default), limits.pop("value")
    if unknown := set(limits) - _KNOWN:
        raise ValueError(f"{path.name}: {key}: unknown {', '.join(sorted(unknown))}")
    return Parameter(key, types, default, limits)
