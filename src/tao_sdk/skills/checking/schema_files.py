"""The schemas and templates of a model: do they say what is true, and the same?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.skills.checking.problems import Finding, note, problem, shape_problems
from tao_sdk.skills.conditions import parse_condition
from tao_sdk.skills.files import read_json_mapping, read_yaml_mapping
from tao_sdk.skills.model_skill import ActionMetadata, ModelSkill
from tao_sdk.skills.overrides import known_keys
from tao_sdk.skills.schema_validation import ACTION_WORDS, TYPES, validate_spec
from tao_sdk.skills.shapes import SCHEMA, SCHEMA_MANIFEST

__all__ = ["check_schemas", "check_templates"]

_SUFFIX = ".schema.json"
_BOOKKEEPING = ("automl_default_parameters", "automl_disabled_parameters")
"""Lists that generated schemas keep among the properties, where they describe no value."""


def check_schemas(skill: ModelSkill, root: Path) -> Iterator[Finding]:
    """Every schema by itself, and the model's manifest of them."""
    folder = skill.path / "schemas"
    found = sorted(folder.glob(f"*{_SUFFIX}"))
    yield from _merged(flaw for path in found for flaw in _check_schema(path, root))
    manifest_path = folder / "manifest.json"
    if found and not manifest_path.is_file():
        yield note(_relative(manifest_path, root), "", "is missing though there are schemas")
    if manifest_path.is_file():
        yield from _check_manifest(skill, manifest_path, {_action(path) for path in found}, root)


def check_templates(skill: ModelSkill, root: Path) -> Iterator[Finding]:
    """Every template: is it there, does it fit its schema and the metadata?"""
    broken: dict[tuple[str, str], list[str]] = {}
    for deploy in (False, True):
        for action in skill.actions(deploy=deploy).values():
            if action.is_deploy is not deploy:
                continue  # of the main file only what is in it; sidecars come in the next round
            variants: list[str | None] = [*skill.variants(action)]
            for variant in variants or [None]:
                yield from _check_template(skill, action, variant, root, broken)
    for (key, message), actions in broken.items():
        file = _relative(skill.schema_path(actions[0]), root)
        more = f" (also {', '.join(actions[1:])})" if len(actions) > 1 else ""
        yield note(file, key, f"the default breaks its own rule: {message}{more}")


def _merged(flaws: Iterable[Finding]) -> Iterator[Finding]:
    """The schemas of a model have much in common: a flaw of several is told once."""
    files: dict[Finding, list[str]] = {}
    for flaw in flaws:
        files.setdefault(flaw._replace(file=""), []).append(flaw.file)
    for flaw, [first, *others] in files.items():
        also = f" (also {', '.join(_action(Path(file)) for file in others)})" if others else ""
        yield flaw._replace(file=first, message=flaw.message + also)


def _check_schema(path: Path, root: Path) -> Iterator[Finding]:
    file = _relative(path, root)
    try:
        schema = read_json_mapping(path)
    except TaoError as error:
        yield problem(file, "", _without_path(error, path))
        return
    flaws = shape_problems(schema, SCHEMA, file)
    yield from flaws
    if flaws:
        return
    if schema.get("type", "object") != "object":
        yield problem(file, "type", f"is {schema.get('type')!r}: a spec is an object")
    if not isinstance(schema.get("properties"), dict):
        yield problem(file, "properties", "is missing: the schema allows nothing")
        return
    yield from _check_action_name(schema, path, file)
    strange = [
        name
        for name in schema.get("required") or []
        if name in ACTION_WORDS and name != _action(path).removeprefix("segment_")
    ]
    if strange:
        yield note(
            file,
            "required",
            f"names {', '.join(strange)}, a section of another action: not demanded",
        )
    yield from _check_node(schema, file, "")


def _check_action_name(schema: Mapping[str, Any], path: Path, file: str) -> Iterator[Finding]:
    about = schema.get("x_tao_schema")
    if isinstance(about, dict) and about.get("action") not in (None, _action(path)):
        yield problem(file, "x_tao_schema.action", f"is {about['action']!r}, not the file's name")


def _check_node(node: Mapping[str, Any], file: str, key: str) -> Iterator[Finding]:
    kind = node.get("type")
    if kind is not None and kind not in TYPES:
        yield problem(file, _join(key, "type"), f"{kind!r} is no type that we know")
    low, high = node.get("minimum"), node.get("maximum")
    if _number(low) and _number(high) and low > high:  # type: ignore[operator]  # both numbers
        yield problem(file, _join(key, "minimum"), f"{low} is above the maximum {high}")
    allowed = node.get("enum")
    if allowed is not None and not allowed:
        yield problem(file, _join(key, "enum"), f"must be a list of choices, not {allowed!r}")
    yield from _check_condition(node, file, key)
    properties = node.get("properties")
    if properties is None:
        return
    missing = [name for name in node.get("required") or [] if name not in properties]
    if missing:
        yield problem(file, _join(key, "required"), f"names {', '.join(missing)}: no such property")
    for name, child in properties.items():
        if isinstance(child, dict):
            yield from _check_node(child, file, _join(key, name))
        elif name not in _BOOKKEEPING:
            yield problem(file, _join(key, name), "is not the description of a value")


