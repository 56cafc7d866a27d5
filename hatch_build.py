"""Puts the runner's small modules into wheels, so that no command has to make them first."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SmallModulesHook(BuildHookInterface[Any]):
    """Runs when a wheel is built; an editable one keeps them in the user's cache."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "src")))
        from tao_sdk.bundle.preparation import prepare
        from tao_sdk.bundle.small_modules import PACKAGED_FILE, as_text

        self._made = Path(tempfile.mkdtemp(prefix="tao-build-"), PACKAGED_FILE.name)
        self._made.write_text(as_text(prepare()), encoding="utf-8")
        build_data["force_include"][str(self._made)] = f"tao_sdk/bundle/{PACKAGED_FILE.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - the interface's
        if version != "editable":
            self._made.unlink()
            self._made.parent.rmdir()
