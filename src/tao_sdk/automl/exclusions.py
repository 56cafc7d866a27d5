"""Which leaves of a schema a search leaves alone unless they are named, and why."""

from __future__ import annotations

import re

from tao_sdk.skills.schema_validation import ACTION_WORDS

__all__ = ["reason_against"]

_EVALUATION = frozenset(
    {
        "eval",
        "evaluate",
        "evaluation",
        "infer",
        "inference",
        "predict",
        "test",
        "val",
        "validation",
    }
)
_EPOCHS = frozenset({"epoch", "epochs", "iters", "iterations", "max_steps"})
_WORKERS = frozenset({"worker", "workers"})
_SEEDS = frozenset({"seed", "seeds"})
_TOKENS = re.compile(r"[._\[\]]+")


def reason_against(path: str, action: str) -> str:
    """Why this leaf is not searched by default; "" where nothing speaks against it."""
    section = path.split(".", 1)[0]
    if section in ACTION_WORDS - {action, "train"}:
        return f"belongs to {section}, not to {action}"
    tokens = set(_TOKENS.split(path.lower()))
    if tokens & _EVALUATION:
        return "changes how trials are evaluated, not how they are trained"
    if tokens & _EPOCHS:
        return "sets how long a trial trains, which is the search's own budget"
    if tokens & _WORKERS:
        return "changes speed, not results"
    if tokens & _SEEDS:
        return "a seed: what it wins is luck"
    return ""
