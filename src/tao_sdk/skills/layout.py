"""Where a bank is and how its folders are arranged.

| layout | models | platforms |
|---|---|---|
| nested | `skills/models/<skill>` | `skills/platform/<skill>` |
| flat | `skills/<skill>` | `skills/<skill>` |
| old | `models/<arch>` | `platform/<name>` |
"""

from __future__ import annotations

from pathlib import Path

from tao_sdk import settings
from tao_sdk.skills.errors import BankNotFoundError

__all__ = [
    "LAYERS",
    "PACKAGED_BANK",
    "layer_folder",
    "layout_of",
    "locate_bank",
    "metadata_file",
    "skill_folders",
]

PACKAGED_BANK = Path(__file__).parent / "bank"
LAYERS = ("models", "platform", "data", "applications", "core")

_METADATA = ("references/skill_info.yaml", "config.json", "references/config.json")


def locate_bank(path: str | Path | None = None, *, fallback: Path = PACKAGED_BANK) -> Path:
    """The folder named, else `$TAO_SKILL_BANK_PATH`, the usual place at home, the `fallback`."""
    if path is not None:
        return _existing(path, f"{path} is not a folder: give the root of a skill bank")
    if named := settings.lookup("TAO_SKILL_BANK_PATH"):
        return _existing(
            named, f"TAO_SKILL_BANK_PATH={named} is not a folder: correct the variable or unset it"
        )
    usual = settings.expanded(settings.SETTINGS["TAO_SKILL_BANK_PATH"].default)
    return usual if usual.is_dir() else fallback


def layout_of(root: Path) -> str:
    """`nested`, `flat` or `old`, looked for in this order."""
    if _has_layer(root / "skills"):
        return "nested"
    if (root / "skills").is_dir():
        return "flat"
    if _has_layer(root):
        return "old"
    raise BankNotFoundError(
        f"{root} is not a skill bank: it has neither skills/models, nor skills, nor models"
    )


def layer_folder(root: Path, layout: str, layer: str) -> Path:
    """Where the skills of a layer, and the manifests of the layer, are."""
    return {"nested": root / "skills" / layer, "flat": root / "skills", "old": root / layer}[layout]


def skill_folders(root: Path, layout: str, layer: str) -> list[Path]:
    """The folders that may be skills of this layer; in a flat bank those of every layer."""
    folder = layer_folder(root, layout, layer)
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")


def metadata_file(skill: Path) -> Path | None:
    """The file that describes a skill: `skill_info.yaml` before the older `config.json`."""
    return next((skill / name for name in _METADATA if (skill / name).is_file()), None)


def _has_layer(folder: Path) -> bool:
    return any((folder / layer).is_dir() for layer in ("models", "platform"))


def _existing(path: str | Path, complaint: str) -> Path:
    folder = settings.expanded(path).absolute()
    if not folder.is_dir():
        raise BankNotFoundError(complaint)
    return folder
