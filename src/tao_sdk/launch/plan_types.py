"""What the fields of a launch plan may hold: wrong types are named before they can do harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.request import check_gpu_count, check_node_count, check_text
from tao_sdk.skills import SkillBank

__all__ = ["check_fields"]

Check = Callable[[str, Any], object]


def check_fields(values: Mapping[str, Any]) -> None:
    """Raise `ValidationError`, with the field's name, for a value of a wrong type."""
    for name, value in values.items():
        _FIELDS[name](name, value)


def _named(where: str, value: Any) -> None:
    if not check_text(where, value).strip():
        raise ValidationError(f"{where}: a name is needed")


def _flag(where: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValidationError(f"{where}: expected True or False, got {value!r}")


def _texts(where: str, value: Any) -> None:
    """One text, or several."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        check_text(where, value)
        return
    for number, item in enumerate(value):
        check_text(f"{where}[{number}]", item)


def _names(where: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValidationError(f"{where}: expected a list of names, got {type(value).__name__}")
    _texts(where, value)


def _minutes(where: str, value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and 0 < value < float("inf")):
        raise ValidationError(f"{where}: {value!r} is not a number of minutes above 0")


def _gpus(where: str, value: Any) -> None:
    if check_gpu_count(where, value) < 0:
        raise ValidationError(
            f"{where}: say how many: the spec gets a number, and how many all are is not known yet"
        )


def _bank(where: str, value: Any) -> None:
    if not isinstance(value, (SkillBank, Path)):
        check_text(where, value)


def _anything(_where: str, _value: Any) -> None:
    """Judged later, by those who know the key."""


def _mapping(check: Check) -> Check:
    def check_all(where: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise ValidationError(f"{where}: expected a mapping, got {type(value).__name__}")
        for key, item in value.items():
            check(f"{where}.{check_text(f'a key of {where}', key)}", item)

    return check_all


def _or_none(check: Check) -> Check:
    return lambda where, value: None if value is None else check(where, value)


def _options(where: str, value: Any) -> None:
    _mapping(_anything)(where, value)
    for name, instead in _DECIDED.items():
        if name in value:
            raise ValidationError(f"{where}.{name}: {instead}")


_DECIDED = {
    "num_nodes": "give the nodes of a launch as such (nodes=, --nodes)",
    "network_arch": "the model decides it",
    "action": "give the action of a launch as such",
}
"""Keywords of a job that the launch itself fills in: one place says what is checked and runs."""
_FIELDS: Mapping[str, Check] = {
    "model": _named,
    "action": _named,
    "platform": check_text,
    "train_root": _texts,
    "eval_root": _texts,
    "calibration_root": _texts,
    "roots": _mapping(_texts),
    "specs": _mapping(_anything),
    "file_names": _mapping(check_text),
    "parent": check_text,
    "resume": check_text,
    "pretrained": check_text,
    "image": _or_none(check_text),
    "image_confirmed": _flag,
    "gpus": _or_none(_gpus),
    "nodes": _or_none(check_node_count),
    "monitor": _or_none(_flag),
    "status_interval_minutes": _or_none(_minutes),
    "automl": check_text,
    "results": check_text,
    "env_vars": _mapping(check_text),
    "options": _options,
    "required_fields": _mapping(_names),
    "confirmed_mounts": _flag,
    "deploy": _flag,
    "variant": _or_none(check_text),
    "bank": _or_none(_bank),
}
