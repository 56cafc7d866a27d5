"""A launch at a glance, before anything exists: what would run, where, on what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tao_sdk.launch.plan import LaunchPlan

__all__ = ["review_facts", "review_json"]


def review_facts(plan: LaunchPlan) -> Iterator[tuple[str, str]]:
    """Label and value; "" continues the label above."""
    facts = plan.facts
    yield "model", f"{facts.skill.folder} ({facts.network})"
    yield "action", plan.action
    yield "platform", f"{facts.platform_name} ({(facts.platform or {}).get('display_name', '')})"
    yield "image", facts.image if facts.uses_images else f"{facts.image} (not used here)"
    yield from _listed("data", [f"{key}={path}" for key, path in facts.paths.items()])
    yield from _listed("changes", [f"{key}={value}" for key, value in _changes(plan).items()])
    yield "compute", _compute(facts.compute.gpus, facts.nodes)
    yield from _listed("mounts", _mounts(plan))
    if plan.results:
        yield "results", plan.results
    yield "credentials", _credentials(plan)
    if plan.env_vars:
        yield "environment", ", ".join(plan.env_vars)
    yield "monitoring", _monitoring(plan)
    if facts.automl.notice:
        yield "automl", facts.automl.notice
    yield from _listed("note", [*facts.made.notes, *facts.compute.conflicts])


def review_json(plan: LaunchPlan) -> dict[str, Any]:
    """The same for programs."""
    facts = plan.facts
    return {
        "model": facts.skill.folder,
        "network_arch": facts.network,
        "action": plan.action,
        "platform": facts.platform_name,
        "image": facts.image,
        "data": dict(facts.paths),
        "changes": _changes(plan),
        "gpu_count": facts.compute.gpus,
        "num_nodes": facts.nodes,
        "mounts": _mounts(plan),
        "results": plan.results,
        "credentials": {one.name: one.present for one in facts.credentials},
        "env_names": sorted(plan.env_vars),
        "long_running_enabled": facts.monitor,
        "status_interval_minutes": facts.status_interval_minutes,
        "automl": {
            "policy": facts.automl.policy,
            "recommended": facts.automl.recommended,
            "notice": facts.automl.notice,
            "reason": facts.automl.reason,
        },
        "notes": [*facts.made.notes, *facts.compute.conflicts],
    }


def _changes(plan: LaunchPlan) -> dict[str, Any]:
    """What was set in the spec beside the data."""
    return {key: value for key, value in plan.specs.items() if key not in plan.facts.paths}


def _mounts(plan: LaunchPlan) -> list[str]:
    return [
        f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"
        for mount in plan.facts.mounts
    ]


def _listed(label: str, values: list[str]) -> Iterator[tuple[str, str]]:
    for number, value in enumerate(values):
        yield ("" if number else label), value


def _compute(gpus: int | None, nodes: int) -> str:
    amount = f"{gpus} GPU{'' if gpus == 1 else 's'}"
    return f"{amount} on each of {nodes} nodes" if nodes > 1 else f"{amount} on 1 node"


def _credentials(plan: LaunchPlan) -> str:
    names = [credential.name for credential in plan.facts.credentials]
    return f"{', '.join(names)} (set)" if names else "none are needed"


def _monitoring(plan: LaunchPlan) -> str:
    facts = plan.facts
    if not facts.monitor:
        return "off: you get the job's id and the way back"
    minutes = f"{facts.status_interval_minutes:g}"
    return f"a report every {minutes} minute{'' if minutes == '1' else 's'} until the job has ended"
