"""Everything that a bank can do, joined: applications, data tools, platforms, models, AutoML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tao_sdk.plain_data import parse_yaml
from tao_sdk.skills.errors import MetadataError
from tao_sdk.skills.files import read_metadata, read_text
from tao_sdk.skills.layout import metadata_file
from tao_sdk.skills.listing import automl_support, list_models, model_records
from tao_sdk.skills.platform_manifest import platform_manifest, prompt_defaults
from tao_sdk.skills.skill_bank import SkillBank

__all__ = ["capabilities_text", "list_capabilities"]

_FULL_FLOW = frozenset({"train", "evaluate", "inference", "export", "gen_trt_engine"})


def list_capabilities(bank: SkillBank) -> dict[str, Any]:
    """Everything that the bank can do."""
    manifest = platform_manifest(bank)
    models = list_models(bank)
    offered = _actions_by_model(bank)
    return {
        "schema_version": 1,
        "applications": [_skill_record(bank, path) for path in bank.skills("applications")],
        "data_workflows": [_skill_record(bank, path) for path in bank.skills("data")],
        "platforms": {
            "source": "skills/platform/platforms.manifest.json",
            "prompt_defaults": prompt_defaults(manifest),
            "supported": manifest["platforms"],
        },
        "model_workflows": {
            "source": models["source"],
            "actions": sorted(set().union(*offered.values())),
            "training_capable_models": [m for m, actions in offered.items() if "train" in actions],
            "full_train_eval_infer_export_trt_models": [
                model for model, actions in offered.items() if actions >= _FULL_FLOW
            ],
            "models": models["models"],
        },
        "automl": automl_support(bank),
    }


def capabilities_text(bank: SkillBank) -> str:
    """The same in words."""
    found = list_capabilities(bank)
    models = found["model_workflows"]
    full = set(models["full_train_eval_infer_export_trt_models"])
    sections = {
        "Applications": [_skill_line(skill) for skill in found["applications"]],
        "Data workflows": [_skill_line(skill) for skill in found["data_workflows"]],
        "Platforms": [record["name"] for record in found["platforms"]["supported"]],
        "Models": [
            f"{record['model']} ({record['network_arch']})"
            + (": from training to TensorRT" if record["model"] in full else "")
            for record in models["models"]
        ],
        "Actions of models": models["actions"],
        "AutoML": [entry["model"] for entry in found["automl"]["supported"]],
    }
    blocks = [
        "\n".join([f"{heading}:", *(f"- {entry}" for entry in entries or ["None"])])
        for heading, entries in sections.items()
    ]
    return "\n\n".join(blocks)


def _actions_by_model(bank: SkillBank) -> dict[str, set[str]]:
    """What can be run: the metadata counts, and the manifest where there is only that."""
    return {
        record["model"]: set(record["_skill"].actions())
        if record["_skill"]
        else set(record["actions"])
        for record in model_records(bank)
    }


def _skill_record(bank: SkillBank, path: Path) -> dict[str, Any]:
    info_path = metadata_file(path)
    info: dict[str, Any] = {}
    if info_path is not None:
        info = read_metadata(info_path)
    return {
        "name": path.name,
        "description": str(info.get("description") or _front_matter(path).get("description") or ""),
        "actions": sorted(info.get("actions") or {}),
        "path": path.relative_to(bank.path).as_posix(),
    }


def _front_matter(path: Path) -> dict[str, Any]:
    """What stands between the first two lines of dashes in SKILL.md."""
    skill = path / "SKILL.md"
    if not skill.is_file():
        return {}
    parts = read_text(skill).split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        content = parse_yaml(parts[1])
    except ValueError as error:
        raise MetadataError(f"{skill}: the front matter is not valid YAML: {error}") from error
    return content if isinstance(content, dict) else {}


def _skill_line(skill: dict[str, Any]) -> str:
    return f"{skill['name']}: {skill['description']}" if skill["description"] else skill["name"]
