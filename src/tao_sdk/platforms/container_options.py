"""How keywords are checked that several platforms with containers have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from tao_sdk.errors import ValidationError
from tao_sdk.secrets import Secret

_IMAGE_NAME = re.compile(r"[\w][\w.\-:/@]{0,511}")
# What the kernel takes for one variable, with its name.
_LARGEST_VARIABLE = 131_071
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@runtime_checkable
class Mounted(Protocol):
    """Anything that appears at a path in the container."""

    @property
    def target(self) -> str: ...


_Place = TypeVar("_Place", bound=Mounted)


def check_image(image: str, platform: str) -> None:
    """Raise for what is not the name of an image."""
    if not image:
        raise ValidationError(f"image: {platform} runs commands in an image; name one")
    if not _IMAGE_NAME.fullmatch(image):
        raise ValidationError(f"image: {image!r} is not the name of an image")


def check_variables(env: Mapping[str, Secret]) -> None:
    """Raise for a variable that no program could be given."""
    for name, value in env.items():
        if len(f"{name}={value.reveal()}".encode()) > _LARGEST_VARIABLE:
            raise ValidationError(
                f"env_vars.{name}: no program can be given more than {_LARGEST_VARIABLE:,} bytes "
                "in one variable; pass large data as a file"
            )


def check_size(where: str, value: Any) -> int:
    """Bytes, from a number or text such as `16g`."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match or float(match[1]) <= 0:
        raise ValidationError(f"{where}: {value!r} is not a size: bytes, or text such as 16g")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def check_each_mount(
    where: str, value: Any, check: Callable[[str, Any], _Place], example: str
) -> tuple[_Place, ...]:
    """A list of mounts, or a single one, each checked by `check`; no target twice."""
    if isinstance(value, (str, Mapping, Mounted)):
        value = [value]
    if not isinstance(value, Sequence):
        raise ValidationError(f"{where}: expected a list of mounts such as [{example!r}]")
    places = tuple(check(f"{where}[{n}]", item) for n, item in enumerate(value))
    targets = [place.target for place in places]
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        raise ValidationError(f"{where}: {twice[0]} is the target of more than one mount")
    return places
