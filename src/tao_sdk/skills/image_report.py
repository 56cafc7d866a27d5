"""The default image of an action, to be confirmed or overridden before a launch."""

from __future__ import annotations

from typing import Any

from tao_sdk.skills.skill_bank import SkillBank

__all__ = ["OVERRIDE_KEY", "image_report", "image_text"]

OVERRIDE_KEY = "image"


def image_report(bank: SkillBank, model: str, action: str) -> dict[str, Any]:
    """The image, and by which field of which file it is that one."""
    skill = bank.model(model)
    found = bank.find_image(skill.folder, action)
    return {
        "schema_version": 2,
        "requested_model": model,
        "model": skill.folder,
        "network_arch": skill.network_arch,
        "action": action,
        "image": found.image,
        "declared_image": found.declared.value,
        "resolved_from": found.resolved_from,
        "source": found.declared.source,
        "metadata_path": str(found.declared.path),
        "confirmation_required": True,
        "override_key": OVERRIDE_KEY,
    }


def image_text(report: dict[str, Any]) -> str:
    """The same as a list, with the reminder to ask."""
    facts = {
        "Requested model": report["requested_model"],
        "Model": f"{report['model']} ({report['network_arch']})",
        "Action": report["action"],
        "Default image": report["image"],
        "Declared image": report["declared_image"],
        "Source": f"{report['source']} in {report['metadata_path']}",
        "Resolved from": report["resolved_from"],
    }
    lines = [f"- {label}: {value}" for label, value in facts.items()]
    lines.append(f"- Confirm this image, or pass {report['override_key']}=<override>.")
    return "\n".join(lines)
