"""Schemas of specs, the manifests that list them, and what AutoML may search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tools.bank.model_source import ActionSource, ModelSource
from tools.bank.params import Parameter, nested

SUPPORT_RULE = (
    "A model can be searched when automl_enabled is true and schemas/train.schema.json is packaged "
    "and valid."
)


class Glossary:
    """What parameters mean: the longest entry that a dotted key ends with."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._entries = entries

    def explain(self, key: str) -> str:
        parts = key.split(".")
        for start in range(len(parts)):
            if text := self._entries.get(".".join(parts[start:])):
                return text
        return ""


def schema(model: ModelSource, action: ActionSource, glossary: Glossary) -> dict[str, Any]:
    """The schema of an action's spec."""
    nodes = {key: p.node(glossary.explain(key)) for key, p in action.table.items()}
    return {
        "type": "object",
        "properties": _sections(nested(nodes), glossary, ""),
        "default": action.spec(),
        **_summary(action),
        "x_tao_schema": {
            "schema_version": 1,
            "model": model.declared["program"].split()[-1],
            "network_arch": model.network_arch,
            "action": action.name,
            "schema_action": action.command_word,
            "core_module": model.declared["program"].split()[-1],
            "source": f"tools/bank/models/{model.path.name}",
        },
    }


def model_manifest(model: ModelSource) -> dict[str, Any]:
    """`schemas/manifest.json` of one model."""
    program = model.declared["program"].split()[-1]
    return {
        "schema_version": 1,
        "model": program,
        "network_arch": model.network_arch,
        "automl_enabled": True,
        "failures": {},
        "actions": {
            name: {
                "path": f"schemas/{name}.schema.json",
                "schema_action": action.command_word,
                "core_module": program,
                "spec_template": _template(model, action),
                **_summary(action),
            }
            for name, action in model.schema_actions().items()
        },
    }


def schemas_manifest(models: Iterable[ModelSource]) -> dict[str, Any]:
    """`schemas.manifest.json`: all models."""
    return {
        "models": {
            model.skill: {
                "actions": sorted({*model.actions, *model.deploy_actions}),
                "automl_enabled": True,
                "failures": {},
                "network_arch": model.network_arch,
            }
            for model in models
        }
    }


def automl_support(models: Iterable[ModelSource]) -> dict[str, Any]:
    """`automl_support.json`: which models AutoML can search."""
    return {
        "schema_version": 1,
        "support_rule": SUPPORT_RULE,
        "supported": [
            {
                "model": model.skill,
                "network_arch": model.network_arch,
                "automl_enabled": True,
                "train_schema": "schemas/train.schema.json",
                "train_spec_template": "references/spec_template_train.yaml",
                "automl_default_parameters": _searched(model.actions["train"]),
            }
            for model in models
        ],
        "unsupported": [],
    }


def _summary(action: ActionSource) -> dict[str, Any]:
    parameters = action.table.values()
    return {
        "automl_default_parameters": _searched(action),
        "automl_disabled_parameters": [p.key for p in parameters if _is_structure(p)],
        "popular": nested({p.key: p.default for p in parameters if p.is_popular}),
    }


def _searched(action: ActionSource) -> list[str]:
    return sorted(p.key for p in action.table.values() if p.is_searched)


def _is_structure(parameter: Parameter) -> bool:
    return not parameter.is_searched and bool({"list", "collection"} & set(parameter.types))


def _sections(tree: Mapping[str, Any], glossary: Glossary, prefix: str) -> dict[str, Any]:
    """Sections between the root and the parameters become collections."""
    properties: dict[str, Any] = {}
    for name, node in tree.items():
        key = f"{prefix}{name}"
        if isinstance(node.get("type"), str) or "anyOf" in node:
            properties[name] = node
            continue
        section: dict[str, Any] = {"type": "collection"}
        if text := glossary.explain(key):
            section["description"] = text
        section["properties"] = _sections(node, glossary, f"{key}.")
        properties[name] = section
    return properties


def _template(model: ModelSource, action: ActionSource) -> str:
    if not action.is_deploy:
        return f"references/spec_template_{action.name}.yaml"
    variants = model.deploy.get("variants")
    first = f"{next(iter(variants))}_" if variants else ""
    return f"references/spec_template_deploy_{first}{action.name}.yaml"
