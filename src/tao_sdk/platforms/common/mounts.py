"""Mounts of containers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from tao_sdk.errors import ValidationError

RESULTS = "/results"


@runtime_checkable
class Mounted(Protocol):
    """Anything that appears at a path in the container."""

    @property
    def target(self) -> str: ...

    @property
    def read_only(self) -> bool: ...


_Place = TypeVar("_Place", bound=Mounted)


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


def results_mount(mounts: Sequence[_Place]) -> _Place | None:
    """The writable mount that outlives the container, if there is one."""
    found = [mount for mount in mounts if mount.target == RESULTS and not mount.read_only]
    return found[0] if found else None
