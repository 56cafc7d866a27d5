"""The platforms that a bank offers. The manifest is the only source; folders are never scanned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tao_sdk.skills.errors import MissingNameError
from tao_sdk.skills.files import read_json_mapping, shaped
from tao_sdk.skills.names import likely, same_name
from tao_sdk.skills.shapes import PLATFORMS
from tao_sdk.skills.skill_bank import SkillBank

__all__ = [
    "describe_platform",
    "find_platform",
    "list_platforms",
    "platform_manifest",
    "platform_text",
    "platforms_text",
    "prompt_defaults",
]

_CREDENTIAL_LISTS = ("required_credentials", "credential_groups", "optional_credentials")


def platform_manifest(bank: SkillBank) -> dict[str, Any]:
    """The manifest of platforms, as it is."""
    path = bank.layer("platform") / "platforms.manifest.json"
    return shaped(read_json_mapping(path), PLATFORMS, path)


def prompt_defaults(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """How jobs are watched unless the user says otherwise."""
    return {
        "long_running_enabled": manifest.get("default_long_running_enabled", True),
        "status_interval_minutes": manifest.get("default_status_interval_minutes", 5),
    }


def list_platforms(bank: SkillBank) -> dict[str, Any]:
    """Every platform and the defaults of monitoring."""
    manifest = platform_manifest(bank)
    return {
        "schema_version": manifest.get("schema_version"),
        "prompt_defaults": prompt_defaults(manifest),
        "platforms": manifest["platforms"],
    }


def find_platform(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The record of a platform, by name or alias."""
    records: list[dict[str, Any]] = manifest["platforms"]
    for record in records:
        if any(same_name(name, called) for called in _names(record)):
            return record
    supported = [record["name"] for record in records]
    known = [called for record in records for called in _names(record)]
    meant = likely(name, known)
    hint = f" ({meant})" if meant else ""
    raise MissingNameError(f"no platform {name.strip()!r}{hint}; supported: {', '.join(supported)}")


def describe_platform(bank: SkillBank, name: str) -> dict[str, Any]:
    """What one platform needs; credentials with what they are for and how to get them."""
    manifest = platform_manifest(bank)
    record = find_platform(manifest, name)
    definitions = manifest.get("credential_definitions") or {}
    described: dict[str, Any] = {
        "platform": record["name"],
        "display_name": record.get("display_name", record["name"]),
    }
    for key in _CREDENTIAL_LISTS:
        described[key] = [_enriched(entry, definitions) for entry in record.get(key) or []]
    described["resource_defaults"] = record.get("resource_defaults") or {}
    described["storage"] = record.get("storage") or {}
    described["dataset_examples"] = record.get("dataset_examples") or []
    described["preflight_checks"] = record.get("preflight_checks") or []
    return described


def platforms_text(bank: SkillBank) -> str:
    """The platforms as a list for a person or an agent to choose from."""
    listed = list_platforms(bank)
    lines = ["Platforms:"]
    for record in listed["platforms"]:
        display = f" ({record['display_name']})" if record.get("display_name") else ""
        description = f": {record['description']}" if record.get("description") else ""
        aliases = f" Aliases: {', '.join(record['aliases'])}." if record.get("aliases") else ""
        lines.append(f"- {record['name']}{display}{description}{aliases}")
    lines += ["", "Monitoring defaults:"]
    lines += [f"- {key}: {_shown(value)}" for key, value in listed["prompt_defaults"].items()]
    return "\n".join(lines)


def platform_text(bank: SkillBank, name: str) -> str:
    """What one platform needs, section by section."""
    described = describe_platform(bank, name)
    return "\n".join(_platform_lines(described))


def _platform_lines(described: Mapping[str, Any]) -> Iterator[str]:
    yield f"Platform: {described['platform']} ({described['display_name']})"
    yield from _section(
        "Required credentials", map(_credential_line, described["required_credentials"]), "None"
    )
    yield from _section(
        "Required credential groups", map(_group_line, described["credential_groups"])
    )
    yield from _section(
        "Optional credentials (do not ask for these at intake; only when their condition applies)",
        map(_credential_line, described["optional_credentials"]),
        "None",
    )
    defaults = described["resource_defaults"].items()
    yield from _section("Resource defaults", (f"{key}: {_shown(value)}" for key, value in defaults))
    storage = described["storage"]
    labels = {"protocol": "Protocol", "uri_format": "URI format"}
    yield from _section(
        "Storage", (f"{label}: {storage[key]}" for key, label in labels.items() if key in storage)
    )
    yield from _section("Dataset examples", map(str, described["dataset_examples"]))
    yield from _section("Preflight checks", map(str, described["preflight_checks"]))


def _section(heading: str, entries: Iterator[str], when_empty: str = "") -> Iterator[str]:
    lines = list(entries) or ([when_empty] if when_empty else [])
    if lines:
        yield ""
        yield f"{heading}:"
        yield from (f"- {line}" for line in lines)


def _credential_line(credential: Mapping[str, Any]) -> str:
    condition = f" ({credential['only_when']})" if credential.get("only_when") else ""
    return f"{credential['name']}{condition}{_purpose(credential)}"


def _group_line(group: Mapping[str, Any]) -> str:
    preferred = group.get("preferred")
    wanted = (
        f"{preferred} preferred" if preferred else f"one of [{', '.join(group['require_one_of'])}]"
    )
    return f"{group['name']}: {wanted}{_purpose(group)}"


def _purpose(entry: Mapping[str, Any]) -> str:
    told = [
        str(entry.get("description") or ""),
        f"How to get it: {entry['how_to_get']}" if entry.get("how_to_get") else "",
    ]
    text = " ".join(filter(None, told))
    return f" - {text}" if text else ""


def _enriched(entry: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest says once for all platforms, unless the record says it itself."""
    known = definitions.get(str(entry.get("preferred") or entry.get("name"))) or {}
    common = {key: known[key] for key in ("description", "how_to_get") if known.get(key)}
    return {**common, **{key: value for key, value in entry.items() if value != ""}}


def _names(record: Mapping[str, Any]) -> list[str]:
    return [record["name"], *(record.get("aliases") or [])]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
