"""Reading the files of a bank. Every complaint names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tao_sdk.plain_data import parse_json, parse_yaml
from tao_sdk.skills.errors import BankNotFoundError, MetadataError
from tao_sdk.skills.shapes import METADATA, misshapen

__all__ = [
    "mapping_at",
    "read_json",
    "read_json_mapping",
    "read_metadata",
    "read_text",
    "read_yaml",
    "read_yaml_mapping",
    "shaped",
]


def read_yaml(path: Path) -> Any:
    """What a YAML file holds."""
    return _parsed(path, parse_yaml, "YAML")


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that must hold a mapping; an empty file is an empty one."""
    return _mapping(path, read_yaml(path))


def read_metadata(path: Path) -> dict[str, Any]:
    """A `skill_info.yaml` or `config.json`."""
    read = read_json_mapping if path.suffix == ".json" else read_yaml_mapping
    return shaped(read(path), METADATA, path)


def read_json(path: Path) -> Any:
    """What a JSON file holds. `Infinity` is a number here, as in the schemas of TAO."""
    return _parsed(path, parse_json, "JSON")


def read_json_mapping(path: Path) -> dict[str, Any]:
    """A JSON file that must hold an object."""
    return _mapping(path, read_json(path))


def shaped(content: dict[str, Any], shape: Any, path: Path) -> dict[str, Any]:
    """The content, if its lists and mappings are where they must be."""
    for key, complaint in misshapen(content, shape):
        raise MetadataError(f"{path}: {key}: {complaint}")
    return content


def mapping_at(content: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    """The mapping below a key; nothing there is an empty one."""
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MetadataError(f"{path}: {key}: expected a mapping, found {type(value).__name__}")
    return value


def _parsed(path: Path, parse: Callable[[str], Any], language: str) -> Any:
    text = read_text(path)
    try:
        return parse(text)
    except ValueError as error:
        raise MetadataError(f"{path} is not valid {language}: {error}") from error


def read_text(path: Path) -> str:
    """A file of text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BankNotFoundError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MetadataError(f"{path} cannot be read: {error}") from error


def _mapping(path: Path, content: Any) -> dict[str, Any]:
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise MetadataError(f"{path}: expected a mapping, found {type(content).__name__}")
    return content
