"""Which image an action runs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.skills.errors import MetadataError
from tao_sdk.skills.model_skill import ActionMetadata, ModelSkill
from tao_sdk.versions import load_manifest, resolve_image

__all__ = ["DeclaredImage", "ResolvedImage", "declared_image", "resolve_declared"]


@dataclass(frozen=True)
class DeclaredImage:
    """An image or a key of `versions.yaml`, and which field of which file said so."""

    value: str
    source: str
    path: Path


@dataclass(frozen=True)
class ResolvedImage:
    """An image that can be pulled."""

    image: str
    declared: DeclaredImage
    resolved_from: str
    """`absolute` or `versions.yaml`."""


def declared_image(skill: ModelSkill, action: ActionMetadata) -> DeclaredImage:
    """The first of four fields that is not blank: the action's own come before the model's."""
    for owner, values in (("action", action.declared), ("model", action.info)):
        for key in ("container_image", "image"):
            value = values.get(key)
            if isinstance(value, str) and value.strip():
                return DeclaredImage(value.strip(), f"{owner}.{key}", action.path)
    raise MetadataError(
        f"{action.path}: no image for {skill.folder} {action.name}: set container_image "
        f"at the top or in actions.{action.name}"
    )


def is_absolute(value: str) -> bool:
    """Whether an image can be pulled by this name; otherwise it is a key."""
    return "/" in value or ":" in value


def resolve_declared(
    declared: DeclaredImage, bank: Path, manifest: Mapping[str, Any] | None = None
) -> ResolvedImage:
    """The image itself. A key that leads nowhere is an error: it could never be pulled."""
    if is_absolute(declared.value):
        return ResolvedImage(declared.value, declared, "absolute")
    try:
        versions = load_manifest(bank / "versions.yaml") if manifest is None else manifest
        image = resolve_image(declared.value, versions)
    except TaoError as error:
        key = declared.source.partition(".")[2]
        raise MetadataError(f"{declared.path}: {key}: {error}") from error
    return ResolvedImage(image, declared, "versions.yaml")
