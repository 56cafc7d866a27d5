"""AutoML or a plain run: who decides, and what is said about it."""

from __future__ import annotations

from dataclasses import dataclass

from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.skills import SkillBank
from tao_sdk.skills.listing import automl_obstacle

__all__ = ["POLICIES", "AutomlRoute", "automl_route", "engine_is_there"]

POLICIES = ("auto", "on", "off")
TUNED = "train"
"""The action that AutoML tunes."""


@dataclass(frozen=True)
class AutomlRoute:
    """How a launch goes, and why."""

    policy: str
    recommended: bool
    """The model takes part in AutoML, and nobody asked for a plain run."""
    notice: str = ""
    """What the person should know about it."""
    reason: str = ""
    """Why AutoML is not the route; "" where it is."""


def engine_is_there() -> bool:
    """Whether this SDK can run a search. The one place to change when it can."""
    return False


def automl_route(bank: SkillBank, folder: str, action: str, policy: str) -> AutomlRoute:
    """Which way a launch takes under a policy; raises where "on" cannot be done."""
    if policy == "off":
        return AutomlRoute(policy, recommended=False, reason="the policy is off")
    reason = _reason_against(bank, folder, action)
    if policy == "on":
        _refuse_what_cannot_be(folder, action, reason)
    if reason:
        return AutomlRoute(policy, recommended=False, reason=reason)
    if engine_is_there():
        return AutomlRoute(policy, recommended=True, notice="AutoML tunes this training.")
    return AutomlRoute(
        policy,
        recommended=True,
        notice=(
            f"AutoML is the recommended route for {folder} {action}, but this version cannot run "
            "the search yet: this is a plain run. Policy off (--automl off) asks for one outright."
        ),
    )


def _reason_against(bank: SkillBank, folder: str, action: str) -> str:
    if action != TUNED:
        return f"AutoML tunes {TUNED}, not {action}"
    return automl_obstacle(bank, folder)


def _refuse_what_cannot_be(folder: str, action: str, reason: str) -> None:
    if reason:
        raise ValidationError(
            f"automl: {folder} {action} cannot be tuned ({reason}): use policy off or auto"
        )
    if not engine_is_there():
        raise UnsupportedError(
            f"automl: this version of the SDK cannot run AutoML yet: use policy off for a plain "
            f"{action} of {folder}, or auto"
        )
