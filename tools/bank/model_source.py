"""What `models/<name>.yaml` says about a model, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tools.bank.params import Parameter, Table, nested, read_table

TRAINING = frozenset({"train", "distill"})
_SECTIONS_OF_ACTIONS = TRAINING | {
    "evaluate",
    "inference",
    "export",
    "gen_trt_engine",
    "quantize",
    "prune",
    "dataset_convert",
}
_COMMANDS = {"retrain": "train"}
_FILLED = {
    "checkpoint": "parent_model",
    "trt_engine": "parent_model",
    "onnx_file": "parent_model",
    "quantize.model_path": "parent_model",
    "prune.model": "parent_model",
    "distill.pretrained_teacher_model_path": "parent_model",
    "model.pruned_graph_path": "parent_model",
    "train.pruned_model_path": "parent_model",
    "model.model_name": "parent_model_folder",
    "train.resume_training_checkpoint_path": "resume_model",
    "train.pretrained_model_path": "ptm_if_no_resume_model",
    "model.pretrained_model_path": "ptm_if_no_resume_model",
}
_MADE = {
    "onnx_file": "create_onnx_file",
    "trt_engine": "create_engine_file",
    "save_engine": "create_engine_file",
    "pruned_file": "create_pth_file",
}


@dataclass(frozen=True)
class ActionSource:
    """One action of a model; `is_deploy` for those of its TensorRT sidecar."""

    name: str
    declared: Mapping[str, Any]
    model: ModelSource
    is_deploy: bool

    @property
    def command_word(self) -> str:
        """The action as the container calls it."""
        return _COMMANDS.get(self.name, self.name.removeprefix("segment_"))

    @property
    def command(self) -> str:
        usual = f"{self.model.declared['program']} {self.command_word} -e {{config_path}}"
        return str(self.declared.get("command", usual))

    @property
    def results_key(self) -> str:
        fallback = self.model.declared.get("results_key", "results_dir")
        return str(self.declared.get("results_key", fallback))

    @property
    def makes(self) -> list[str]:
        return list(self.declared.get("makes", []))

    def inputs(self) -> Iterator[tuple[str, bool]]:
        """The spec keys of the inputs, and whether each is optional."""
        for field, is_optional in (("needs", False), ("takes", True)):
            for name in self.declared.get(field, []):
                for key in self.model.declared.get("groups", {}).get(name, [name]):
                    self._require(key.partition("[")[0])
                    yield key, is_optional

    def below_root(self, key: str) -> str | None:
        """Where an input lies: `train/images.tar.gz` is a file of the training data's root."""
        moved: str | None = self.declared.get("from", {}).get(key)
        return moved or self.model.place_of(key)

    @cached_property
    def table(self) -> Table:
        """The parameters of the action's spec: not those of other actions."""
        own_table = self.model.path.with_name(f"{self.model.path.stem}.{self.name}.params.yaml")
        if own_table.is_file():
            return read_table(own_table)
        foreign = set(_SECTIONS_OF_ACTIONS) - {self.command_word}
        if self.command_word in TRAINING:
            foreign -= {"train"}
        else:
            foreign |= {"wandb"}
        return {
            key: parameter
            for key, parameter in self.model.table.items()
            if parameter.root not in foreign and not (self.is_deploy and self._is_for_torch(key))
        }

    def spec(self, variant: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The default spec."""
        inputs = {key for key, _ in self.inputs()}
        # What has no default is left out, unless somebody is going to fill it in.
        flat = {
            key: parameter.default
            for key, parameter in self.table.items()
            if parameter.default is not None or key in inputs
        }
        for key, value in self._values(variant or {}).items():
            self._require(key)
            flat[key] = value
        return nested(flat)

    def fills(self) -> dict[str, str]:
        """Which spec keys are filled in at launch, and with what."""
        filled = {self.results_key: "output_dir"}
        if "encryption_key" in self.table:
            filled["encryption_key"] = "key"
        for key, _ in self.inputs():
            rule = _FILLED.get(key) or _FILLED.get(key.rpartition(".")[2])
            # Beside a checkpoint, an engine is the alternative and not the parent.
            if rule and not (key.endswith(".trt_engine") and "parent_model" in filled.values()):
                filled[key] = rule
        filled |= {key: _MADE[key.rpartition(".")[2]] for key in self.makes}
        further: dict[str, str] = self.declared.get("fills", {})
        for key in further:
            self._require(key)
        return filled | further

    def _values(self, variant: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(self.model.declared.get("values", {}))
        if self.is_deploy:
            values |= self.model.deploy.get("values", {})
        values |= variant
        values |= self.declared.get("values", {})
        # What concerns another action's section concerns this one not.
        return {key: value for key, value in values.items() if key in self.table}

    def _is_for_torch(self, key: str) -> bool:
        return key == f"{self.command_word}.checkpoint"

    def _require(self, key: str) -> None:
        if key not in self.table:
            raise ValueError(f"{self.model.path.name}: {self.name}: no parameter {key}")


@dataclass(frozen=True)
class ModelSource:
    """One model."""

    path: Path
    declared: Mapping[str, Any]
    table: Table

    @classmethod
    def read(cls, path: Path) -> ModelSource:
        declared = yaml.safe_load(path.read_text(encoding="utf-8"))
        return cls(path, declared, read_table(path.with_suffix(".params.yaml")))

    @property
    def skill(self) -> str:
        return str(self.declared["skill"])

    @property
    def network_arch(self) -> str:
        return str(self.declared["network_arch"])

    @property
    def deploy(self) -> dict[str, Any]:
        return dict(self.declared.get("deploy", {}))

    @cached_property
    def actions(self) -> dict[str, ActionSource]:
        return {
            name: ActionSource(name, declared, self, is_deploy=False)
            for name, declared in self.declared["actions"].items()
        }

    @cached_property
    def deploy_actions(self) -> dict[str, ActionSource]:
        return {
            name: ActionSource(name, declared, self, is_deploy=True)
            for name, declared in self.deploy.items()
            if name not in ("values", "variants")
        }

    def schema_actions(self) -> dict[str, ActionSource]:
        """Those with a schema: of the sidecar's, what the main file has not."""
        return {
            **{n: a for n, a in self.deploy_actions.items() if n not in self.actions},
            **self.actions,
        }

    def place_of(self, key: str) -> str | None:
        declared = self.declared.get("inputs", {}).get(key, {})
        place: str | None = declared.get("folder") or declared.get("file")
        return place

    def input_kind(self, key: str) -> str:
        """Whether an input is a file or a folder; what is not described is a checkpoint's file."""
        return "folder" if "folder" in self.declared.get("inputs", {}).get(key, {}) else "file"

    def parameter(self, action: ActionSource, key: str) -> Parameter:
        return action.table[key.partition("[")[0]]


def read_models(folder: Path) -> list[ModelSource]:
    """All models, by the names of their skills."""
    found = [p for p in folder.glob("*.yaml") if not p.name.endswith(".params.yaml")]
    return sorted(map(ModelSource.read, found), key=lambda model: model.skill)
