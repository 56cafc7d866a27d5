"""Turn what a user passes as a spec into plain data that JSON, YAML and TOML can all hold.

Numbers of numpy, enums and paths become builtins; anything whose meaning would have to be guessed
is refused with its exact place, such as `specs['train']['lr']`. The caller's objects stay as they
are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.plain_data import MAX_DEPTH
from tao_sdk.spec_files import CONFIG_FORMATS, SpecTypeError

__all__ = [
    "SpecTypeError",
    "is_numpy_value",
    "normalize_config_format",
    "normalize_data",
    "normalize_specs",
]


def normalize_specs(specs: object, *, allow_none: bool = True) -> dict[str, Any]:
    """A fresh, plain copy of a spec; None is an empty one."""
    if specs is None:
        return {}
    if not isinstance(specs, dict):
        raise SpecTypeError(f"specs must be a dict, not {_type_name(specs)}")
    normalized: dict[str, Any] = normalize_data(specs, root="specs", allow_none=allow_none)
    return normalized


def normalize_data(value: object, *, root: str, allow_none: bool = True) -> Any:
    """A fresh, plain copy of any nested value; `root` is how error messages call it."""
    return _Normalizer(allow_none).convert(value, root)


def normalize_config_format(config_format: object) -> str:
    """The format in lower case, if it is one we can write."""
    choices = ", ".join(CONFIG_FORMATS)
    if not isinstance(config_format, str):
        raise SpecTypeError(f"config_format must be one of {choices}: got {config_format!r}")
    if config_format.lower() not in CONFIG_FORMATS:
        raise ValidationError(f"config_format {config_format!r} is unknown: use one of {choices}")
    return config_format.lower()


class _Normalizer:
    """One walk through one value."""

    def __init__(self, allow_none: bool) -> None:
        self._allow_none = allow_none
        self._open_containers: set[int] = set()

    def convert(self, value: object, where: str) -> Any:
        if value is None:
            return self._none(where)
        # Enums first: a member may be a str or an int as well. Then numpy's, as a float64 is
        # a float too but only numpy knows how to make a plain one of a float32.
        if isinstance(value, Enum):
            return self.convert(value.value, where)
        if is_numpy_value(value):
            return self._inside(value, where, self._numpy)
        if isinstance(value, (bool, int, float, str)):
            return _plain_scalar(value, where)
        if isinstance(value, os.PathLike):
            return _plain_path(value, where)
        if isinstance(value, Mapping):
            return self._inside(value, where, self._mapping)
        if isinstance(value, (list, tuple)):
            return self._inside(value, where, self._sequence)
        raise SpecTypeError(
            f"{where}: {_type_name(value)} cannot be written to a spec file: "
            "use text, numbers, booleans, lists and dicts"
        )

    def _none(self, where: str) -> None:
        if not self._allow_none:
            raise SpecTypeError(
                f"{where}: None cannot be written, as TOML has no null: "
                "leave the key out or choose yaml or json"
            )

    def _inside(self, container: Any, where: str, convert: Callable[[Any, str], Any]) -> Any:
        """Convert a container's contents, refusing one that contains itself."""
        if id(container) in self._open_containers:
            raise ValidationError(f"{where}: circular: the value contains itself")
        if len(self._open_containers) >= MAX_DEPTH:
            raise ValidationError(f"{where[:80]}…: nested more than {MAX_DEPTH} levels deep")
        self._open_containers.add(id(container))
        try:
            return convert(container, where)
        finally:
            self._open_containers.remove(id(container))

    def _numpy(self, value: Any, where: str) -> Any:
        converted = value.tolist()
        if type(converted) is type(value):
            raise SpecTypeError(f"{where}: {_type_name(value)} has no plain Python equivalent")
        return self.convert(converted, where)

    def _mapping(self, mapping: Mapping[object, object], where: str) -> dict[str, Any]:
        normalized: dict[str, Any] = {}
        for key, value in mapping.items():
            plain_key = _plain_key(key, where)
            location = f"{where}[{plain_key!r}]"
            if plain_key in normalized:
                raise ValidationError(f"{location}: two keys of the mapping are equal as text")
            normalized[plain_key] = self.convert(value, location)
        return normalized

    def _sequence(self, items: list[object] | tuple[object, ...], where: str) -> list[Any]:
        return [self.convert(item, f"{where}[{index}]") for index, item in enumerate(items)]


def _plain_key(key: object, where: str) -> str:
    while isinstance(key, Enum):
        key = key.value
    if not isinstance(key, str):
        raise SpecTypeError(f"{where}: the key {key!r} is {_type_name(key)}; keys must be text")
    return _plain_text(key, where)


def _plain_scalar(value: bool | int | float | str, where: str) -> bool | int | float | str:
    # The base classes' own conversions: a subclass may have overridden __str__ or __int__.
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValidationError(f"{where}: {float.__repr__(value)} is not a finite number")
        return float.__float__(value)
    return _plain_text(value, where)


def _plain_text(text: str, where: str) -> str:
    plain = str.__str__(text)
    try:
        plain.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValidationError(f"{where}: {plain!r} is not valid Unicode text") from error
    return plain


def _plain_path(path: os.PathLike[Any], where: str) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise SpecTypeError(f"{where}: {_type_name(path)} is a path of bytes; use one of text")
    return _plain_text(text, where)


def is_numpy_value(value: object) -> bool:
    """Recognised by the name of its module, so that numpy need not be imported or present."""
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist")


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
