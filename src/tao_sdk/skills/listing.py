"""What the models of a bank can do, as records and as text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tao_sdk.skills.errors import BankNotFoundError, MetadataError
from tao_sdk.skills.files import mapping_at, read_json_mapping
from tao_sdk.skills.model_skill import ModelSkill, automl_flag
from tao_sdk.skills.skill_bank import SkillBank

__all__ = [
    "automl_obstacle",
    "automl_support",
    "automl_text",
    "list_models",
    "model_records",
    "models_text",
    "train_schema_state",
]

SUPPORT_RULE = (
    "A model takes part in AutoML when its metadata does not turn it off, nothing blocks it, and "
    "its train schema is packaged and valid."
)
AUTOML_SOURCES = [
    "skills/models/schemas.manifest.json",
    "skills/models/<model>/references/skill_info.yaml",
    "skills/models/<model>/schemas/train.schema.json",
]
_TRAIN_SCHEMA = "schemas/train.schema.json"


def list_models(bank: SkillBank) -> dict[str, Any]:
    """Every model with its actions, and whether it can be trained under AutoML."""
    records = [_without_internals(record) for record in model_records(bank)]
    return {"schema_version": 1, "source": AUTOML_SOURCES[0], "models": records}


def automl_support(bank: SkillBank) -> dict[str, Any]:
    """Which models AutoML can tune, and why it cannot tune the others."""
    remembered = {
        entry.get("model"): entry
        for entry in bank.automl_support().get("supported") or []
        if isinstance(entry, dict)
    }
    supported, unsupported = [], []
    for record in model_records(bank):
        reason = _reason_against(record)
        common = {key: record[key] for key in ("model", "network_arch", "automl_enabled")}
        if reason:
            status = record["train_schema_status"]
            unsupported.append({**common, "reason": reason, "train_schema_status": status})
        else:
            supported.append({**common, **_automl_details(record, remembered)})
    return {
        "schema_version": 1,
        "source": AUTOML_SOURCES,
        "support_rule": SUPPORT_RULE,
        "supported": supported,
        "unsupported": unsupported,
    }


def automl_obstacle(bank: SkillBank, model: str) -> str:
    """Why AutoML cannot tune a model, by its folder; "" when it can. Reads that model only."""
    manifest_path = bank.layer("models") / "schemas.manifest.json"
    listed = mapping_at(bank.schemas_manifest(), "models", manifest_path)
    return _reason_against(_record(bank, model, listed.get(model) or {}, bank.model(model)))


def model_records(bank: SkillBank) -> list[dict[str, Any]]:
    """One record per model of the manifest or with a folder; `_skill` is None without a folder."""
    manifest_path = bank.layer("models") / "schemas.manifest.json"
    listed = mapping_at(bank.schemas_manifest(), "models", manifest_path)
    folders = {name: bank.model(name) for name in bank.list_models()}
    return [
        _record(bank, name, listed.get(name) or {}, folders.get(name))
        for name in sorted({*listed, *folders})
    ]


def train_schema_state(path: Path) -> tuple[bool, str]:
    """Whether a train schema can be used, and a sentence about it."""
    try:
        read_json_mapping(path)
    except BankNotFoundError:
        return False, f"{_TRAIN_SCHEMA} is not packaged"
    except MetadataError as error:
        cause = error.__cause__
        if isinstance(cause, (OSError, UnicodeDecodeError)):
            return False, f"{_TRAIN_SCHEMA} cannot be read: {cause}"
        return False, f"{_TRAIN_SCHEMA} is invalid JSON: {cause or 'not an object'}"
    return True, f"{_TRAIN_SCHEMA} is packaged and valid"


def models_text(bank: SkillBank) -> str:
    """Every model in a line."""
    lines = ["Models:"]
    for record in model_records(bank):
        automl = "no" if _reason_against(record) else "yes"
        lines.append(
            f"- {record['model']} ({record['network_arch']}): "
            f"{', '.join(record['actions']) or 'no actions'}; AutoML: {automl}"
        )
    return "\n".join(lines)


def automl_text(bank: SkillBank) -> str:
    """What AutoML can tune, and what not, with the reason."""
    support = automl_support(bank)
    supported = (f"{entry['model']} ({entry['network_arch']})" for entry in support["supported"])
    unsupported = (
        f"{entry['model']} ({entry['network_arch']}): {entry['reason']}"
        for entry in support["unsupported"]
    )
    return "\n".join(
        [
            f"Rule: {support['support_rule']}",
            "",
            "AutoML can tune:",
            *_bullets(supported),
            "",
            "AutoML cannot tune:",
            *_bullets(unsupported),
        ]
    )


def _bullets(entries: Iterable[str]) -> list[str]:
    return [f"- {entry}" for entry in entries] or ["- None"]


def _without_internals(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if not key.startswith("_")}


def _record(
    bank: SkillBank, name: str, listed: dict[str, Any], skill: ModelSkill | None
) -> dict[str, Any]:
    info = skill.info if skill else {}
    own = skill.schema_manifest if skill else {}
    schema_path = bank.layer("models") / name / _TRAIN_SCHEMA
    valid, status = train_schema_state(schema_path)
    return {
        "model": name,
        "network_arch": info.get("network_arch")
        or listed.get("network_arch")
        or own.get("network_arch")
        or name,
        "actions": listed.get("actions") or sorted(own.get("actions") or info.get("actions") or []),
        "failures": listed.get("failures") or {},
        "automl_enabled": automl_flag(info.get("automl_enabled"), listed.get("automl_enabled")),
        "automl_blocked_reason": str(info.get("automl_blocked_reason") or ""),
        "has_train_schema": valid,
        "train_schema": f"models/{name}/{_TRAIN_SCHEMA}",
        "train_schema_status": status,
        "_skill": skill,
        "_schema_path": schema_path,
    }


def _reason_against(record: dict[str, Any]) -> str:
    if not record["automl_enabled"]:
        return "automl_enabled is false in the model's metadata"
    if record["automl_blocked_reason"]:
        return str(record["automl_blocked_reason"])
    return "" if record["has_train_schema"] else str(record["train_schema_status"])


def _automl_details(record: dict[str, Any], remembered: dict[Any, Any]) -> dict[str, Any]:
    skill: ModelSkill | None = record["_skill"]
    own = ((skill.schema_manifest if skill else {}).get("actions") or {}).get("train") or {}
    cached = remembered.get(record["model"]) or {}
    # The cache may be older than the schemas, so the model's own manifest comes first.
    parameters = own.get("automl_default_parameters")
    if parameters is None:
        parameters = cached.get("automl_default_parameters")
    if parameters is None:
        schema = read_json_mapping(record["_schema_path"])
        parameters = schema.get("automl_default_parameters") or []
    return {
        "train_schema": _TRAIN_SCHEMA,
        "train_schema_status": record["train_schema_status"],
        "train_spec_template": cached.get("train_spec_template")
        or own.get("spec_template")
        or "references/spec_template_train.yaml",
        "actions": record["actions"],
        "automl_default_parameters": parameters,
    }
