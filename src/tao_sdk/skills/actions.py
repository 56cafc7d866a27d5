"""From the metadata of a skill to the arguments of a job."""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao_sdk.runner.uris import scheme_of
from tao_sdk.skills.datasets import Roots, map_datasets
from tao_sdk.skills.errors import MissingNameError, SpecError
from tao_sdk.skills.images import declared_image, resolve_declared
from tao_sdk.skills.model_skill import ActionMetadata, ModelSkill
from tao_sdk.skills.names import choices_for
from tao_sdk.skills.overrides import apply_overrides, known_keys
from tao_sdk.skills.schema_validation import validate_spec
from tao_sdk.skills.skill_bank import SkillBank
from tao_sdk.skills.spec_inference import Lineage, infer_values, inferred_outputs
from tao_sdk.skills.spec_values import holds, is_unset, parsed, put, value_at
from tao_sdk.spec_serialization import normalize_config_format
from tao_sdk.versions import looks_like_key, resolve_container_image

__all__ = ["MODES", "SkillAction", "action", "declared_mode"]

MODES = ("config", "args", "passthrough")
CONFIG_PATH = "{config_path}"


@dataclass(frozen=True)
class SkillAction:
    """An action of a model, ready for `build_entrypoint`."""

    model: str
    """Folder of the model's skill."""
    network_arch: str
    name: str
    mode: str
    command: str
    image: str
    config_format: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    upload_excludes: list[str]
    specs: dict[str, Any]
    args: dict[str, Any]
    required_credentials: list[str]
    metadata_path: Path
    missing: list[str]
    """Declared inputs that are neither optional nor given: what to ask the user for."""
    notes: list[str]

    def entrypoint_arguments(self) -> dict[str, Any]:
        """The keyword arguments of `build_entrypoint`."""
        common = {
            "command": self.command,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "upload_excludes": self.upload_excludes,
        }
        if self.mode == "config":
            return {**common, "specs": self.specs, "config_format": self.config_format}
        if self.mode == "args":
            return {**common, "args": self.args}
        return {**common, "inputs": {}, "outputs": []}


def action(
    model: str,
    action: str = "train",
    *,
    overrides: Mapping[str, Any] | None = None,
    bank: SkillBank | str | Path | None = None,
    image: str | None = None,
    dataset_roots: Roots | None = None,
    file_names: Mapping[str, str] | None = None,
    exists: Callable[[str], bool] | None = None,
    parent: str = "",
    resume: str = "",
    pretrained: str = "",
    results_dir: str = "",
    encryption_key: str = "",
    gpu_count: int | None = None,
    num_nodes: int | None = None,
    deploy: bool = False,
    variant: str | None = None,
) -> SkillAction:
    """Everything that a job for an action of a model needs.

    The spec is the action's default, then what can be inferred (`parent`: the model to evaluate or
    export, `resume`, `pretrained`), then the datasets below `dataset_roots`, then `overrides`, by
    dotted key or the model's short names. Overrides are checked against the schema. `deploy` asks
    for the TensorRT form of an action, `variant` for one of its templates.
    """
    found_bank = bank if isinstance(bank, SkillBank) else SkillBank(bank)
    skill = found_bank.model(model)
    metadata = skill.action(action, deploy=deploy)
    mode = declared_mode(metadata)
    chosen = _override(image, found_bank) if image is not None else None
    lineage = Lineage(parent, resume, pretrained, results_dir, encryption_key)
    build = _Builder(found_bank, skill, metadata)
    if mode == "config":
        build.load_default(variant)
        build.infer(lineage)
        build.map_roots(dataset_roots or {}, file_names or {}, exists)
        build.set_compute(gpu_count, num_nodes)
        build.override(overrides or {})
    elif dataset_roots:
        raise SpecError(f"dataset_roots: {skill.folder} {action} has mode {mode}, so no spec")
    elif mode == "args":
        build.fill_arguments({**_results(results_dir), **(overrides or {})})
    elif overrides:
        raise SpecError(f"overrides: {skill.folder} {action} runs its command as it is")
    command = _command(metadata)
    if mode == "args" and CONFIG_PATH in command:
        mode = "config"
        build.write_arguments_as_spec()
    return SkillAction(
        model=skill.folder,
        network_arch=skill.network_arch,
        name=action,
        mode=mode,
        command=command,
        image=chosen or resolve_declared(declared_image(skill, metadata), found_bank.path).image,
        config_format=_config_format(metadata, mode),
        inputs=build.inputs(),
        outputs=build.outputs(),
        upload_excludes=[str(word) for word in metadata.declared.get("upload_excludes") or []],
        specs=build.spec,
        args=build.arguments,
        required_credentials=_credential_names(metadata.info.get("required_credentials")),
        metadata_path=metadata.path,
        missing=build.missing(),
        notes=build.notes,
    )


def places_of_count(action: str, key: str) -> list[str]:
    """Where a spec may hold a number of GPUs or nodes.

    Metadata names the key of training; other actions have the same key in their section.
    """
    section, _, rest = key.partition(".")
    return list(dict.fromkeys([key, f"{action}.{rest}" if section == "train" else key]))


