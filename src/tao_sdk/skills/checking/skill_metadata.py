"""Is what a `skill_info.yaml` or `config.json` says usable?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.skills.actions import CONFIG_PATH, MODES
from tao_sdk.skills.checking.problems import Finding, note, problem
from tao_sdk.skills.images import is_absolute
from tao_sdk.skills.spec_inference import KNOWN_RULES
from tao_sdk.skills.spec_values import parsed
from tao_sdk.spec_files import CONFIG_FORMATS
from tao_sdk.versions import resolve_image

__all__ = ["Metadata", "check_metadata"]

_PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")
_NEEDED = ("command", "inputs", "outputs", "upload_excludes")
_LAYERS_WITH_JOBS = ("models", "data")
_INPUT_TYPES = ("file", "folder", "local_glob", "list")
_OUTPUT_TYPES = ("file", "folder", "text")


class Metadata:
    """One file of metadata, and the little that its checks must know of the rest of the bank."""

    def __init__(
        self,
        info: dict[str, Any],
        file: str,
        layer: str,
        folder: Path,
        versions: Mapping[str, Any] | None,
    ) -> None:
        self.info = info
        self.file = file
        self.layer = layer
        self.folder = folder
        self.versions = versions
        self.is_sidecar = ".skill_info." in file

    def problem(self, key: str, message: str) -> Finding:
        return problem(self.file, key, message)

    def note(self, key: str, message: str) -> Finding:
        return note(self.file, key, message)

    @property
    def actions(self) -> dict[str, dict[str, Any]]:
        return {name: declared or {} for name, declared in self.section("actions").items()}

    def section(self, key: str) -> dict[str, Any]:
        return self.info.get(key) or {}


def check_metadata(meta: Metadata) -> Iterator[Finding]:
    """Everything that can be wrong in one file whose lists and mappings are where they must be."""
    yield from _check_identity(meta)
    yield from _check_image(meta, meta.info, "")
    yield from _check_lists(meta)
    for name, declared in meta.actions.items():
        yield from _check_action(meta, name, declared)
    yield from _check_sections_of_actions(meta)


def _check_identity(meta: Metadata) -> Iterator[Finding]:
    name = meta.info.get("name")
    names_folder = meta.layer == "models" and not meta.is_sidecar
    if names_folder and name not in (None, meta.folder.name):
        yield meta.problem("name", f"is {name!r}, but the folder is {meta.folder.name!r}")
    if meta.layer == "models":
        if not isinstance(meta.info.get("network_arch"), str):
            yield meta.problem("network_arch", "is missing: what do the containers call the model?")
        if not meta.actions:
            yield meta.problem("actions", "is empty: there is nothing to run")
    enabled = meta.info.get("automl_enabled")
    if enabled is not None and not isinstance(enabled, (bool, str)):
        yield meta.problem("automl_enabled", f"must be true or false, not {enabled!r}")


def _check_image(meta: Metadata, holder: Mapping[str, Any], prefix: str) -> Iterator[Finding]:
    for key in ("container_image", "image"):
        value = holder.get(key)
        if value is None:
            continue
        where = f"{prefix}{key}"
        if not isinstance(value, str) or not value.strip():
            yield meta.problem(where, f"must be an image or a key, not {value!r}")
        elif not is_absolute(value) and meta.versions is not None:
            try:
                resolve_image(value, meta.versions)
            except TaoError as error:
                yield meta.problem(where, str(error))


def _check_lists(meta: Metadata) -> Iterator[Finding]:
    for index, text in enumerate(meta.info.get("notes") or []):
        if not isinstance(text, str):
            yield meta.problem(
                f"notes[{index}]", f"is not text but {text!r}: a colon needs quotes around it"
            )
    for key in ("required_credentials", "optional_credentials"):
        for index, entry in enumerate(meta.info.get(key) or []):
            name = entry.get("name") if isinstance(entry, dict) else entry
            if not isinstance(name, str) or not name:
                yield meta.problem(
                    f"{key}[{index}]", f"{entry!r} is neither a name nor a mapping with one"
                )


def _check_action(meta: Metadata, name: str, declared: Mapping[str, Any]) -> Iterator[Finding]:
    here = f"actions.{name}"
    if set(declared) == {"description"}:
        yield meta.note(here, "has a description only: it cannot be run as a job")
        return
    needed = _NEEDED if meta.layer in _LAYERS_WITH_JOBS else _NEEDED[:3]
    for key in needed:
        if key not in declared:
            yield meta.problem(f"{here}.{key}", "is missing")
    command = declared.get("command")
    if command is not None and (not isinstance(command, str) or not command.strip()):
        yield meta.problem(f"{here}.command", f"must be a shell command, not {command!r}")
    yield from _check_mode(meta, here, declared)
    yield from _check_image(meta, declared, f"{here}.")
    if meta.layer in _LAYERS_WITH_JOBS and not _has_image(declared, meta.info):
        yield meta.problem(f"{here}.container_image", "is missing, and at the top as well")
    yield from _check_declarations(meta, here, declared)


def _has_image(*holders: Mapping[str, Any]) -> bool:
    return any(holder.get(key) for holder in holders for key in ("container_image", "image"))


def _check_mode(meta: Metadata, here: str, declared: Mapping[str, Any]) -> Iterator[Finding]:
    mode = declared.get("mode")
    command = str(declared.get("command") or "")
    if mode is None:
        yield meta.problem(f"{here}.mode", f"is missing: set it to {' or '.join(MODES)}")
    elif mode not in MODES:
        yield meta.problem(f"{here}.mode", f"{mode!r} is unknown: use {' or '.join(MODES)}")
    elif mode == "config":
        yield from _check_config_mode(meta, here, declared, command)
    elif mode == "args":
        yield from _check_args_mode(meta, here, declared, command)
    elif CONFIG_PATH in command:
        yield meta.problem(f"{here}.command", f"names {CONFIG_PATH}, which passthrough never fills")


def _check_config_mode(
    meta: Metadata, here: str, declared: Mapping[str, Any], command: str
) -> Iterator[Finding]:
    config_format = declared.get("config_format")
    if config_format not in CONFIG_FORMATS:
        choices = " or ".join(CONFIG_FORMATS)
        yield meta.problem(f"{here}.config_format", f"is {config_format!r}: set it to {choices}")
    if command and CONFIG_PATH not in command:
        yield meta.problem(f"{here}.command", f"does not name {CONFIG_PATH}: it finds no spec")
    others = set(_PLACEHOLDER.findall(command)) - {"config_path"}
    if others:
        yield meta.problem(
            f"{here}.command",
            f"names {', '.join(f'{{{word}}}' for word in sorted(others))}, which nothing fills: "
            f"only {CONFIG_PATH} is",
        )


def _check_args_mode(
    meta: Metadata, here: str, declared: Mapping[str, Any], command: str
) -> Iterator[Finding]:
    args = declared.get("args")
    if not isinstance(args, dict) or not args:
        yield meta.problem(f"{here}.args", "is missing: mode args needs a mapping of arguments")
        return
    if CONFIG_PATH in command:
        yield meta.note(
            f"{here}.command",
            f"names {CONFIG_PATH} although the mode is args: the arguments are written as a spec",
        )
    known = {
        name.replace("-", "_")
        for key in ("inputs", "outputs", "defaults")
        for name in declared.get(key) or {}
    }
    for key, text in args.items():
        for placeholder in _PLACEHOLDER.findall(str(text)):
            if placeholder not in known:
                yield meta.problem(
                    f"{here}.args.{key}",
                    f"{{{placeholder}}} is neither an input nor an output nor has it a default",
                )


def _check_declarations(
    meta: Metadata, here: str, declared: Mapping[str, Any]
) -> Iterator[Finding]:
    for what, types in (("inputs", _INPUT_TYPES), ("outputs", _OUTPUT_TYPES)):
        places = declared.get(what) or {}
        for key, options in places.items():
            where = f"{here}.{what}.{key}"
            yield from _check_path(meta, where, key)
            kind = options.get("type") if isinstance(options, dict) else None
            if kind not in types:
                yield meta.problem(f"{where}.type", f"is {kind!r}: use {' or '.join(types)}")
            if isinstance(options, dict) and "selective" in options:
                yield from _check_selective(meta, where, options["selective"], places)
    both = set(declared.get("inputs") or ()) & set(declared.get("outputs") or ())
    for key in sorted(both):
        yield meta.note(f"{here}.inputs.{key}", "is declared as an output, too: it counts as one")


def _check_selective(
    meta: Metadata, where: str, selective: Any, inputs: Mapping[str, Any]
) -> Iterator[Finding]:
    annotation = selective.get("annotation") if isinstance(selective, dict) else None
    if annotation not in inputs:
        yield meta.problem(f"{where}.selective.annotation", f"{annotation!r} is no input")
    if not (isinstance(selective, dict) and selective.get("keys")):
        yield meta.problem(f"{where}.selective.keys", "is missing: which fields hold file names?")


def _check_path(meta: Metadata, where: str, key: Any) -> Iterator[Finding]:
    try:
        parsed(key)
    except TaoError as error:
        yield meta.problem(where, str(error))


def _check_sections_of_actions(meta: Metadata) -> Iterator[Finding]:
    for section in ("data_sources", "spec_params"):
        for action, rules in meta.section(section).items():
            here = f"{section}.{action}"
            if action not in meta.actions:
                yield meta.problem(here, "is for an action that there is not")
            for key, rule in (rules or {}).items():
                yield from _check_path(meta, f"{here}.{key}", key)
                check = _check_source if section == "data_sources" else _check_rule
                yield from check(meta, f"{here}.{key}", rule)
    for section in ("spec_shorthand_keys", "key_defaults"):
        for name, value in meta.section(section).items():
            place = value if section == "spec_shorthand_keys" else name
            yield from _check_path(meta, f"{section}.{name}", place)
    for key in ("gpu_spec_key", "node_spec_key"):
        if meta.info.get(key) is not None:
            yield from _check_path(meta, key, meta.info[key])


def _check_source(meta: Metadata, where: str, rule: Any) -> Iterator[Finding]:
    if not isinstance(rule, dict) or not rule.get("source"):
        yield meta.problem(f"{where}.source", "is missing: which dataset is it below?")
        return
    if not {"path", "path_from_format", "mapping"} & set(rule):
        yield meta.problem(where, "has none of path, path_from_format and mapping")
    by_format = rule.get("path_from_format")
    if by_format is not None and not (isinstance(by_format, dict) and by_format):
        yield meta.problem(f"{where}.path_from_format", "must map formats to files")
    elif by_format and not {"*", meta.info.get("data_format")} & set(by_format):
        yield meta.problem(
            f"{where}.path_from_format",
            f"has neither '*' nor the model's format {meta.info.get('data_format')!r}",
        )


def _check_rule(meta: Metadata, where: str, rule: Any) -> Iterator[Finding]:
    if isinstance(rule, dict):
        if not {"link", "destination_path"} <= set(rule):
            yield meta.problem(where, "a mapping must have link and destination_path")
    elif isinstance(rule, str) and rule not in KNOWN_RULES:
        near = rule.lower().replace("-", "_")
        if near != rule and (near in KNOWN_RULES or near.startswith("create_")):
            yield meta.problem(where, f"{rule!r} would be taken literally: write {near!r}")
