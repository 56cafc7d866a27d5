"""The gate: seven conditions, and nothing is created before all of them hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tao_sdk.errors import TaoError
from tao_sdk.launch.credentials import MODEL, PLATFORM
from tao_sdk.launch.facts import Facts
from tao_sdk.launch.plan import LaunchPlan
from tao_sdk.launch.questions import Question
from tao_sdk.preflight.checks import Check
from tao_sdk.preflight.engine import PreflightReport, run_preflight
from tao_sdk.preflight.flags import LAUNCH
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.skills import SkillBank

__all__ = [
    "CONDITIONS",
    "Condition",
    "Gate",
    "GateClosedError",
    "examine",
    "inputs_gate",
    "preflight_request",
]

HOLDS, MISSING, FAILED, UNCHECKED = "holds", "missing", "failed", "unchecked"

CONDITIONS = {
    "platform": "the platform is chosen from the bank's list",
    "platform_credentials": "the platform's credentials are set, one of each group",
    "model_credentials": "the model's credentials are set",
    "image": "the image was shown, and confirmed or replaced",
    "access": "the platform can be reached from here",
    "datasets": "every dataset has a spec key and was seen from the platform",
    "compute": "GPUs and nodes are known",
}

_ABOUT_DATA = ("path:", "fields:", "batch:")
"""How the names of checks begin that look at a dataset; the rest is about the platform."""

Preflight = Callable[
    [PreflightRequest, SkillBank, "Callable[[Check], None] | None"], PreflightReport
]


@dataclass(frozen=True)
class Condition:
    """One of the seven."""

    id: str
    state: str
    """holds, missing (ask for it), failed (looked at, and wrong), unchecked (others come first)."""
    reason: str

    @property
    def title(self) -> str:
        return CONDITIONS[self.id]

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "title": self.title, "state": self.state, "reason": self.reason}


@dataclass(frozen=True)
class Gate:
    """All seven, for one plan."""

    plan: LaunchPlan
    conditions: tuple[Condition, ...]
    questions: tuple[Question, ...]
    report: PreflightReport | None = None

    @property
    def is_open(self) -> bool:
        return all(condition.state == HOLDS for condition in self.conditions)

    @property
    def needs_input(self) -> bool:
        """Whether answers are what is missing: otherwise something is wrong."""
        return any(question.required for question in self.questions)

    @property
    def is_plannable(self) -> bool:
        """Everything is known that a plan needs; whether it would work was not looked at."""
        return all(condition.state in (HOLDS, UNCHECKED) for condition in self.conditions)

    def closed(self) -> list[Condition]:
        return [condition for condition in self.conditions if condition.state != HOLDS]

    def as_json(self) -> list[dict[str, Any]]:
        return [condition.as_json() for condition in self.conditions]


class GateClosedError(TaoError):
    """A launch is not ready. Nothing was created; `gate` says what is missing or wrong."""

    def __init__(self, gate: Gate) -> None:
        reasons = [f"{condition.id}: {condition.reason}" for condition in gate.closed()]
        super().__init__(f"not ready to launch; nothing was created ({'; '.join(reasons)})")
        self.gate = gate


def inputs_gate(plan: LaunchPlan) -> Gate:
    """The gate as far as it can be told without asking the platform."""
    return _gate(plan, None)


def examine(
    plan: LaunchPlan,
    *,
    preflight: Preflight = run_preflight,
    on_check: Callable[[Check], None] | None = None,
) -> Gate:
    """The whole gate. The platform is asked only once everything is known."""
    gate = inputs_gate(plan)
    if not gate.is_plannable:
        return gate
    return _gate(plan, preflight(preflight_request(plan), plan.facts.bank, on_check))


def preflight_request(plan: LaunchPlan) -> PreflightRequest:
    """What the preflight of this launch looks at: the concrete paths, by their spec keys."""
    facts = plan.facts
    return PreflightRequest(
        platform=facts.platform_name,
        paths=dict(facts.paths),
        required_fields=dict(plan.required_fields),
        container_image=facts.image if facts.uses_images else "",
        gpu_count=facts.compute.gpus,
        num_nodes=facts.nodes,
        model_credentials=tuple(
            one.name for one in facts.credentials if one.owner == MODEL and not one.in_job
        ),
        confirmed_mounts=plan.confirmed_mounts,
        options=dict(plan.options),
        flags=LAUNCH,
    )


def _gate(plan: LaunchPlan, report: PreflightReport | None) -> Gate:
    facts = plan.facts
    conditions = (
        _platform(facts),
        _credentials(facts, PLATFORM),
        _credentials(facts, MODEL),
        _image(facts),
        _access(report),
        _datasets(facts, report),
        _compute(facts),
    )
    return Gate(plan, conditions, tuple(plan.missing()), report)


# ---------------------------------------------------------------- the conditions


def _platform(facts: Facts) -> Condition:
    if facts.platform is None:
        return Condition("platform", MISSING, "no platform is chosen")
    if facts.no_way_there:
        return Condition("platform", FAILED, facts.no_way_there)
    return Condition("platform", HOLDS, facts.platform_name)


def _credentials(facts: Facts, owner: str) -> Condition:
    name = f"{owner}_credentials"
    if owner == PLATFORM and facts.platform is None:
        return Condition(name, MISSING, "which are needed depends on the platform")
    mine = [credential for credential in facts.credentials if credential.owner == owner]
    absent = [credential.name for credential in mine if not credential.present]
    if absent:
        return Condition(name, MISSING, f"not set: {', '.join(absent)}")
    return Condition(name, HOLDS, ", ".join(one.name for one in mine) or "none are needed")


def _image(facts: Facts) -> Condition:
    if facts.plan.image is not None:
        return Condition("image", HOLDS, f"{facts.image}, chosen instead of {facts.default_image}")
    if facts.plan.image_confirmed:
        return Condition("image", HOLDS, f"{facts.default_image}, confirmed")
    return Condition("image", MISSING, f"the default, {facts.default_image}, is not confirmed")


def _access(report: PreflightReport | None) -> Condition:
    if report is None:
        return Condition("access", UNCHECKED, "the preflight has not run")
    wrong = [check for check in _failed(report) if not _is_about_data(check)]
    if wrong:
        return Condition("access", FAILED, "; ".join(check.message for check in wrong))
    return Condition("access", HOLDS, "the preflight passed")


def _datasets(facts: Facts, report: PreflightReport | None) -> Condition:
    if facts.open_keys:
        return Condition("datasets", MISSING, f"no value for {', '.join(facts.open_keys)}")
    if report is None and not facts.paths:
        return Condition("datasets", HOLDS, "there are none to look at")
    if report is None:
        return Condition("datasets", UNCHECKED, "mapped to spec keys; not looked at yet")
    wrong = [check for check in _failed(report) if _is_about_data(check)]
    if wrong:
        return Condition("datasets", FAILED, "; ".join(check.message for check in wrong))
    unseen = [
        check for check in report.checks if check.status == "skipped" and _is_about_path(check)
    ]
    if unseen and _access(report).state != HOLDS:
        return Condition("datasets", UNCHECKED, f"{len(unseen)} not looked at: no access yet")
    seen = len(facts.paths) - len(unseen)
    return Condition("datasets", HOLDS, f"{seen} path{'' if seen == 1 else 's'} seen")


def _compute(facts: Facts) -> Condition:
    gpus = facts.compute.gpus
    if gpus is None:
        return Condition("compute", MISSING, "the number of GPUs is not known")
    return Condition("compute", HOLDS, f"gpus={gpus} nodes={facts.nodes}")


def _failed(report: PreflightReport) -> Iterator[Check]:
    return (check for check in report.checks if check.status == "failed")


def _is_about_path(check: Check) -> bool:
    return check.name.startswith(_ABOUT_DATA[0])


def _is_about_data(check: Check) -> bool:
    return check.name.startswith(_ABOUT_DATA)