def declared_mode(metadata: ActionMetadata) -> str:
    """How the action takes its settings. Never guessed: metadata without a mode is stale."""
    mode = metadata.declared.get("mode")
    if mode is None:
        raise metadata.complaint(
            "mode", f"is missing, so the metadata is stale: set it to {' or '.join(MODES)}"
        )
    if mode not in MODES:
        raise metadata.complaint("mode", f"{mode!r} is unknown: use {' or '.join(MODES)}")
    return str(mode)


class _Builder:
    """The spec of one action, step by step."""

    def __init__(self, bank: SkillBank, skill: ModelSkill, metadata: ActionMetadata) -> None:
        self._bank = bank
        self._skill = skill
        self._metadata = metadata
        self._default: dict[str, Any] = {}
        self._schema: dict[str, Any] | None = None
        self.spec: dict[str, Any] = {}
        self.arguments: dict[str, Any] = {}
        self.notes: list[str] = []
        self._renamed: dict[str, str] = {}
        self._set: list[str] = []
        """What the compute shape changed."""

    def load_default(self, variant: str | None) -> None:
        self._default = self._bank.get_default_specs(
            self._skill.folder,
            self._metadata.name,
            deploy=self._metadata.is_deploy,
            variant=variant,
        )
        self._schema = self._skill.schema(self._metadata)
        self.spec = copy.deepcopy(self._default)
        self._free_outputs()

    def _free_outputs(self) -> None:
        """Some templates write to /results, which is lost with the container: the runner shall
        choose the place. Of a file the name is kept."""
        for key, options in self.outputs().items():
            value = value_at(self.spec, key)
            if isinstance(value, str) and value.startswith("/"):
                is_file = (options or {}).get("type") == "file"
                put(self.spec, key, posixpath.basename(value) if is_file else "")

    def infer(self, lineage: Lineage) -> None:
        inferred = infer_values(self._metadata.section("spec_params"), lineage)
        for key, value in inferred.values.items():
            put(self.spec, key, value)
        self.notes += inferred.notes

    def map_roots(
        self,
        roots: Roots,
        file_names: Mapping[str, str],
        exists: Callable[[str], bool] | None,
    ) -> None:
        if not roots:
            return
        declared = self._metadata.section("data_sources")
        sources = {key: rule for key, rule in declared.items() if rule}
        if not sources:
            raise SpecError(
                f"{self._skill.folder} {self._metadata.name} has no map from dataset roots to its "
                f"spec: give the exact paths as overrides ({', '.join(self.inputs())})"
            )
        mapped = map_datasets(
            sources,
            roots,
            data_format=str(self._metadata.info.get("data_format") or ""),
            file_names=file_names,
            exists=exists,
        )
        for key, value in mapped.values.items():
            put(self.spec, key, value)
        self.notes += [f"{key}: needs {what}" for key, what in mapped.missing.items()]
        self.notes += [
            f"{key}: took {paths[0]}; {' or '.join(paths[1:])} would do as well"
            for key, paths in mapped.choices.items()
        ]

    def set_compute(self, gpu_count: int | None, num_nodes: int | None) -> None:
        for setting, count in (("gpu_spec_key", gpu_count), ("node_spec_key", num_nodes)):
            key = self._metadata.info.get(setting) or self._skill.info.get(setting)
            if count is not None and count < 0:
                name = "gpu_count" if setting == "gpu_spec_key" else "num_nodes"
                raise SpecError(f"{name}: must not be negative, but is {count}")
            if count is None or not isinstance(key, str):
                continue
            for place in places_of_count(self._metadata.name, key):
                if holds(self.spec, parsed(place)):
                    put(self.spec, place, count)
                    self._set.append(place)

    def override(self, overrides: Mapping[str, Any]) -> None:
        declared = [
            *self.inputs(),
            *self.outputs(),
            *self._metadata.section("spec_params"),
            *self._metadata.section("data_sources"),
        ]
        known = known_keys(self._default, self._schema)
        changed = apply_overrides(
            self.spec,
            overrides,
            shorthand={**_shorthand(self._skill.info), **_shorthand(self._metadata.info)},
            known={*known, *declared},
            checked=bool(known),
        )
        self._check_schema([*self._set, *changed])

    def _check_schema(self, changed: list[str]) -> None:
        if self._schema is None or not changed:
            return
        # A rule that the bank's own default breaks is mistaken, so nobody is held to it.
        mistaken = {
            problem.path
            for problem in validate_spec(self._default, self._schema, self._metadata.name)
        }
        found = validate_spec(self.spec, self._schema, self._metadata.name)
        problems = [problem for problem in found if problem.path not in mistaken]
        if problems:
            raise SpecError(
                f"the spec of {self._skill.folder} {self._metadata.name} is not valid: "
                + "; ".join(map(str, problems))
            )

    def fill_arguments(self, overrides: Mapping[str, Any]) -> None:
        """Arguments by name: what is given, else the metadata's default, else left out."""
        defaults = self._metadata.mapping("defaults")
        placeholders = self._placeholders()
        by_name = {_argument(name): value for name, value in overrides.items()}
        names = {_argument(name) for name in (*placeholders, *placeholders.values())}
        for name in overrides:
            if _argument(name) not in names:
                raise MissingNameError(
                    f"{self._skill.folder} {self._metadata.name} has no argument {name!r}: "
                    f"{choices_for(name, placeholders.values())}"
                )
        written = {_argument(key) for key in self._metadata.mapping("outputs")}
        for key, placeholder in placeholders.items():
            given = by_name.get(_argument(key), by_name.get(_argument(placeholder)))
            value = defaults.get(placeholder) if given is None else given
            if not is_unset(value):
                self.arguments[key] = value
            elif _argument(placeholder) in written:
                self.arguments[key] = ""  # the runner chooses the place of results

    def write_arguments_as_spec(self) -> None:
        """Some commands of mode args take a file after all: the arguments, nested."""
        for key, value in self.arguments.items():
            put(self.spec, key, value)
        self.arguments = {}
        keys = {_argument(name): key for key, name in self._placeholders().items()}
        self._renamed = {
            name: keys[_argument(name)]
            for what in ("inputs", "outputs")
            for name in self._metadata.mapping(what)
            if _argument(name) in keys
        }

    def _placeholders(self) -> dict[str, str]:
        declared = self._metadata.mapping("args")
        if not declared:
            raise self._metadata.complaint("args", "is missing, which mode args needs")
        return {key: str(text).strip("{}") for key, text in declared.items()}

    def inputs(self) -> dict[str, Any]:
        """The declared inputs; of a list that has grown, every item."""
        declared = self._metadata.mapping("inputs")
        return {
            _every_item(self.spec, self._renamed.get(key, key)): options
            for key, options in declared.items()
        }

    def outputs(self) -> dict[str, Any]:
        """The declared outputs, and files that the action creates where the spec leaves room."""
        declared = {
            self._renamed.get(key, key): options
            for key, options in self._metadata.mapping("outputs").items()
        }
        created = inferred_outputs(self._metadata.section("spec_params"))
        wanted = {
            key: options
            for key, options in created.items()
            if isinstance(value_at(self.spec, key), str)
        }
        return {**wanted, **declared}

    def missing(self) -> list[str]:
        """What is neither optional nor given."""
        outputs = self.outputs()
        return [
            place
            for key, options in self.inputs().items()
            if not (options or {}).get("optional") and key not in outputs
            for place in _single_places(self.spec, key)
            if self._is_open(place)
        ]

    def _is_open(self, place: str) -> bool:
        if self.arguments:
            return not any(_argument(name) == _argument(place) for name in self.arguments)
        value = value_at(self.spec, place)
        # For data a template may hold a relative path as an example.
        is_example = (
            place in self._metadata.section("data_sources")
            and isinstance(value, str)
            and value == value_at(self._default, place)
            and not value.startswith("/")
            and not scheme_of(value)
        )
        return is_unset(value) or is_example


