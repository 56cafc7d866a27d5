"""Platforms that can tell of a job that waits that it will wait for ever."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.job_states import JobState
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.platforms.submission import job_ref

if TYPE_CHECKING:
    from tao_sdk.failures import Evidence
    from tao_sdk.platforms.backend import JobRef


class ExplainsWaiting(PlatformSDK):
    """An SDK whose platform is asked about jobs that wait, too."""

    @abstractmethod
    def _stuck(self, job: JobRef) -> Evidence | None:
        """Why it will never start; None while it may."""

    def get_failure_analysis(self, job_id: str) -> dict[str, Any] | None:
        """Why the job failed, or waits for what will never come; None otherwise."""
        found = super().get_failure_analysis(job_id)
        row = self.store.get_job(job_id)
        if found is not None or row is None or not self._is_mine(row):
            return found
        if row["status"] != JobState.PENDING.value or row["phase"] != "submitted":
            return None
        from tao_sdk.failures import explain

        try:
            evidence = self._stuck(job_ref(row))
        except BackendUnreachableError:
            return None  # the job's state says so
        return None if evidence is None else explain(evidence)
