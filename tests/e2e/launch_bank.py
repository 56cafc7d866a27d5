"""A bank with one model whose job does what a test says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from tao_sdk.skills.layout import PACKAGED_BANK

MODEL = "patient"


class PatientBank:
    """Its model prints `started`, waits until it is let go, and ends with an exit code."""

    def __init__(self, folder: Path, exit_code: int = 0) -> None:
        self.root = folder / "bank"
        self._go = folder / "go"
        command = f"echo started; until [ -e {self._go} ]; do sleep 0.05; done; exit {exit_code}"
        info = {
            "name": MODEL,
            "network_arch": MODEL,
            "container_image": "registry/patient:1",
            "automl_enabled": False,
            "actions": {
                "train": {
                    "command": command,
                    "mode": "passthrough",
                    "inputs": {},
                    "outputs": {},
                    "upload_excludes": [],
                }
            },
        }
        models = self.root / "skills" / "models"
        references = models / MODEL / "references"
        references.mkdir(parents=True)
        (references / "skill_info.yaml").write_text(yaml.safe_dump(info))
        (models / "schemas.manifest.json").write_text(json.dumps({"models": {}}))
        (self.root / "versions.yaml").write_text("images: {}\nwheels: {}\n")
        platforms = self.root / "skills" / "platform"
        platforms.mkdir()
        manifest = "skills/platform/platforms.manifest.json"
        shutil.copy(PACKAGED_BANK / manifest, self.root / manifest)

    def words(self, *more: str) -> list[str]:
        """The command line of a launch that is ready."""
        ready = ("--platform", "local", "--confirm-image", "--gpus", "0")
        return ["launch", MODEL, "train", "--bank", str(self.root), *ready, *more]

    def let_go(self) -> None:
        self._go.touch()
