"""Whether the platform that answers is the one that a job was given to.

Another daemon, cluster, workspace or machine does not know the job either, and that says nothing
about it. So a platform that `Locates` its jobs is asked before anything follows from the absence of
a job, and before anything is removed. Platforms themselves treat every job as their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import Backend, JobRef, Observation
from tao_sdk.platforms.capabilities import Locates
from tao_sdk.platforms.isolation import ask_isolated, senseless


class Whereabouts:
    """Tells the jobs of one platform from those that it cannot be asked about."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._elsewhere: dict[str, str] = {}

    def elsewhere(self, jobs: Sequence[JobRef]) -> dict[str, str]:
        """Ask the platform which of these jobs are not its own, and why."""
        backend = self._backend
        if not jobs or not isinstance(backend, Locates):
            return {}
        return ask_isolated(
            lambda some: dict(backend.elsewhere(some)),
            jobs,
            lambda job, error: {job.job_id: senseless(error)},
        )

    def require_here(self, job: JobRef) -> None:
        """Raise `BackendUnreachableError` if the platform cannot be asked about this job."""
        if why := self.elsewhere([job]).get(job.job_id):
            raise BackendUnreachableError(why)

    def check(
        self, jobs: Sequence[JobRef], seen: Mapping[str, Observation]
    ) -> dict[str, Observation]:
        """The observations of a poll, without conclusions about jobs that are elsewhere.

        The platform is asked about the jobs that it does not know, in one call, and about no
        others.
        """
        absent = [job for job in jobs if seen[job.job_id].is_absence]
        try:
            reasons = self.elsewhere(absent)
        except BackendUnreachableError as error:
            reasons = dict.fromkeys((job.job_id for job in absent), str(error))
        for job in jobs:
            self._elsewhere.pop(job.job_id, None)
        self._elsewhere |= reasons
        away = {job_id: Observation(None, unreachable=why) for job_id, why in reasons.items()}
        return {**seen, **away}

    def at_last_poll(self, job_id: str) -> str:
        """Why the last poll could not tell what the absence of this job means; "" if it could."""
        return self._elsewhere.get(job_id, "")
