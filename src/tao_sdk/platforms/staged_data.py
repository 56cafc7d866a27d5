"""Jobs whose command carries the runner: wrap it, show it in plans, leave time to deliver."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from tao_sdk import settings
from tao_sdk.bundle.payload import RunnerPayload
from tao_sdk.bundle.recognition import carries_runner
from tao_sdk.platforms.backend import Artefact, Plan
from tao_sdk.platforms.request import Command, JobRequest

_RUNNER_SETTINGS = (
    "TAO_GRACE_SECONDS",
    "TAO_DELIVERY_SECONDS",
    "TAO_SYNC_SECONDS",
    "TAO_STAGE_WAIT_SECONDS",
    "TAO_TRANSFER_THREADS",
    "TAO_TRANSFER_ATTEMPTS",
    "TAO_STALL_SECONDS",
    "TAO_VERIFY",
    "TAO_WORK_ROOT",
    "TAO_AUTO_RESUME",
)

_LAST_WORDS_SECONDS = 10.0


def with_data(
    command: Command,
    inputs: Mapping[str, Any] | None,
    outputs: Mapping[str, Any] | Sequence[str] | None,
) -> RunnerPayload:
    """Wrap the command: fetch `inputs` to their paths before it, deliver `outputs` after it."""
    from tao_sdk.script_runner import runner_payload

    if isinstance(command, RunnerPayload):
        command = command.packed
    text = command if isinstance(command, str) else shlex.join(command)
    return runner_payload(command=text, inputs=inputs, outputs=outputs)


def with_payload(plan: Plan) -> Plan:
    """The plan with a readable description of what its runner will do."""
    payload = plan.request.payload
    if payload is None:
        return plan
    text = json.dumps(payload.content, indent=2, ensure_ascii=False)
    shown = Artefact("runner payload", text.replace("\\u0000", "<from the job>/"))
    plan = plan.with_artefact(shown)
    if note := payload.content.get("note"):
        plan.warnings = (*plan.warnings, note)
    return plan


def results_in_bucket(request: JobRequest, env: Mapping[str, str], job_id: str) -> str:
    """Where the runner of a job without a results folder delivers; "" when it does not.

    `env` is what the job will find in its environment.
    """
    if not request.payload:
        return ""
    from tao_sdk.runner.destinations import destination

    to = destination(env, f"/{job_id}")
    delivers = to.kind == "s3" and request.payload.content["outputs"]["s3"]
    return to.root if delivers else ""


def runner_settings(request: JobRequest) -> dict[str, str]:
    """The runner's settings of this process, for jobs that do not inherit its environment."""
    if not request.payload:
        return {}
    return {name: value for name in _RUNNER_SETTINGS if (value := settings.lookup(name))}


def stop_seconds(*, runner: bool) -> float:
    """How long a platform waits between asking a job to stop and ending it by force.

    The runner gives the command its grace period, ends it, and delivers what there is; then it
    needs a moment to leave its record and its last words.
    """
    grace = settings.get_seconds("TAO_GRACE_SECONDS")
    if not runner:
        return grace
    return grace + settings.get_seconds("TAO_DELIVERY_SECONDS") + _LAST_WORDS_SECONDS


def has_runner(request: Mapping[str, Any]) -> bool:
    """Whether a stored request has a runner; older stores have it only in the command."""
    return bool(request.get("runner")) or carries_runner(request.get("command", ""))


def storage_for(uri: str) -> ModuleType | None:
    """`tao_sdk.storage` for the URI of a store; None for a path, which only the platform knows."""
    if "://" not in uri:
        return None
    from tao_sdk import storage

    return storage if storage.is_remote(uri) else None
