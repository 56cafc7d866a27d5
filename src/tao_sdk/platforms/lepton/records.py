"""How commands ended: their records, which are the last lines of their logs."""

from __future__ import annotations

import time

from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.lepton.logs import JobLogs
from tao_sdk.result_record import ResultRecord, first_failure

_PAUSE_SECONDS = 0.25


class Records:
    """Records of jobs of one workspace."""

    def __init__(self, logs: JobLogs) -> None:
        self._logs = logs
        self._failed: dict[str, list[ResultRecord]] = {}

    def of(self, job: JobRef) -> list[ResultRecord]:
        """Those that there are, by rank."""
        return self._logs.records(job)

    def of_failed(self, job: JobRef, deadline: float) -> list[ResultRecord]:
        """Of a job that failed; waits until `deadline` of the monotonic clock for the first."""
        while job.job_id not in self._failed:
            found = self.of(job)
            if first_failure(found) is not None:
                self._failed[job.job_id] = found
            elif time.monotonic() >= deadline:
                return found
            else:
                time.sleep(_PAUSE_SECONDS)
        return self._failed[job.job_id]
