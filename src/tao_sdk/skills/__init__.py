"""Skills: what is known about models, platforms and images, as a bank of files says it.

    from tao_sdk.script_runner import build_entrypoint
    from tao_sdk.skills import action

    job = action("dino", "train", overrides={"num_epochs": 12}, gpu_count=2)
    entrypoint = build_entrypoint(**job.entrypoint_arguments())

`SkillBank` answers single questions. What the helper programs of a bank print is in `listing`,
`platform_manifest` and `scripts`.
"""

from __future__ import annotations

from tao_sdk.skills.actions import SkillAction, action
from tao_sdk.skills.errors import (
    AmbiguousNameError,
    BankNotFoundError,
    MetadataError,
    MissingNameError,
    SpecError,
)
from tao_sdk.skills.schema_validation import SpecProblem, validate_spec
from tao_sdk.skills.skill_bank import SkillBank

__all__ = [
    "AmbiguousNameError",
    "BankNotFoundError",
    "MetadataError",
    "MissingNameError",
    "SkillAction",
    "SkillBank",
    "SpecError",
    "SpecProblem",
    "action",
    "validate_spec",
]
