"""Public interfaces as types, for annotations and `isinstance`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tao_sdk.models import Job, JobStatus
from tao_sdk.platforms.sdk import PlatformSDK

__all__ = ["ArtifactCleanupSDK", "PlatformSDK", "PythonScriptSDK"]


@runtime_checkable
class PythonScriptSDK(Protocol):
    """An SDK that runs Python scripts rather than containers."""

    def create_python_job(
        self,
        script: str,
        specs: Mapping[str, Any] | None = None,
        config_format: str = "json",
        script_args: Sequence[str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        inputs: Mapping[str, Any] | Sequence[str] | None = None,
        outputs: Mapping[str, Any] | Sequence[str] | None = None,
        upload_excludes: Sequence[str] | None = None,
        cwd: str | None = None,
        network_arch: str = "",
        action: str = "train",
        hooks: Mapping[str, Any] | None = None,
        gpu_count: int = 1,
        gpu_ids: Sequence[int | str] | None = None,
    ) -> Job: ...
    def get_job_status(self, job_id: str) -> JobStatus: ...
    def get_job_logs(self, job_id: str, tail: int | None = None) -> str: ...
    def iter_job_log_chunks(self, job_id: str, chunk_size: int = 262_144) -> Iterator[str]: ...
    def cancel_job(self, job_id: str) -> bool: ...
    def get_failure_analysis(self, job_id: str) -> dict[str, Any] | None: ...


@runtime_checkable
class ArtifactCleanupSDK(Protocol):
    """An SDK that can remove what a job left behind."""

    def validate_artifact_retention(self, **platform_kwargs: Any) -> bool: ...
    def delete_job_artifacts(self, job_id: str) -> bool: ...
