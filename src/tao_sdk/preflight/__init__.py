"""Preflight: is everything there that a launch needs?

    from tao_sdk.preflight import PreflightRequest, run_preflight
    from tao_sdk.skills import SkillBank

    report = run_preflight(PreflightRequest(platform="slurm"), SkillBank())
    report.ok

Every check runs, none of them leaves anything behind, and what cannot be proven has failed. The
single functions (`ensure_aws_cli` and those below it) ask one question each.
"""

from __future__ import annotations

from tao_sdk.preflight.checks import Check
from tao_sdk.preflight.engine import PreflightReport, run_preflight
from tao_sdk.preflight.gpu_architecture import (
    check_gpu_architecture_compatibility,
    normalize_supported_sms,
    parse_compute_capabilities,
)
from tao_sdk.preflight.host import (
    check_nvidia_container_runtime,
    ensure_aws_cli,
    query_host_sms,
)
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.preflight.result import PreflightResult

__all__ = [
    "Check",
    "PreflightReport",
    "PreflightRequest",
    "PreflightResult",
    "check_gpu_architecture_compatibility",
    "check_nvidia_container_runtime",
    "ensure_aws_cli",
    "normalize_supported_sms",
    "parse_compute_capabilities",
    "query_host_sms",
    "run_preflight",
]
