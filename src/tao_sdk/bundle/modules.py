"""Which modules of the runner travel with a payload."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from tao_sdk.bundle import small_modules
from tao_sdk.bundle.small_modules import LOADER, SmallModule

_ENTRY = "entry"


def travelling(features: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The loader, and small sources by name: the entry, these modules, and what they import.

    Imports inside functions do not count: what is imported there is wanted by some payloads only,
    and whoever knows the payload names it in `features`.
    """
    modules = _modules()
    wanted = [_ENTRY, *features]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted.extend(modules[name].imports)
            wanted.extend(_parents_of(name))
    return modules[LOADER].source, {name: modules[name].source for name in sorted(found)}


def is_package(name: str) -> bool:
    """Is a module of the runner a folder?"""
    return any(other.startswith(f"{name}.") for other in _modules())


@functools.cache
def _modules() -> Mapping[str, SmallModule]:
    return small_modules.load()


def _parents_of(name: str) -> list[str]:
    return [name.rpartition(".")[0]] if "." in name else []
