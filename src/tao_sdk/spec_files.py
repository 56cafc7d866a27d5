"""Write a spec as JSON, YAML or TOML.

The order of the keys is kept, and what the usual readers (`json.loads`, `yaml.safe_load`,
`tomllib.loads`) make of the text equals the spec.
"""

from __future__ import annotations

import math
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.runner.spec_writer import spec_text

CONFIG_FORMATS = ("json", "yaml", "toml")


class SpecTypeError(ValidationError, TypeError):
    """A value of a type that no spec file can hold."""


def dump_spec(spec: dict[str, Any], config_format: str) -> str:
    """The text of a spec file; `config_format` is json, yaml or toml in any case."""
    if not isinstance(config_format, str):
        raise SpecTypeError(f"config_format must be text, not {type(config_format).__name__}")
    name = config_format.lower()
    if name not in CONFIG_FORMATS:
        choices = ", ".join(CONFIG_FORMATS)
        raise ValidationError(f"config_format {config_format!r} is unknown: use one of {choices}")
    if not isinstance(spec, dict):
        raise SpecTypeError(f"specs must be a dict, not {type(spec).__name__}")
    _check(spec, "specs", allow_none=name != "toml")
    return spec_text(spec, name)


def _check(value: Any, where: str, allow_none: bool) -> None:
    """Refuse, with its place, whatever would not read back as it is."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SpecTypeError(f"{where}: the key {key!r} is not text")
            _check_text(key, where)
            _check(item, f"{where}[{key!r}]", allow_none)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", allow_none)
    elif isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValidationError(f"{where}: {value!r} is not a finite number")
    elif value is None:
        if not allow_none:
            raise SpecTypeError(f"{where}: None cannot be written, as TOML has no null")
    elif not isinstance(value, (bool, int)):
        raise SpecTypeError(f"{where}: {type(value).__name__} cannot be written to a spec file")


def _check_text(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValidationError(f"{where}: {text!r} is not valid Unicode text") from None
