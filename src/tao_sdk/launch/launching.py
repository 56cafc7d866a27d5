"""Through the gate: from a plan to a job of the platform."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.launch.gate import Gate, GateClosedError, Preflight, examine, inputs_gate
from tao_sdk.launch.plan import LaunchPlan
from tao_sdk.platforms import registry
from tao_sdk.preflight.checks import Check
from tao_sdk.preflight.engine import run_preflight
from tao_sdk.script_runner import runner_payload

if TYPE_CHECKING:
    from tao_sdk.models import Job
    from tao_sdk.platforms.backend import Plan
    from tao_sdk.platforms.sdk import PlatformSDK

__all__ = ["launch", "platform_sdk", "prepare", "submit"]


def launch(
    plan: LaunchPlan,
    *,
    state_file: str | Path | None = None,
    preflight: Preflight = run_preflight,
    on_check: Callable[[Check], None] | None = None,
) -> Job:
    """Check the gate, plan and submit; raises `GateClosedError`, with nothing created, else."""
    gate = examine(plan, preflight=preflight, on_check=on_check)
    if not gate.is_open:
        raise GateClosedError(gate)
    sdk = platform_sdk(plan, state_file)
    return submit(gate, sdk, prepare(plan, sdk))


def platform_sdk(plan: LaunchPlan, state_file: str | Path | None = None) -> PlatformSDK:
    """The SDK of the chosen platform. Constructing it opens nothing."""
    return registry.get(plan.facts.platform_name)(state_file=state_file)


def prepare(plan: LaunchPlan, sdk: PlatformSDK) -> Plan:
    """What the platform would get, word for word. Nothing is created.

    Everything must be known, but nothing needs to have been looked at: a dry run ends here.
    """
    gate = inputs_gate(plan)
    if not gate.is_plannable:
        raise GateClosedError(gate)
    facts = plan.facts
    made = facts.made
    payload = runner_payload(**made.entrypoint_arguments())
    options: dict[str, Any] = {
        "network_arch": made.network_arch,
        "action": made.name,
        "num_nodes": facts.nodes,
        **({"mounts": facts.mounts} if facts.mounts else {}),
        **plan.options,
    }
    return sdk.plan(facts.image, payload, facts.compute.gpus or 0, plan.env_vars, **options)


def submit(gate: Gate, sdk: PlatformSDK, prepared: Plan) -> Job:
    """Hand a prepared plan over, if the gate is open: the only way to a job."""
    if not gate.is_open:
        raise GateClosedError(gate)
    return sdk.submit(prepared)
