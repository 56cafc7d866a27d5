"""One model of a bank: its metadata, its TensorRT sidecars, its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tao_sdk.skills.errors import AmbiguousNameError, MetadataError, MissingNameError
from tao_sdk.skills.files import mapping_at, read_json_mapping, read_metadata, shaped
from tao_sdk.skills.layout import metadata_file
from tao_sdk.skills.names import choices_for
from tao_sdk.skills.shapes import SCHEMA, SCHEMA_MANIFEST

__all__ = ["ActionMetadata", "ModelSkill", "automl_flag"]

_TRUE_WORDS = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class ActionMetadata:
    """What one file of a model says about one action."""

    name: str
    declared: Mapping[str, Any]
    info: Mapping[str, Any]
    """The whole file."""
    path: Path
    is_deploy: bool

    def section(self, key: str) -> dict[str, Any]:
        """What a part of the file, such as `spec_params`, says about this action."""
        return mapping_at(mapping_at(dict(self.info), key, self.path), self.name, self.path)

    def mapping(self, key: str) -> dict[str, Any]:
        """A mapping of the action itself, such as `inputs`."""
        return mapping_at(dict(self.declared), key, self.path)

    def complaint(self, key: str, problem: str) -> MetadataError:
        return MetadataError(f"{self.path}: actions.{self.name}.{key}: {problem}")


@dataclass(frozen=True)
class ModelSkill:
    """The folder of a model skill."""

    path: Path
    info: dict[str, Any]
    info_path: Path
    sidecars: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    """TensorRT actions are described in files of their own."""

    @classmethod
    def read(cls, path: Path) -> ModelSkill:
        info_path = metadata_file(path)
        if info_path is None:
            raise MetadataError(
                f"{path} describes no model: it has neither references/skill_info.yaml "
                "nor config.json"
            )
        sidecars = sorted((path / "references").glob("tao-deploy-*.skill_info.yaml"))
        described = [(sidecar, read_metadata(sidecar)) for sidecar in sidecars]
        return cls(path, read_metadata(info_path), info_path, described)

    @property
    def folder(self) -> str:
        return self.path.name

    @property
    def network_arch(self) -> str:
        """What the containers call the model."""
        return str(self.info.get("network_arch") or self.folder)

    def names(self) -> Iterator[str]:
        """Everything that the model may be called by."""
        yield self.folder
        for key in ("network_arch", "model", "name"):
            if isinstance(self.info.get(key), str):
                yield self.info[key]
        aliases = self.info.get("aliases") or []
        yield from (alias for alias in aliases if isinstance(alias, str))

    def actions(self, *, deploy: bool = False) -> dict[str, ActionMetadata]:
        """The actions by name. A sidecar adds to the main file; `deploy` asks for it alone."""
        found: dict[str, ActionMetadata] = {}
        files = [(path, info, True) for path, info in self.sidecars]
        if not deploy:
            files.insert(0, (self.info_path, self.info, False))
        for path, info, is_deploy in files:
            for name, declared in mapping_at(info, "actions", path).items():
                action = ActionMetadata(name, declared or {}, info, path, is_deploy)
                found.setdefault(name, action)
        return found

    def action(self, name: str, *, deploy: bool = False) -> ActionMetadata:
        """One action; the main file's, unless it is only in a sidecar or `deploy` asks for it."""
        actions = self.actions(deploy=deploy)
        if name not in actions:
            kind = "TensorRT action" if deploy else "action"
            raise MissingNameError(
                f"{self.folder} has no {kind} {name!r}: {choices_for(name, actions)}"
            )
        return actions[name]

    # -- files of an action

    def template_path(self, action: ActionMetadata, variant: str | None = None) -> Path | None:
        """The file with the whole default spec of an action; None when there is none."""
        references = self.path / "references"
        templates = mapping_at(dict(action.info), "spec_templates", action.path)
        variants = {
            name: files
            for name, files in templates.items()
            if isinstance(files, dict) and action.name in files
        }
        if variants and variant is None:
            raise AmbiguousNameError(
                f"{self.folder} {action.name} comes in several variants: say which (variant=, "
                f"--variant): {', '.join(sorted(variants))}"
            )
        if variant is not None and variant not in variants:
            raise MissingNameError(
                f"{self.folder} {action.name} has no variant {variant!r}: "
                f"{choices_for(variant, variants)}"
            )
        declared = templates.get(action.name) if variant is None else variants[variant][action.name]
        if declared:
            path = references / str(declared)
            if not path.is_file():
                key = f"spec_templates.{variant + '.' if variant else ''}{action.name}"
                raise MetadataError(f"{action.path}: {key}: there is no file {path}")
            return path
        prefix = "spec_template_deploy" if action.is_deploy else "spec_template"
        usual = references / f"{prefix}_{action.name}.yaml"
        return usual if usual.is_file() else None

    def variants(self, action: ActionMetadata) -> list[str]:
        """The variants that an action's template comes in; mostly none."""
        templates = mapping_at(dict(action.info), "spec_templates", action.path)
        return sorted(
            name
            for name, files in templates.items()
            if isinstance(files, dict) and action.name in files
        )

    def schema_path(self, action: str) -> Path:
        return self.path / "schemas" / f"{action}.schema.json"

    def schema(self, action: ActionMetadata) -> dict[str, Any] | None:
        """The schema of an action's spec. There are none for TensorRT's sidecars."""
        path = self.schema_path(action.name)
        if action.is_deploy and action.name in mapping_at(self.info, "actions", self.info_path):
            return None  # the schema of that name belongs to the main file's action
        return shaped(read_json_mapping(path), SCHEMA, path) if path.is_file() else None

    @cached_property
    def schema_manifest(self) -> dict[str, Any]:
        """What the model's own schema manifest says; empty when it has none."""
        path = self.path / "schemas" / "manifest.json"
        return shaped(read_json_mapping(path), SCHEMA_MANIFEST, path) if path.is_file() else {}


def automl_flag(*values: Any) -> bool:
    """The first value that says something; a model that says nothing takes part."""
    for value in values:
        if isinstance(value, str):
            return value.strip().lower() in _TRUE_WORDS
        if value is not None:
            return bool(value)
    return True
