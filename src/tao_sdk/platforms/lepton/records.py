"""How commands ended: their records, which are the last lines of their logs.

What was printed last may be on its way to the kept log for some seconds, so for a job that has
just ended they are waited for a little.
"""

from __future__ import annotations

import time

from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.lepton.history import History
from tao_sdk.platforms.lepton.status import Job, ended_at, has_ended, moment
from tao_sdk.result_record import ResultRecord, first_failure

# So long, at most, lines are on their way.
_LAGS_SECONDS = 60.0
_PAUSE_SECONDS = 0.25


class Records:
    """Records of jobs of one workspace."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._failed: dict[str, list[ResultRecord]] = {}

    def of(self, job: JobRef) -> list[ResultRecord]:
        """Those that there are, by rank."""
        return self._history.records(job)

    def of_failed(self, job: JobRef, deadline: float) -> list[ResultRecord]:
        """Of a job that failed: waited for until `deadline`, of a monotonic clock."""
        while job.job_id not in self._failed:
            found = self.of(job)
            if first_failure(found) is not None:
                self._failed[job.job_id] = found
            elif time.monotonic() >= deadline:
                return found
            else:
                time.sleep(_PAUSE_SECONDS)
        return self._failed[job.job_id]


def has_just_ended(job: Job | None) -> bool:
    """May the last lines of its log be on their way?"""
    if job is None or not has_ended(job):
        return False
    return ended_at(job) > moment(time.time() - _LAGS_SECONDS)
