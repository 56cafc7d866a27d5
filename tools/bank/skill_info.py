"""`skill_info.yaml` of a model and of its TensorRT sidecar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tools.bank.model_source import ActionSource, ModelSource

_SOURCES = {
    "train": "train_datasets",
    "train_wds": "train_wds_dataset",
    "eval": "eval_dataset",
    "inference": "inference_dataset",
    "calibration": "calibration_dataset",
}
_ITEM_OF_LIST = re.compile(r"(?P<list>.+)\[0\]\.(?P<field>\w+)")
DEPLOY_IMAGE = "tao_toolkit.deploy"


def sidecar_name(model: ModelSource) -> str:
    """`tao-train-dino` has its TensorRT actions in `tao-deploy-dino.skill_info.yaml`."""
    return f"tao-deploy-{re.sub('^tao-(train|finetune)-', '', model.skill)}"


def skill_info(model: ModelSource) -> dict[str, Any]:
    """The metadata of a model."""
    declared = model.declared
    info: dict[str, Any] = {
        "name": model.skill,
        "network_arch": model.network_arch,
        "description": declared["description"].strip(),
        "container_image": declared["image"],
        "data_format": declared["data_format"],
        "automl_enabled": True,
        "gpu_spec_key": declared.get("gpu_key", "train.num_gpus"),
    }
    for key, name in (("node_key", "node_spec_key"), ("aliases", "aliases")):
        if key in declared:
            info[name] = declared[key]
    if "credentials" in declared:
        info["required_credentials"] = declared["credentials"]
    info["spec_shorthand_keys"] = _shorthands(model, model.actions)
    info |= _about_actions(model, model.actions)
    info["key_defaults"] = {}
    if "pretrained_models" in declared:
        info["pretrained_models"] = declared["pretrained_models"]
    return info


def sidecar(model: ModelSource) -> dict[str, Any]:
    """The metadata of the TensorRT actions."""
    info: dict[str, Any] = {
        "name": f"{model.network_arch.replace('_', '-')}-deploy",
        "type": "model",
        "network_arch": model.network_arch,
        "description": f"TensorRT for {model.skill}: build an engine, then use it.",
        "container_image": DEPLOY_IMAGE,
        "data_format": model.declared["data_format"],
        "spec_shorthand_keys": _shorthands(model, model.deploy_actions),
    }
    info |= _about_actions(model, model.deploy_actions)
    info["spec_templates"] = deploy_templates(model)
    return info


def deploy_templates(model: ModelSource) -> dict[str, Any]:
    """The templates of the sidecar: by action, or by variant and action."""

    def named(variant: str) -> dict[str, str]:
        return {
            action: f"spec_template_deploy_{variant}{action}.yaml"
            for action in model.deploy_actions
        }

    variants = model.deploy.get("variants")
    return {v: named(f"{v}_") for v in variants} if variants else named("")


def _about_actions(model: ModelSource, actions: Mapping[str, ActionSource]) -> dict[str, Any]:
    return {
        "actions": {name: _action(model, action) for name, action in actions.items()},
        "data_sources": {
            name: sources
            for name, action in actions.items()
            if (sources := _data_sources(model, action))
        },
        "spec_params": {name: action.fills() for name, action in actions.items()},
    }


def _action(model: ModelSource, action: ActionSource) -> dict[str, Any]:
    described: dict[str, Any] = {"command": action.command, "mode": "config"}
    described["config_format"] = model.declared.get("config_format", "yaml")
    if "image" in action.declared:
        described["container_image"] = action.declared["image"]
    described["inputs"] = {
        key: _input(model, key, is_optional) for key, is_optional in action.inputs()
    }
    described["outputs"] = {action.results_key: {"type": "folder"}}
    described["outputs"] |= {key: {"type": "file"} for key in action.makes}
    described["upload_excludes"] = ["inputs/"]
    return described


def _input(model: ModelSource, key: str, is_optional: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"type": model.input_kind(key)}
    if is_optional:
        described["optional"] = True
    selective = model.declared.get("inputs", {}).get(key, {}).get("selective")
    if selective:
        described["selective"] = selective
    return described


def _data_sources(model: ModelSource, action: ActionSource) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    for key, is_optional in action.inputs():
        place = action.below_root(key)
        if place is None:
            continue
        root, _, path = place.partition("/")
        default = model.parameter(action, key).default
        item = _ITEM_OF_LIST.fullmatch(key)
        if item and default == []:
            # A list without items grows by one item for each dataset.
            whole = sources.setdefault(
                item["list"],
                {
                    "source": _SOURCES[root],
                    "multiple_sources": True,
                    "optional": True,
                    "mapping": {},
                },
            )
            whole["mapping"][item["field"]] = {"path": path} | _optional(key)
            whole["optional"] = whole["optional"] and is_optional
            continue
        rule: dict[str, Any] = {"source": _SOURCES[root], "path": path}
        if isinstance(default, list) and not item:
            rule["list"] = True
        if path.endswith(".tar.gz"):
            rule["runtime"] = "extracted_folder"
        if is_optional:
            rule["optional"] = True
        sources[key] = rule
    return sources


def _optional(key: str) -> dict[str, Any]:
    """Lists of files are wanted only where there are any."""
    return {"optional": True} if key.endswith("_list_file") else {}


def _shorthands(model: ModelSource, actions: Mapping[str, ActionSource]) -> dict[str, str]:
    known = {key for action in actions.values() for key in action.table}
    short: dict[str, str] = model.declared["shorthands"]
    if actions is not model.actions:
        return {name: key for name, key in short.items() if key in known}
    if unknown := [name for name, key in short.items() if key not in known]:
        raise ValueError(f"{model.path.name}: shorthands of no parameter: {', '.join(unknown)}")
    return short
