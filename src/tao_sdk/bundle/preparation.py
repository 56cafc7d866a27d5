"""The modules of the runner made small: as people wrote them, step by step to how they travel."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from tao_sdk import runner
from tao_sdk.bundle.constants import inline
from tao_sdk.bundle.folding import fold
from tao_sdk.bundle.names import Shortener
from tao_sdk.bundle.small_modules import LOADER, START, SmallModule
from tao_sdk.bundle.stripping import strip

_ROOT = Path(runner.__file__).parent

# fmt: off
NOT_ONLY_OURS = frozenset((
    "add", "base", "blocking", "call", "check", "code", "connect", "create_module", "delete",
    "digits", "discard", "element", "end", "env", "exec_module", "exists", "feed",
    "find_class", "find_spec", "frombuf", "fromtarfile", "get", "hexdigest", "interval", "is_dir",
    "key", "last", "length", "line", "lock", "members", "method", "mtime", "nbytes", "offset",
    "onerror", "open", "persistent_load", "port", "read", "request", "rest", "root", "run",
    "scheme", "seek", "send", "source", "start", "status", "step", "tell", "update", "value",
    "wait", "warn", "write",
))
# fmt: on
"""Members and keywords of the runner that objects and functions of Python's library have, too."""


def prepare() -> dict[str, SmallModule]:
    """Every module of the runner, folded but for the loader, which unfolds the others."""
    return {
        name: SmallModule(
            shortened(name) if name == LOADER else fold(shortened(name)), _imports_of(name)
        )
        for name in module_names()
    }


def module_names() -> list[str]:
    """All modules of the runner; a package has the name of its folder."""
    files = [path.relative_to(_ROOT).with_suffix("") for path in _ROOT.rglob("*.py")]
    names = {".".join(file.parts).removesuffix("__init__").rstrip(".") for file in files}
    return sorted(names - {""})


def is_package(name: str) -> bool:
    """Is a module of the runner a folder?"""
    return (_ROOT / name.replace(".", "/")).is_dir()


@functools.cache
def source_of(name: str) -> str:
    """The source of a module as people read it."""
    return _file_of(name).read_text(encoding="utf-8")


@functools.cache
def stripped(name: str) -> str:
    """The source of a module without what a machine does not read."""
    return strip(source_of(name), is_package=is_package(name))


@functools.cache
def inlined(name: str) -> str:
    """The same without the names of constants that only this module has."""
    return inline(stripped(name))


@functools.cache
def shortener() -> Shortener:
    """The names of the whole runner, whichever part of it travels."""
    sources = {name: inlined(name) for name in module_names()}
    return Shortener(sources, kept={START, *NOT_ONLY_OURS})


@functools.cache
def shortened(name: str) -> str:
    """The source of a module with short names."""
    return shortener().shorten(name)


def import_targets(statement: ast.ImportFrom, package: str) -> list[str]:
    """What `from .x import y` loads: the module x, and y too where it is one."""
    parts = package.split(".") if package else []
    base = parts[: len(parts) - (statement.level - 1)]
    if statement.module:
        base = [*base, *statement.module.split(".")]
    origin = ".".join(base)
    names = [".".join([*base, alias.name]) for alias in statement.names]
    return [*([origin] if origin else []), *(name for name in names if _file_of(name).exists())]


def _imports_of(name: str) -> tuple[str, ...]:
    package = name if is_package(name) else name.rpartition(".")[0]
    return tuple(
        module
        for statement in ast.parse(stripped(name)).body
        if isinstance(statement, ast.ImportFrom) and statement.level
        for module in import_targets(statement, package)
    )


def _file_of(name: str) -> Path:
    place = _ROOT / name.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
