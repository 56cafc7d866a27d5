"""No secret is in a plan: it is printed, reviewed and handed to programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import SecretExposureError
from tao_sdk.launch.plan import LaunchPlan
from tao_sdk.runner.place_names import render
from tao_sdk.secrets import ADDRESS_SECRETS, find_exposed, seal
from tao_sdk.skills.spec_values import leaves

__all__ = ["refuse_visible_secrets"]

_VISIBLE = (
    "model", "action", "platform", "train_root", "eval_root", "calibration_root", "roots", "specs",
    "file_names", "parent", "resume", "pretrained", "image", "results", "options",
)  # fmt: skip


def refuse_visible_secrets(plan: LaunchPlan) -> None:
    """Raise if a value of the plan, which many can read, holds a secret of the environment."""
    known = {**settings.secret_values(), **seal(plan.env_vars)}
    for where, text in _texts({name: getattr(plan, name) for name in _VISIBLE}):
        name = find_exposed(text, known)
        if name in ADDRESS_SECRETS:
            raise SecretExposureError(
                f"{where} contains {name}, a credential that others could read"
            )
        if name is not None:
            inside = settings.INJECTED_CREDENTIALS.get(name, name)
            raise SecretExposureError(
                f"{where} contains the value of {name}, which others could read: write "
                f"${{env:{inside}}} in its place; it is filled in inside the job"
            )


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, value in leaves(dict(values)):
        if isinstance(value, (str, tuple)):
            yield render(path), str(value)