def _check_condition(node: Mapping[str, Any], file: str, key: str) -> Iterator[Finding]:
    condition, pattern = node.get("math_cond"), node.get("pattern")
    if condition is not None:
        try:
            pieces = parse_condition(str(condition))
        except TaoError as error:
            yield problem(file, _join(key, "math_cond"), str(error))
        else:
            if ("depends_on" in dict(pieces).values()) and not node.get("depends_on"):
                yield problem(file, _join(key, "depends_on"), "is missing: math_cond needs it")
    if pattern is not None:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            yield problem(file, _join(key, "pattern"), f"{pattern!r} is no pattern: {error}")


def _check_manifest(
    skill: ModelSkill, path: Path, packaged: set[str], root: Path
) -> Iterator[Finding]:
    file = _relative(path, root)
    try:
        manifest = read_json_mapping(path)
    except TaoError as error:
        yield problem(file, "", _without_path(error, path))
        return
    if manifest.get("network_arch") != skill.info.get("network_arch"):
        yield problem(
            file,
            "network_arch",
            f"is {manifest.get('network_arch')!r}, but the model's is "
            f"{skill.info.get('network_arch')!r}",
        )
    flaws = shape_problems(manifest, SCHEMA_MANIFEST, file)
    yield from flaws
    if flaws:
        return
    actions = manifest.get("actions") or {}
    for name, entry in actions.items():
        for key in ("path", "spec_template"):
            named = (entry or {}).get(key)
            if named and not (skill.path / named).is_file():
                yield problem(file, f"actions.{name}.{key}", f"there is no file {named}")
    unlisted = sorted(packaged - set(actions))
    if unlisted:
        yield note(
            file, "actions", f"does not list {', '.join(unlisted)}, though there are schemas"
        )


def _check_template(
    skill: ModelSkill,
    action: ActionMetadata,
    variant: str | None,
    root: Path,
    broken: dict[tuple[str, str], list[str]],
) -> Iterator[Finding]:
    file = _relative(action.path, root)
    try:
        path = skill.template_path(action, variant)
    except TaoError as error:
        message = _without_path(error, action.path)
        yield problem(file, *_split_key(message, f"spec_templates.{action.name}"))
        return
    if path is None:
        if action.declared.get("mode") == "config":
            yield note(file, f"actions.{action.name}", "has no template: its spec starts empty")
        return
    try:
        spec = read_yaml_mapping(path)
    except TaoError as error:
        yield problem(_relative(path, root), "", _without_path(error, path))
        return
    try:
        schema = skill.schema(action)
    except TaoError:
        return  # told where the schemas are checked
    yield from _check_places(action, spec, schema, path, root)
    if schema is not None:
        for flaw in validate_spec(spec, schema, action.name.removeprefix("segment_")):
            actions = broken.setdefault((flaw.path, flaw.message), [])
            if action.name not in actions:
                actions.append(action.name)


def _check_places(
    action: ActionMetadata,
    spec: dict[str, Any],
    schema: Mapping[str, Any] | None,
    path: Path,
    root: Path,
) -> Iterator[Finding]:
    """A declared place that the spec lacks counts as not set; a typing error looks the same."""
    known = known_keys(spec, schema)
    file = _relative(action.path, root)
    optional = {
        key for key, options in action.mapping("inputs").items() if (options or {}).get("optional")
    }
    for what in ("inputs", "outputs"):
        for key in action.mapping(what):
            # What is written below a list or at the top of a spec need not be there before.
            needed = key not in optional and (what == "inputs" or "." in key)
            if needed and key.partition("[")[0] not in known:
                where = f"actions.{action.name}.{what}.{key}"
                yield note(file, where, f"is not in {path.name}: taken as not set")
    gpu_key = action.info.get("gpu_spec_key")
    if action.name == "train" and isinstance(gpu_key, str) and gpu_key not in known:
        yield problem(file, "gpu_spec_key", f"{gpu_key} is not in the spec of train")


def has_infinity(path: Path) -> bool:
    """Whether a JSON file has a number that strict parsers refuse."""
    found: list[str] = []
    try:
        json.loads(path.read_text(encoding="utf-8"), parse_constant=found.append)
    except (OSError, ValueError, RecursionError):
        return False  # told elsewhere, if it is a file that we read
    return bool(found)


def _split_key(message: str, default: str) -> tuple[str, str]:
    key, colon, rest = message.partition(": ")
    return (key, rest) if colon and " " not in key else (default, message)


def _without_path(error: TaoError, path: Path) -> str:
    return str(error).removeprefix(f"{path}").lstrip(": ")


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _action(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX)


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
