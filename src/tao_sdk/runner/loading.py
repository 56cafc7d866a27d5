"""The first of the runner's code to run in the container: loads the other modules from memory."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Collection, Mapping
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

PACKAGE = "tao_runner"
"""What the runner is called in the container, where there is no tao_sdk."""

DEEPER, SHALLOWER = "\1", "\2"
"""Marks in a folded source, which has no indentation: see `tao_sdk.bundle.folding`."""


def unfold(folded: str) -> str:
    """A module's source from the form in which it travels."""
    source, level = "", 0
    lines = folded.replace(DEEPER, f":\n{DEEPER}").replace(SHALLOWER, f"\n{SHALLOWER}")
    for line in lines.split("\n"):
        level += line.count(DEEPER) - line.count(SHALLOWER)
        text = line.strip(DEEPER + SHALLOWER)
        if text:
            source += " " * level + text + "\n"
    return source


class MemoryFinder:
    """Finds and loads modules whose folded sources are at hand."""

    def __init__(self, sources: Mapping[str, str], packages: Collection[str]) -> None:
        self._sources = sources
        self._packages = packages

    def find_spec(self, name: str, _path: object, _target: object = None) -> ModuleSpec | None:
        if name not in self._sources:
            return None
        return ModuleSpec(name, self, is_package=name in self._packages)  # type: ignore[arg-type]  # a finder and loader in one

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        source = unfold(self._sources[name])
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)  # noqa: S102 - ours


def start(payload: str, packages: str, modules: str, *folded: str) -> None:
    """Run a payload (JSON). Of packages, and of all modules, there are names; then sources."""
    # There is little that only a collection finds, and looking for it takes its time.
    gc.set_threshold(99_999)
    names = [f"{PACKAGE}.{name}" for name in modules.split()]
    folders = [PACKAGE, *(f"{PACKAGE}.{name}" for name in packages.split())]
    sources = dict(zip([PACKAGE, *names], ["", *folded]))
    sys.meta_path.insert(0, MemoryFinder(sources, folders))
    importlib.import_module(f"{PACKAGE}.entry").main(json.loads(payload))
