"""Deleting the secrets of ended jobs, and the jobs that we stopped.

Lepton keeps both for ever. The store remembers jobs whose secrets could not be deleted. A sweep
deletes what no row of the store leads to: secrets and jobs whose requests arrived after their
submission was given up, or whose store is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.job_files import CANCELED, JobFiles
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.status import has_ended, is_stopped
from tao_sdk.platforms.rest import RefusedError

_log = logging.getLogger("tao_sdk.lepton")
# A submission takes seconds. After this time, secrets without a job are abandoned.
ABANDONED_SECONDS = 3600.0
SWEEP_SECONDS = 600.0
_REQUESTS_AT_ONCE = 8

Job = Mapping[str, Any]


class Cleanup:
    """Cleans up in one workspace. All of it may be repeated, and run in several processes."""

    def __init__(self, client: LeptonClient, files: JobFiles, last_sweep: Path) -> None:
        """The time of change of the file `last_sweep` is that of the last sweep, by any process."""
        self._client = client
        self._files = files
        self._last_sweep = last_sweep

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    @property
    def sweep_is_due(self) -> bool:
        try:
            age = time.time() - self._last_sweep.stat().st_mtime
        except FileNotFoundError:
            return True
        return not 0 <= age < SWEEP_SECONDS

    def sweep_soon(self) -> None:
        """There may be something that only a sweep removes."""
        self._last_sweep.unlink(missing_ok=True)

    def clean(self, jobs: Sequence[JobRef], found: Mapping[str, Job]) -> list[str]:
        """Remove what these jobs left; `found` has those that the server knows.

        Returns the ids of those that left nothing.
        """
        over = [job for job in jobs if is_over(found.get(job.job_id), job.job_id, self._files)]
        if not over:
            return []
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "tao-lepton-cleanup") as pool:
            cleaned = pool.map(lambda job: self._clean(job, found.get(job.job_id)), over)
            return [job.job_id for job, is_clean in zip(over, cleaned, strict=True) if is_clean]

    def _clean(self, job: JobRef, found: Job | None) -> bool:
        paths = [naming.below(naming.SECRETS, name) for name in job.native["secrets"]]
        if found is not None and is_stopped(found):
            paths.append(naming.below(naming.JOBS, naming.id_of(found)))
        try:
            for path in paths:
                self._client.delete(path)
        except (BackendUnreachableError, RefusedError) as error:
            _log.warning("secrets of job %s stay for now: %s", job.job_id, error)
            return False
        self._files.unmark(job.job_id, naming.FINGERPRINTS)
        return True

    def sweep_if_due(self) -> None:
        if not self.sweep_is_due:
            return
        self._last_sweep.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._last_sweep.touch(mode=0o600)
        try:
            self.sweep()
        except (BackendUnreachableError, RefusedError) as error:
            _log.warning("what killed clients may have left in the workspace stays: %s", error)

    def sweep(self, abandoned: float = ABANDONED_SECONDS) -> None:
        """Remove secrets that no job needs any more, and jobs that we stopped or gave up."""
        secrets = self._our_secrets()
        jobs: dict[str, Job] = {}
        for page in self._pages(query=naming.OURS):
            jobs |= {naming.job_id_in(job): job for job in page}
        for secret in secrets:
            if self._is_left_over(secret, jobs.get(secret.job_id), abandoned):
                self._client.delete(naming.below(naming.SECRETS, str(secret)))
        for job_id, job in jobs.items():
            stopped = is_stopped(job) and self._files.is_marked(job_id, CANCELED)
            if stopped or self._files.is_marked(job_id, naming.UNWANTED):
                self._client.delete(naming.below(naming.JOBS, naming.id_of(job)))

    def _our_secrets(self) -> list[naming.SecretName]:
        listed = self._client.get_list(naming.SECRETS)
        parsed = (naming.parse_secret(str(secret.get("name"))) for secret in listed)
        return [secret for secret in parsed if secret is not None]

    def _is_left_over(self, secret: naming.SecretName, job: Job | None, abandoned: float) -> bool:
        if self._files.is_marked(secret.job_id, naming.UNWANTED):
            return True
        if job is not None:
            return is_over(job, secret.job_id, self._files)
        if time.time() - secret.made_at <= abandoned:
            return False
        # A list that changes while its pages are read may lack a job: ask for this one.
        return not any(self._pages(q=naming.job_name(secret.job)))

    def _pages(self, **query: str) -> Iterable[list[dict[str, Any]]]:
        return self._client.pages(naming.JOBS, "jobs", job_query_mode="alive_only", **query)


def is_over(job: Job | None, job_id: str, files: JobFiles) -> bool:
    """Whether the job cannot start again. One that another user stopped can."""
    if job is None:
        return True
    return has_ended(job) and (not is_stopped(job) or files.is_marked(job_id, CANCELED))
