"""What a person sees of a launch: the review, a closed gate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tao_sdk.cli.asking import hanging, styled
from tao_sdk.cli.output import Output
from tao_sdk.launch import Gate, LaunchPlan
from tao_sdk.launch.review import review_facts, review_json
from tao_sdk.visible_text import visible

_LABEL_WIDTH = 12


def show_review(out: Output, plan: LaunchPlan, warnings: Iterable[str]) -> None:
    """The launch at a glance, with the warnings of the platform's plan."""
    out.say(f"\n{styled('Launch review', bold=True)}", exact=True)
    for label, value in (*review_facts(plan), *(("note", text) for text in warnings)):
        begin = f"  {label:<{_LABEL_WIDTH}}"
        text = hanging(begin, value)
        out.say(styled(begin, dim=True) + visible(text[len(begin) :]), exact=True)


def show_closed_gate(out: Output, gate: Gate) -> None:
    """Which conditions do not hold, and why."""
    lines = ["not launched, and nothing was created:"]
    for condition in gate.closed():
        begin = f"  {condition.id} ({condition.state}): "
        lines.append(hanging(begin, condition.reason, indent=4))
    out.warn("\n".join(lines))


def gate_document(gate: Gate) -> dict[str, Any]:
    """The gate for programs: its conditions, missing input, findings."""
    plan = gate.plan
    return {
        "open": gate.is_open,
        "model": plan.facts.skill.folder,
        "action": plan.action,
        "platform": plan.facts.platform_name,
        "conditions": gate.as_json(),
        "missing": [question.as_json() for question in gate.questions],
        "checks": [check.as_json() for check in gate.report.checks] if gate.report else [],
        "review": review_json(plan),
        "prompt": plan.prompt(),
    }
