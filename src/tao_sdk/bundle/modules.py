"""Which modules of the runner travel with a payload, and in what form."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

from tao_sdk import runner
from tao_sdk.bundle.names import Shortener
from tao_sdk.bundle.stripping import strip

_ROOT = Path(runner.__file__).parent
_ENTRY = "entry"
START = "start"
"""The function of the loader that the command calls."""


def travelling(features: Iterable[str]) -> dict[str, str]:
    """Small sources by name: the entry, these modules, and what they import when loaded.

    Imports inside functions do not count: what is imported there is wanted by some payloads only,
    and whoever knows the payload names it in `features`.
    """
    wanted = [_ENTRY, *features]
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found.add(name)
        wanted.extend(_imports_of(name))
        wanted.extend(_parents_of(name))
    return {name: shortened(name) for name in sorted(found)}


def module_names() -> list[str]:
    """All modules of the runner; a package has the name of its folder."""
    files = [path.relative_to(_ROOT).with_suffix("") for path in _ROOT.rglob("*.py")]
    names = {".".join(file.parts).removesuffix("__init__").rstrip(".") for file in files}
    return sorted(names - {""})


def is_package(name: str) -> bool:
    """Is a module of the runner a folder?"""
    return (_ROOT / name.replace(".", "/")).is_dir()


@functools.cache
def stripped(name: str) -> str:
    """The source of a module without what a machine does not read."""
    return strip(source_of(name), is_package=is_package(name))


@functools.cache
def shortened(name: str) -> str:
    """The source of a module as it travels."""
    return shortener().shorten(stripped(name))


@functools.cache
def shortener() -> Shortener:
    """The names of the whole runner, whichever part of it travels."""
    return Shortener(map(source_of, module_names()), kept=[START])


@functools.cache
def source_of(name: str) -> str:
    """The source of a module as people read it."""
    return _file_of(name).read_text(encoding="utf-8")


def _parents_of(name: str) -> list[str]:
    return [name.rpartition(".")[0]] if "." in name else []


def _file_of(name: str) -> Path:
    place = _ROOT / name.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@functools.cache
def _imports_of(name: str) -> tuple[str, ...]:
    """The runner's modules that this one imports when it is loaded."""
    package = name if is_package(name) else name.rpartition(".")[0]
    return tuple(
        module
        for statement in ast.parse(stripped(name)).body
        if isinstance(statement, ast.ImportFrom) and statement.level
        for module in import_targets(statement, package)
    )


def import_targets(statement: ast.ImportFrom, package: str) -> list[str]:
    """What `from .x import y` loads: the module x, and y too where it is one."""
    parts = package.split(".") if package else []
    base = parts[: len(parts) - (statement.level - 1)]
    if statement.module:
        base = [*base, *statement.module.split(".")]
    origin = ".".join(base)
    names = [".".join([*base, alias.name]) for alias in statement.names]
    return [*([origin] if origin else []), *(name for name in names if _file_of(name).exists())]