def _override(image: str, bank: SkillBank) -> str:
    """The image that is asked for; a key means what it means in this bank."""
    if not image.strip():
        raise SpecError("image: the override is empty: give an image, or leave it out")
    asked = image.strip()
    return resolve_container_image(asked, bank.versions() if looks_like_key(asked) else {})


def _shorthand(info: Mapping[str, Any]) -> dict[str, str]:
    return dict(info.get("spec_shorthand_keys") or {})


def _results(results_dir: str) -> dict[str, str]:
    return {"results_dir": results_dir} if results_dir else {}


def _every_item(spec: Mapping[str, Any], key: str) -> str:
    head, index, _ = key.partition("[0]")
    items = value_at(spec, head) if index else None
    return key.replace("[0]", "[*]", 1) if isinstance(items, list) and len(items) > 1 else key


def _single_places(spec: Mapping[str, Any], key: str) -> list[str]:
    """The places that a key with `[*]` stands for. Items after the first need not have it."""
    head, every, _ = key.partition("[*]")
    if not every:
        return [key]
    items = range(len(value_at(spec, head)))
    places = [key.replace(every, f"[{index}]", 1) for index in items]
    return [place for place in places if place == places[0] or holds(spec, parsed(place))]


def _argument(name: str) -> str:
    return name.rpartition(".")[2].lstrip("-").replace("-", "_")


def _command(metadata: ActionMetadata) -> str:
    command = metadata.declared.get("command")
    if not isinstance(command, str) or not command.strip():
        raise metadata.complaint("command", "is missing: this action cannot be run as a job")
    return command


def _config_format(metadata: ActionMetadata, mode: str) -> str:
    if mode != "config":
        return ""
    declared = metadata.declared.get("config_format")
    if declared is None:
        raise metadata.complaint("config_format", "is missing: set it to yaml, toml or json")
    return normalize_config_format(declared)


def _credential_names(declared: Any) -> list[str]:
    """Model files list names, platform files list mappings with a name."""
    names = (one.get("name") if isinstance(one, Mapping) else one for one in declared or [])
    return [str(name) for name in names if name]
