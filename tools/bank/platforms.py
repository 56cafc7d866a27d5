"""`skill_info.yaml` of the platforms: the part of `platforms.manifest.json` that belongs to each.

The manifest is written by hand, and what these files say is only taken from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.bank.texts import yaml_text

_PLATFORMS = Path("skills", "platform")
_SKILLS = {
    "local": "tao-run-on-local",
    "local-docker": "tao-run-on-local-docker",
    "slurm": "tao-run-on-slurm",
    "kubernetes": "tao-run-on-kubernetes",
    "brev": "tao-run-on-brev",
    "lepton": "tao-run-on-lepton",
}
"""remote-docker is the same platform as local-docker, seen from another machine."""


def platform_files(bank: Path) -> dict[Path, str]:
    """The files, below the bank."""
    manifest = json.loads((bank / _PLATFORMS / "platforms.manifest.json").read_text("utf-8"))
    return {
        _PLATFORMS / _SKILLS[platform["name"]] / "references" / "skill_info.yaml": yaml_text(
            _skill_info(platform),
            "Made by `python -m tools.bank` from skills/platform/platforms.manifest.json.",
        )
        for platform in manifest["platforms"]
        if platform["name"] in _SKILLS
    }


def _skill_info(platform: Mapping[str, Any]) -> dict[str, Any]:
    info: dict[str, Any] = {
        "name": _SKILLS[platform["name"]],
        "type": "platform",
        "description": platform["description"],
        "required_credentials": _without_help(platform["required_credentials"]),
    }
    if groups := platform.get("credential_groups"):
        wanted = ("name", "require_one_of", "preferred")
        info["credential_groups"] = [{key: g[key] for key in wanted if key in g} for g in groups]
    info["optional_credentials"] = _without_help(platform["optional_credentials"])
    info["resource_defaults"] = platform.get("resource_defaults", {})
    info["cloud_storage"] = platform["storage"]
    if platform["name"] == "kubernetes":
        info["sdk_module"] = "tao_sdk.platforms.kubernetes.sdk"
        info["features"] = [
            "gpu-scheduling",
            "multi-node",
            "failure-analysis",
            "log-streaming",
            "pod-diagnostics",
        ]
    return info


def _without_help(credentials: list[dict[str, str]]) -> list[dict[str, str]]:
    """How to get a credential is said in the manifest only."""
    wanted = ("name", "source", "only_when")
    return [{key: c[key] for key in wanted if key in c} for c in credentials]
