"""Launch, watch, explain and tune GPU jobs on many platforms.

The public names are flat and loaded when first used: `import tao_sdk` itself loads nothing.
"""

from __future__ import annotations

from tao_sdk._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tao_sdk.action_workflow import ActionWorkflow
    from tao_sdk.errors import CredentialError, TaoError
    from tao_sdk.job_store import JobStore
    from tao_sdk.models import Checkpoint, Job, JobState, JobStatus, Mount
    from tao_sdk.monitor import JobMonitor
    from tao_sdk.platforms.backend import Plan
    from tao_sdk.platforms.local.sdk import LocalSDK
    from tao_sdk.platforms.local.virtualenv import VirtualEnvSDK
    from tao_sdk.platforms.protocol import ArtifactCleanupSDK, PythonScriptSDK
    from tao_sdk.platforms.registry import attach
    from tao_sdk.platforms.request import JobRequest
    from tao_sdk.platforms.sdk import PlatformSDK
    from tao_sdk.secrets import Secret
    from tao_sdk.skills import SkillBank

_HOMES = {
    "ActionWorkflow": "tao_sdk.action_workflow",
    "ArtifactCleanupSDK": "tao_sdk.platforms.protocol",
    "Checkpoint": "tao_sdk.models",
    "CredentialError": "tao_sdk.errors",
    "Job": "tao_sdk.models",
    "JobMonitor": "tao_sdk.monitor",
    "JobRequest": "tao_sdk.platforms.request",
    "JobState": "tao_sdk.models",
    "JobStatus": "tao_sdk.models",
    "JobStore": "tao_sdk.job_store",
    "LocalSDK": "tao_sdk.platforms.local.sdk",
    "Mount": "tao_sdk.models",
    "Plan": "tao_sdk.platforms.backend",
    "PlatformSDK": "tao_sdk.platforms.sdk",
    "PythonScriptSDK": "tao_sdk.platforms.protocol",
    "Secret": "tao_sdk.secrets",
    "SkillBank": "tao_sdk.skills",
    "TaoError": "tao_sdk.errors",
    "VirtualEnvSDK": "tao_sdk.platforms.local.virtualenv",
    "attach": "tao_sdk.platforms.registry",
}

__all__ = [
    "ActionWorkflow",
    "ArtifactCleanupSDK",
    "Checkpoint",
    "CredentialError",
    "Job",
    "JobMonitor",
    "JobRequest",
    "JobState",
    "JobStatus",
    "JobStore",
    "LocalSDK",
    "Mount",
    "Plan",
    "PlatformSDK",
    "PythonScriptSDK",
    "Secret",
    "SkillBank",
    "TaoError",
    "VirtualEnvSDK",
    "__version__",
    "attach",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
