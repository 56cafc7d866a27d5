"""Small skill banks for tests: whole, sound, and easy to damage."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

TINY = "tao-train-tiny"
IMAGES = {"tao_toolkit": {"pyt": "registry/tao:1-pyt", "deploy": "registry/tao:1-deploy"}}

SPEC: dict[str, Any] = {
    "results_dir": "",
    "encryption_key": "",
    "model": {"backbone": "small", "pretrained": ""},
    "dataset": {"train_dir": "", "labels": "", "batch_size": 4, "sources": []},
    "train": {"num_epochs": 10, "num_gpus": 1, "lr": 0.001, "resume_training_checkpoint_path": ""},
}
INFO: dict[str, Any] = {
    "name": TINY,
    "network_arch": "tiny_net",
    "aliases": ["Tiny", "The Tiny One"],
    "automl_enabled": True,
    "container_image": "tao_toolkit.pyt",
    "data_format": "coco",
    "gpu_spec_key": "train.num_gpus",
    "actions": {
        "train": {
            "command": "tiny train -e {config_path}",
            "mode": "config",
            "config_format": "yaml",
            "inputs": {
                "dataset.train_dir": {"type": "folder"},
                "dataset.labels": {"type": "file"},
                "model.pretrained": {"type": "file", "optional": True},
            },
            "outputs": {"results_dir": {"type": "folder"}},
            "upload_excludes": ["inputs/"],
        },
        "evaluate": {
            "command": "tiny evaluate -e {config_path}",
            "mode": "config",
            "config_format": "yaml",
            "inputs": {"evaluate.checkpoint": {"type": "file"}},
            "outputs": {"results_dir": {"type": "folder"}},
            "upload_excludes": ["inputs/"],
        },
    },
    "data_sources": {
        "train": {
            "dataset.train_dir": {"source": "train_datasets", "path": "images.tar.gz"},
            "dataset.labels": {"source": "train_datasets", "path": "labels.json"},
        }
    },
    "spec_params": {
        "train": {
            "results_dir": "output_dir",
            "model.pretrained": "ptm_if_no_resume_model",
            "train.resume_training_checkpoint_path": "resume_model",
        },
        "evaluate": {
            "results_dir": "output_dir",
            "evaluate.checkpoint": "parent_model",
            "evaluate.trt_engine": "parent_model",
        },
    },
    "spec_shorthand_keys": {"num_epochs": "train.num_epochs", "learning_rate": "train.lr"},
    "key_defaults": {"model.backbone": "tiny"},
}
SIDECAR: dict[str, Any] = {
    "name": "tiny-deploy",
    "type": "model",
    "network_arch": "tiny_net",
    "container_image": "tao_toolkit.deploy",
    "actions": {
        name: {
            "command": f"tiny {name} -e {{config_path}}",
            "mode": "config",
            "config_format": "yaml",
            "inputs": {f"{name}.{key}": {"type": "file"}},
            "outputs": {"results_dir": {"type": "folder"}},
            "upload_excludes": ["inputs/"],
        }
        for name, key in (("gen_trt_engine", "onnx_file"), ("evaluate", "trt_engine"))
    },
    "spec_templates": {
        "gen_trt_engine": "../references/spec_template_deploy_gen_trt_engine.yaml",
        "evaluate": "spec_template_deploy_evaluate.yaml",
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "results_dir": {"type": "string", "default": ""},
        "model": {
            "type": "collection",
            "properties": {"backbone": {"type": "categorical", "enum": ["small", "tiny", "large"]}},
        },
        "dataset": {
            "type": "collection",
            "properties": {"batch_size": {"type": "int", "minimum": 1, "maximum": float("inf")}},
        },
        "train": {
            "type": "collection",
            "properties": {
                "num_epochs": {"type": "int", "minimum": 1, "maximum": 1000},
                "lr": {"type": "float", "math_cond": "> 0.0 <= 1.0", "automl_enabled": True},
            },
        },
    },
    "default": SPEC,
    "automl_default_parameters": ["train.lr"],
    "required": ["train"],
    "x_tao_schema": {"action": "train", "network_arch": "tiny_net"},
}
PLATFORMS: dict[str, Any] = {
    "schema_version": 3,
    "default_long_running_enabled": True,
    "default_status_interval_minutes": 5,
    "credential_definitions": {
        "ZED_TOKEN": {"description": "Token of Zed.", "how_to_get": "Ask Zed."},
        "KEY_PATH": {"description": "A key."},
    },
    "platforms": [
        {
            "name": "zed",
            "display_name": "Zed",
            "aliases": ["zed-cloud"],
            "backend_type": "zed",
            "description": "Machines of Zed.",
            "required_credentials": [{"name": "ZED_TOKEN", "source": "env_var"}],
            "credential_groups": [
                {"name": "identity", "require_one_of": ["KEY_PATH", "AGENT"], "preferred": "AGENT"}
            ],
            "optional_credentials": [
                {"name": "KEY_PATH", "source": "env_var", "only_when": "keys are used"}
            ],
            "resource_defaults": {"num_gpus": 4, "requeue": True},
            "storage": {"protocol": "aws", "uri_format": "s3://{bucket}/{path}"},
            "dataset_examples": ["s3://bucket/train"],
            "preflight_checks": ["the token works"],
        },
        {"name": "alpha", "aliases": [], "backend_type": "alpha", "description": "This machine."},
    ],
}


class Bank:
    """A bank in a folder, of which every file can be changed."""

    def __init__(self, root: Path, layout: str = "nested") -> None:
        self.root = root
        self.layout = layout
        self.models = self._layer("models")
        self.platforms = self._layer("platform")
        self.model = self.models / TINY
        self.info = copy.deepcopy(INFO)
        self.sidecar = copy.deepcopy(SIDECAR)
        self.schema = copy.deepcopy(SCHEMA)
        self.platform_manifest = copy.deepcopy(PLATFORMS)
        self.versions: dict[str, Any] = {
            "images": copy.deepcopy(IMAGES),
            "wheels": {"sdk": "sdk[zed]==1.0 "},
        }
        self.write()

    def _layer(self, name: str) -> Path:
        return {
            "nested": self.root / "skills" / name,
            "flat": self.root / "skills",
            "old": self.root / name,
        }[self.layout]

    def write(self) -> None:
        references, schemas = self.model / "references", self.model / "schemas"
        put_yaml(self.root / "versions.yaml", self.versions)
        put_json(self.platforms / "platforms.manifest.json", self.platform_manifest)
        put_yaml(references / "skill_info.yaml", self.info)
        put_yaml(references / "tao-deploy-tiny.skill_info.yaml", self.sidecar)
        put_yaml(references / "spec_template_train.yaml", SPEC)
        evaluate = {"results_dir": "", "evaluate": {"checkpoint": "???", "trt_engine": ""}}
        put_yaml(references / "spec_template_evaluate.yaml", evaluate)
        put_yaml(references / "spec_template_deploy_evaluate.yaml", evaluate)
        engine = {"results_dir": "", "gen_trt_engine": {"onnx_file": "", "trt_engine": ""}}
        put_yaml(references / "spec_template_deploy_gen_trt_engine.yaml", engine)
        put_json(schemas / "train.schema.json", self.schema)
        train = {
            "path": "schemas/train.schema.json",
            "spec_template": "references/spec_template_train.yaml",
            "automl_default_parameters": ["train.lr"],
        }
        put_json(
            schemas / "manifest.json",
            {"schema_version": 1, "network_arch": "tiny_net", "actions": {"train": train}},
        )
        actions = ["evaluate", "gen_trt_engine", "train"]
        listed = {"actions": actions, "automl_enabled": True, "failures": {}}
        put_json(
            self.models / "schemas.manifest.json",
            {"models": {TINY: {**listed, "network_arch": "tiny_net"}}},
        )
        put_json(
            self.models / "automl_support.json",
            {"supported": [{"model": TINY, "automl_default_parameters": ["train.lr"]}]},
        )

    def add_model(self, folder: str, **changes: Any) -> Path:
        """A second model, like the first but for what is said."""
        path = self.models / folder
        info = {**copy.deepcopy(INFO), "name": folder, "aliases": [], **changes}
        put_yaml(path / "references" / "skill_info.yaml", info)
        put_yaml(path / "references" / "spec_template_train.yaml", SPEC)
        return path


def put_yaml(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def put_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
