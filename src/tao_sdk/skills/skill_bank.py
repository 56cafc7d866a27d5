"""`SkillBank`: what models there are, and what is known about each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from tao_sdk.skills.errors import AmbiguousNameError, MissingNameError
from tao_sdk.skills.files import read_json_mapping, read_metadata, read_yaml_mapping, shaped
from tao_sdk.skills.images import ResolvedImage, declared_image, resolve_declared
from tao_sdk.skills.layout import (
    layer_folder,
    layout_of,
    locate_bank,
    metadata_file,
    skill_folders,
)
from tao_sdk.skills.model_skill import ModelSkill
from tao_sdk.skills.names import choices_for, folded
from tao_sdk.skills.shapes import AUTOML_SUPPORT, SCHEMAS_MANIFEST
from tao_sdk.skills.spec_values import put
from tao_sdk.versions import load_manifest

__all__ = ["SkillBank"]

_OTHER_TYPES = ("platform", "data", "application", "workflow")


class SkillBank:
    """A folder of skills: models, platforms, data tools and applications.

    Without a path: `$TAO_SKILL_BANK_PATH`, else `~/tao-skills-external` if it is there, else the
    bank that is packaged with the SDK. A model is called by its folder, its network_arch, its name
    or an alias, in any case.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = locate_bank(path)
        self.layout = layout_of(self.path)
        self._skills: dict[str, ModelSkill] = {}

    def __repr__(self) -> str:
        return f"SkillBank({str(self.path)!r})"

    # -- models

    def list_models(self) -> list[str]:
        """The folders of all models, sorted."""
        return [path.name for path in self._model_folders]

    def find_model(self, name: str) -> str:
        """The folder of the model that is called so."""
        return self.model(name).folder

    def model(self, name: str) -> ModelSkill:
        """The model that is called so; raises when there is none or more than one.

        Tools for data are described as models are, and found here, too.
        """
        if name in self._paths:
            return self._read(name)
        fitting = [
            skill
            for skill in map(self._read, self._paths)
            if folded(name) in map(folded, skill.names())
        ]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise AmbiguousNameError(
                f"{name!r} is the name of several models: say which by its folder "
                f"({', '.join(skill.folder for skill in fitting)})"
            )
        known = {called for skill in map(self._read, self._paths) for called in skill.names()}
        raise MissingNameError(f"no model {name!r} in {self.path}: {choices_for(name, known)}")

    def get_model_config(self, name: str) -> dict[str, Any]:
        """The metadata of a model as its file has it: `skill_info.yaml`, else `config.json`."""
        return copy.deepcopy(self.model(name).info)

    def list_actions(self, name: str) -> list[str]:
        """The actions of a model: the main file's in its order, then what sidecars add."""
        return list(self.model(name).actions())

    def get_default_specs(
        self, name: str, action: str = "train", *, deploy: bool = False, variant: str | None = None
    ) -> dict[str, Any]:
        """The whole default spec of an action, with the model's `key_defaults` in it.

        From the template, else from the default of the schema; empty when there is neither.
        """
        skill = self.model(name)
        metadata = skill.action(action, deploy=deploy)
        template = skill.template_path(metadata, variant)
        if template is not None:
            spec = read_yaml_mapping(template)
        else:
            spec = copy.deepcopy((skill.schema(metadata) or {}).get("default") or {})
        for key, value in (metadata.info.get("key_defaults") or {}).items():
            put(spec, key, value)
        return spec

    def get_schema(self, name: str, action: str = "train") -> dict[str, Any] | None:
        """The schema of an action's spec; None when the bank has none."""
        skill = self.model(name)
        return skill.schema(skill.action(action))

    def resolve_image(self, name: str, action: str = "train", *, deploy: bool = False) -> str:
        """The image that an action runs in."""
        return self.find_image(name, action, deploy=deploy).image

    def find_image(
        self, name: str, action: str = "train", *, deploy: bool = False
    ) -> ResolvedImage:
        """The image that an action runs in, and where that is said."""
        skill = self.model(name)
        return resolve_declared(
            declared_image(skill, skill.action(action, deploy=deploy)), self.path
        )

    # -- the bank's own files

    def versions(self) -> dict[str, Any]:
        """The bank's `versions.yaml`."""
        return load_manifest(self.path / "versions.yaml")

    def layer(self, name: str) -> Path:
        """The folder of a layer: models, platform, data, applications, core."""
        return layer_folder(self.path, self.layout, name)

    def schemas_manifest(self) -> dict[str, Any]:
        """Which models and actions have schemas."""
        path = self.layer("models") / "schemas.manifest.json"
        return shaped(read_json_mapping(path), SCHEMAS_MANIFEST, path)

    def automl_support(self) -> dict[str, Any]:
        """What the bank remembers about AutoML; empty when it does not."""
        path = self.layer("models") / "automl_support.json"
        return shaped(read_json_mapping(path), AUTOML_SUPPORT, path) if path.is_file() else {}

    def skills(self, layer: str) -> Iterator[Path]:
        """The skills of a layer other than models."""
        for path in skill_folders(self.path, self.layout, layer):
            if self.layout != "flat" or _layer_of(path) == layer:
                yield path

    # -- internal

    @cached_property
    def _model_folders(self) -> list[Path]:
        folders = skill_folders(self.path, self.layout, "models")
        return [
            path
            for path in folders
            if metadata_file(path) and (self.layout != "flat" or _layer_of(path) == "models")
        ]

    @cached_property
    def _paths(self) -> dict[str, Path]:
        tools = [path for path in self.skills("data") if metadata_file(path)]
        return {path.name: path for path in [*self._model_folders, *tools]}

    def _read(self, folder: str) -> ModelSkill:
        if folder not in self._skills:
            self._skills[folder] = ModelSkill.read(self._paths[folder])
        return self._skills[folder]


def _layer_of(skill: Path) -> str:
    """In a flat bank the metadata tells what a skill is."""
    info_path = metadata_file(skill)
    if info_path is None:
        return "core"
    info = read_metadata(info_path)
    kind = str(info.get("type") or "")
    if kind not in _OTHER_TYPES:
        return "models" if "network_arch" in info else "core"
    return "applications" if kind in ("application", "workflow") else kind
