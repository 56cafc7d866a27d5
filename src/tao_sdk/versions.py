"""Image and wheel keys: short dotted names that `versions.yaml` turns into exact versions.

Where the file is looked for, first hit wins: the path given, `$TAO_VERSIONS_FILE`,
`./versions.yaml`, `$TAO_SKILL_BANK_PATH/versions.yaml`, the bank's usual place in the home
folder, the bank packaged with the SDK.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import TaoError, ValidationError
from tao_sdk.plain_data import parse_yaml

__all__ = [
    "KeyNotFoundError",
    "ManifestNotFoundError",
    "ManifestShapeError",
    "load_manifest",
    "looks_like_key",
    "resolve_container_image",
    "resolve_image",
    "resolve_wheel",
]

_FILE_NAME = "versions.yaml"
_PACKAGED_BANK = Path(__file__).parent / "skills" / "bank"

# Two or more words joined by dots. Each begins with a letter, so that a plain image called
# `python3.11` is not taken for a key.
_DOTTED_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z][A-Za-z0-9_-]*)+")

_Fingerprint = tuple[int, int, int]
_parsed: dict[Path, tuple[_Fingerprint, dict[str, Any]]] = {}


class ManifestNotFoundError(TaoError, FileNotFoundError):
    """There is no versions.yaml where one was asked for, or anywhere."""


class KeyNotFoundError(TaoError, KeyError):
    """The manifest has no such key."""


class ManifestShapeError(ValidationError, TypeError):
    """The key leads to something that is not a version: a group, a number, nothing."""


def load_manifest(path: str | Path | None = None) -> dict[str, Any]:
    """The parsed versions.yaml. Edits of the file are seen; the answer is yours to change."""
    if path is None:
        found = _discover()
        if found is None:
            tried = "\n".join(f"  {candidate}" for candidate in _candidates())
            raise ManifestNotFoundError(
                f"no {_FILE_NAME} was found; looked for:\n{tried}\n"
                "set TAO_VERSIONS_FILE to the file, or TAO_SKILL_BANK_PATH to its folder"
            )
    else:
        found = settings.expanded(path)
        if not found.is_file():
            raise ManifestNotFoundError(f"{found} is not a file: give the path of a {_FILE_NAME}")
    return _load(found)


def looks_like_key(value: object) -> bool:
    """Whether a value is clearly meant as a key: dotted words, such as `tao_toolkit.pyt`."""
    return isinstance(value, str) and _DOTTED_KEY.fullmatch(value) is not None


def resolve_image(key: str, manifest: Mapping[str, Any] | None = None) -> str:
    """The image that a key stands for."""
    return _resolve("images", key, load_manifest() if manifest is None else manifest)


def resolve_wheel(key: str, manifest: Mapping[str, Any] | None = None) -> str:
    """The Python requirement that a key stands for."""
    return _resolve("wheels", key, load_manifest() if manifest is None else manifest)


def resolve_container_image(value: str, manifest: Mapping[str, Any] | None = None) -> str:
    """The image for a key; anything that is an image already is returned as it is.

    A name with `/` or `:` is an image. A single word (`ubuntu`) is a key only if the manifest
    has it. Dotted words must be a key: a typing error shall not become a failed image pull.
    """
    if not value or "/" in value or ":" in value:
        return value
    if manifest is None:
        found = _discover()
        if found is None and not looks_like_key(value):
            return value
        manifest = load_manifest() if found is None else _load(found)
    if looks_like_key(value) or value in _section(manifest, "images"):
        return _resolve("images", value, manifest)
    return value


# -- finding and reading the file


def _candidates() -> Iterator[Path]:
    """Where a manifest may be, except for `$TAO_VERSIONS_FILE`, which must be one."""
    yield Path.cwd() / _FILE_NAME
    if bank := settings.lookup("TAO_SKILL_BANK_PATH"):
        yield settings.expanded(bank) / _FILE_NAME
    yield settings.expanded(settings.SETTINGS["TAO_SKILL_BANK_PATH"].default) / _FILE_NAME
    yield _PACKAGED_BANK / _FILE_NAME


def _discover() -> Path | None:
    if named := settings.lookup("TAO_VERSIONS_FILE"):
        path = settings.expanded(named)
        if not path.is_file():
            raise ManifestNotFoundError(
                f"TAO_VERSIONS_FILE={named} is not a file: correct the variable or unset it"
            )
        return path
    return next((path for path in _candidates() if path.is_file()), None)


def _load(path: Path) -> dict[str, Any]:
    path = path.resolve()
    stat = path.stat()
    fingerprint = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    known = _parsed.get(path)
    if known is None or known[0] != fingerprint:
        known = (fingerprint, _parse(path))
        _parsed[path] = known
    return copy.deepcopy(known[1])


def _parse(path: Path) -> dict[str, Any]:
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise ValidationError(f"{path} is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValidationError(
            f"{path}: expected a mapping with 'images' and 'wheels' at the top, "
            f"found {type(content).__name__}"
        )
    return content


# -- walking the manifest


def _section(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = manifest.get(name)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise ManifestShapeError(f"{name!r} in {_FILE_NAME} must be a mapping of keys")
    return section


def _resolve(section_name: str, key: str, manifest: Mapping[str, Any]) -> str:
    section = _section(manifest, section_name)
    value: Any = section
    walked: list[str] = []
    for part in key.split("."):
        if not isinstance(value, Mapping):
            raise ManifestShapeError(
                f"{section_name} key {key!r}: {'.'.join(walked)!r} in {_FILE_NAME} is "
                "a version already, not a group of keys"
            )
        if part not in value:
            raise KeyNotFoundError(_no_such_key(section_name, key, section))
        value = value[part]
        walked.append(part)
    if isinstance(value, Mapping):
        members = ", ".join(f"{key}.{name}" for name in sorted(map(str, value)))
        raise ManifestShapeError(f"{section_name} key {key!r} is a group: choose one of {members}")
    if not isinstance(value, str) or not value.strip():
        raise ManifestShapeError(
            f"{section_name} key {key!r} in {_FILE_NAME} must be a non-empty text, not {value!r}"
        )
    return value


def _no_such_key(section_name: str, key: str, section: Mapping[str, Any]) -> str:
    known = sorted(_leaf_keys(section))
    message = f"{_FILE_NAME} has no {section_name} key {key!r}"
    if close := difflib.get_close_matches(key.replace("-", "_"), known, n=3):
        message += f"; did you mean {' or '.join(map(repr, close))}?"
    elif known:
        message += f"; it has {', '.join(known)}"
    if section_name == "images":
        message += f" (an image of that name is written with its tag: {key}:latest)"
    return message


def _leaf_keys(group: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in group.items():
        if isinstance(value, Mapping):
            yield from _leaf_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
