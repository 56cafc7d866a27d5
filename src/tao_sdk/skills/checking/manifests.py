"""The manifests of a bank against its folders: versions, platforms, models, AutoML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.skills.checking.problems import Finding, note, problem, shape_problems
from tao_sdk.skills.files import read_json_mapping
from tao_sdk.skills.names import folded
from tao_sdk.skills.shapes import AUTOML_SUPPORT, PLATFORMS, SCHEMAS_MANIFEST
from tao_sdk.skills.skill_bank import SkillBank

__all__ = ["check_models_manifest", "check_platform_manifest", "check_versions"]

_FILE = "versions.yaml"


def check_versions(versions: Mapping[str, Any]) -> Iterator[Finding]:
    """Every leaf must be a version."""
    for section in ("images", "wheels"):
        if not isinstance(versions.get(section), dict):
            yield problem(_FILE, section, "is missing: it must be a mapping of keys")
        else:
            yield from _check_leaves(versions[section], section)


def _check_leaves(group: Mapping[str, Any], key: str) -> Iterator[Finding]:
    for name, value in group.items():
        here = f"{key}.{name}"
        if isinstance(value, dict):
            yield from _check_leaves(value, here)
        elif not isinstance(value, str) or not value.strip():
            yield problem(_FILE, here, f"must be a version, not {value!r}")


def _read(path: Path, shape: Any, file: str) -> tuple[dict[str, Any], list[Finding]]:
    try:
        content = read_json_mapping(path)
    except TaoError as error:
        return {}, [problem(file, "", str(error).removeprefix(str(path)).lstrip(": "))]
    return content, shape_problems(content, shape, file)


def check_platform_manifest(bank: SkillBank) -> Iterator[Finding]:
    """Names once only, credentials explained, groups that make sense."""
    path = bank.layer("platform") / "platforms.manifest.json"
    file = path.relative_to(bank.path).as_posix()
    manifest, flaws = _read(path, PLATFORMS, file)
    yield from flaws
    if flaws:
        return
    definitions = manifest.get("credential_definitions") or {}
    owners: dict[str, str] = {}
    for index, record in enumerate(manifest["platforms"]):
        here = f"platforms[{index}]"
        for name in [record["name"], *(record.get("aliases") or [])]:
            owner = owners.setdefault(folded(name), record["name"])
            if owner != record["name"]:
                yield problem(file, here, f"{name!r} is a name of {owner}, too")
        if not record.get("backend_type"):
            yield problem(file, f"{here}.backend_type", "is missing")
        yield from _check_credentials(record, definitions, file, here)


def _check_credentials(
    record: Mapping[str, Any], definitions: Mapping[str, Any], file: str, here: str
) -> Iterator[Finding]:
    for key in ("required_credentials", "optional_credentials"):
        for index, entry in enumerate(record.get(key) or []):
            where = f"{here}.{key}[{index}]"
            if not (entry.get("description") or definitions.get(entry["name"])):
                yield problem(file, where, f"{entry['name']} is explained nowhere")
    for index, group in enumerate(record.get("credential_groups") or []):
        where = f"{here}.credential_groups[{index}]"
        if group.get("preferred") not in (None, *group["require_one_of"]):
            yield problem(
                file, f"{where}.preferred", f"{group['preferred']} is not one of the group"
            )


def check_models_manifest(bank: SkillBank) -> Iterator[Finding]:
    """What the manifests say about models against what the models say themselves."""
    layer = bank.layer("models")
    path = layer / "schemas.manifest.json"
    file = path.relative_to(bank.path).as_posix()
    manifest, flaws = _read(path, SCHEMAS_MANIFEST, file)
    yield from flaws
    if flaws:
        return
    listed: dict[str, Any] = manifest.get("models") or {}
    folders = set(bank.list_models())
    for name, entry in listed.items():
        here = f"models.{name}"
        if name not in folders:
            yield problem(file, here, "there is no such model")
        else:
            yield from _check_listed(bank, name, entry or {}, file)
    for name in sorted(folders - set(listed)):
        yield note(file, "models", f"does not list {name}")
    yield from _check_archs(bank)
    yield from _check_automl_cache(bank, layer)


def _check_listed(
    bank: SkillBank, name: str, entry: Mapping[str, Any], file: str
) -> Iterator[Finding]:
    here = f"models.{name}"
    skill = bank.model(name)
    if entry.get("network_arch") != skill.info.get("network_arch"):
        yield problem(
            file,
            f"{here}.network_arch",
            f"is {entry.get('network_arch')!r}, but the model's is "
            f"{skill.info.get('network_arch')!r}",
        )
    actions, offered = set(entry.get("actions") or []), set(skill.actions())
    if gone := sorted(actions - offered):
        yield problem(file, f"{here}.actions", f"{', '.join(gone)}: the model has no such action")
    if unlisted := sorted(offered - actions):
        yield note(file, f"{here}.actions", f"does not list {', '.join(unlisted)}")
    if entry.get("failures"):
        yield note(file, f"{here}.failures", f"schemas failed: {', '.join(entry['failures'])}")


def _check_archs(bank: SkillBank) -> Iterator[Finding]:
    by_arch: dict[str, list[str]] = {}
    for name in bank.list_models():
        skill = bank.model(name)
        by_arch.setdefault(folded(skill.network_arch), []).append(name)
        for path, info in skill.sidecars:
            if info.get("network_arch") != skill.info.get("network_arch"):
                yield problem(
                    path.relative_to(bank.path).as_posix(),
                    "network_arch",
                    f"is {info.get('network_arch')!r}, but the model's is {skill.network_arch!r}",
                )
    for arch, names in by_arch.items():
        if len(names) > 1:
            folder = bank.layer("models").relative_to(bank.path).as_posix()
            yield note(folder, "network_arch", f"{arch} is the name of {' and '.join(names)}")


def _check_automl_cache(bank: SkillBank, layer: Path) -> Iterator[Finding]:
    path = layer / "automl_support.json"
    if not path.is_file():
        return
    file = path.relative_to(bank.path).as_posix()
    cache, flaws = _read(path, AUTOML_SUPPORT, file)
    yield from flaws
    if flaws:
        return
    folders = set(bank.list_models())
    for index, entry in enumerate(cache.get("supported") or []):
        name = entry["model"]
        if name not in folders:
            yield problem(file, f"supported[{index}].model", f"there is no model {name!r}")
            continue
        try:
            actions = bank.model(name).schema_manifest.get("actions") or {}
        except TaoError:
            continue  # told where the schemas are checked
        train = actions.get("train") or {}
        current = train.get("automl_default_parameters")
        key = "automl_default_parameters"
        if current is not None and set(current) != set(entry.get(key) or []):
            yield note(
                file, f"supported[{index}].{key}", f"is older than the schemas of {name}: not used"
            )
