"""The settings of a search (`automl_settings`): names, defaults and checks in one table."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tao_sdk.automl.direction import direction_of
from tao_sdk.errors import UnknownOptionError, ValidationError

__all__ = ["ALGORITHMS", "Objective", "Settings", "parse_settings"]

ALGORITHMS = {
    "auto": "auto",
    "bayesian": "auto",
    "b": "auto",
    "random": "random",
    "tpe": "tpe",
    "cmaes": "cmaes",
    "nsga2": "nsga2",
}
"""Names that are understood, and the algorithm that each means."""

_ALIASES = {
    "num_recommendations": "automl_max_recommendations",
    "max_recommendations": "automl_max_recommendations",
    "max_concurrent": "automl_max_concurrent",
}


@dataclass(frozen=True)
class Objective:
    """One metric that is optimised."""

    metric: str
    direction: str
    weight: float = 1.0
    scale: float = 1.0


def _count(low: int, high: float = math.inf) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            limit = f"from {low}" if high == math.inf else f"from {low} to {high:g}"
            raise ValidationError(f"{name}: must be a whole number {limit}, not {value!r}")
        return value

    return check


def _number(low: float, high: float = math.inf) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not (low <= value <= high and math.isfinite(value)):
            limit = f"from {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise ValidationError(f"{name}: must be a number {limit}, not {value!r}")
        return float(value)

    return check


def _setting(default: Any, check: Callable[[str, Any], Any], name: str = "") -> Any:
    """A field: its default, its check, and its name in `automl_settings` where that differs."""
    return field(default=default, metadata={"check": check, "name": name})


@dataclass(frozen=True)
class Settings:
    """The settings of a search, with defaults. `None` means no limit."""

    objectives: tuple[Objective, ...]
    algorithm: str
    seed: int | None = _setting(None, _count(0, 2**31 - 1))
    max_trials: int | None = _setting(20, _count(1, 100_000), "automl_max_recommendations")
    max_concurrent: int = _setting(1, _count(1, 1000), "automl_max_concurrent")
    max_failed: int | None = _setting(None, _count(1))
    """Give up after this many failed trials."""
    target: float | None = _setting(None, _number(-math.inf))
    """Stop at a value as good as this."""
    plateau: int | None = _setting(None, _count(1))
    """Stop after this many trials without a better value."""

    @property
    def metric(self) -> str:
        """The first objective's metric."""
        return self.objectives[0].metric


def parse_settings(given: Mapping[str, Any]) -> Settings:
    """Check `automl_settings`; raises with the setting's name before anything happens."""
    values = _by_setting_name(given)
    algorithm = str(values.pop("algorithm", "auto")).lower()
    if algorithm not in ALGORITHMS:
        raise ValidationError(
            f"automl_settings: no algorithm {algorithm!r}{_hint(algorithm, ALGORITHMS)}; there are "
            f"{', '.join(sorted(set(ALGORITHMS.values())))}"
        )
    objectives = _objectives(values)
    checked: dict[str, Any] = {}
    for entry in fields(Settings):
        name = entry.metadata.get("name") or entry.name
        if name not in values or "check" not in entry.metadata:
            continue
        value = values[name]
        is_open = value is None and "None" in str(entry.type)
        checked[entry.name] = (
            None if is_open else entry.metadata["check"](f"automl_settings: {name}", value)
        )
    return Settings(objectives, ALGORITHMS[algorithm], **checked)


_OBJECTIVE_NAMES = ("metric", "direction", "objectives")
_NAMES = frozenset(
    entry.metadata.get("name") or entry.name for entry in fields(Settings) if entry.metadata
) | {"algorithm", *_OBJECTIVE_NAMES}


def _by_setting_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their full names; unknown ones are refused."""
    if not isinstance(given, Mapping):
        raise ValidationError(f"automl_settings must be settings by name, not {given!r}")
    values: dict[str, Any] = {}
    for name, value in given.items():
        full = _ALIASES.get(name, name)
        if full not in _NAMES:
            hint = _hint(str(name), [*_NAMES, *_ALIASES])
            raise UnknownOptionError(f"automl_settings: no setting {name!r}{hint}")
        if full in values and values[full] != value:
            raise ValidationError(f"automl_settings: {full} is given twice, with different values")
        values[full] = value
    return values


def _objectives(values: dict[str, Any]) -> tuple[Objective, ...]:
    given = {name: values.pop(name) for name in _OBJECTIVE_NAMES if name in values}
    several = given.get("objectives")
    if several is None:
        metric = _metric("automl_settings: metric", given.get("metric") or "loss")
        return (Objective(metric, direction_of(metric, given.get("direction"))),)
    if given.keys() & {"metric", "direction"}:
        raise ValidationError("automl_settings: give either metric or objectives, not both")
    if not isinstance(several, list) or not several:
        raise ValidationError(f"automl_settings: objectives must be a list, not {several!r}")
    return tuple(_objective(index, one) for index, one in enumerate(several))


def _metric(name: str, value: Any) -> str:
    if not isinstance(value, str) or not re.search(r"\w", value):
        raise ValidationError(f"{name}: must be the name of a metric, not {value!r}")
    return value


def _objective(index: int, given: Any) -> Objective:
    where = f"automl_settings: objectives[{index}]"
    if not isinstance(given, Mapping) or not given.get("metric"):
        raise ValidationError(f"{where}: must have a metric, not {given!r}")
    allowed = [entry.name for entry in fields(Objective)]
    for name in given:
        if name not in allowed:
            raise UnknownOptionError(f"{where}: no field {name!r}{_hint(str(name), allowed)}")
    metric = _metric(f"{where}.metric", given["metric"])
    return Objective(
        metric,
        direction_of(metric, given.get("direction")),
        _number(0.0)(f"{where}.weight", given.get("weight", 1.0)),
        _number(1e-300)(f"{where}.scale", given.get("scale", 1.0)),
    )


def _hint(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
