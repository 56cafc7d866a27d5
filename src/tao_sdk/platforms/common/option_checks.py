"""Checks of keywords that several platforms have. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.request import check_text
from tao_sdk.secrets import Secret

_IMAGE_NAME = re.compile(r"[\w][\w.\-:/@]{0,511}")
# The kernel's limit for one variable, name included.
_LARGEST_VARIABLE = 131_071
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def check_image(image: str, platform: str) -> None:
    """Raise if this is not the name of an image."""
    if not image:
        raise ValidationError(f"image: {platform} runs commands in an image; name one")
    if not _IMAGE_NAME.fullmatch(image):
        raise ValidationError(f"image: {image!r} is not the name of an image")


def check_variables(env: Mapping[str, Secret]) -> None:
    """Raise for a variable that exceeds the kernel's limit."""
    for name, value in env.items():
        if len(f"{name}={value.reveal()}".encode()) > _LARGEST_VARIABLE:
            raise ValidationError(
                f"env_vars.{name}: no program can be given more than {_LARGEST_VARIABLE:,} bytes "
                "in one variable; pass large data as a file"
            )


def check_matching(pattern: re.Pattern[str], complaint: str) -> Callable[[str, Any], str]:
    """A check that accepts text of this form."""

    def check(where: str, value: Any) -> str:
        text = check_text(where, value)
        if not pattern.fullmatch(text):
            raise ValidationError(f"{where}: {text!r} {complaint}")
        return text

    return check


def check_each(
    check: Callable[[str, Any], str], expected: str
) -> Callable[[str, Any], tuple[str, ...]]:
    """A check that accepts a list of texts, or one, each accepted by `check`."""

    def check_all(where: str, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, Sequence):
            raise ValidationError(f"{where}: expected {expected}, or a list of them")
        return tuple(check(f"{where}[{n}]", item) for n, item in enumerate(value))

    return check_all


def check_switch(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValidationError(f"{where}: expected True or False, got {value!r}")
    return value


def check_amount(what: str = "", below: float = math.inf) -> Callable[[str, Any], float]:
    """A check that accepts finite numbers above 0."""

    def check(where: str, value: Any) -> float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value < below:
            raise ValidationError(f"{where}: {value!r} is not a number{what} above 0")
        return float(value)

    return check


def check_size(where: str, value: Any) -> int:
    """Bytes, from a number or text such as `16g`."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match or float(match[1]) <= 0:
        raise ValidationError(f"{where}: {value!r} is not a size: bytes, or text such as 16g")
    return int(float(match[1]) * _UNITS[match[2].lower()])
