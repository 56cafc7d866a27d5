"""What is done after the end of a job, beside everything else: its secrets are removed, and a job
that we stopped, which would stay for ever.

A process may be killed before it has done so, or the server be away. So whoever looks at jobs looks
now and then at the secrets of the workspace as well, and removes those of jobs that have ended; of
a job that is not there, once they are so old that it cannot be on its way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.errors import BackendUnreachableError, TaoError
from tao_sdk.platforms.common.background import BackgroundQueue
from tao_sdk.platforms.common.job_files import CANCELED, JobFiles
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.status import has_ended, is_stopped

_log = logging.getLogger("tao_sdk.lepton")
# A submission takes seconds; whatever the clocks say.
ABANDONED_SECONDS = 3600.0
# So often a process that goes on looks for what was left.
SWEEP_SECONDS = 600.0


class _Task(NamedTuple):
    secrets: Sequence[str] = ()
    job: str = ""
    sweep: bool = False


class Cleanup:
    """Cleans up in one workspace, in a thread of its own."""

    def __init__(self, api: LeptonClient, kept: JobFiles) -> None:
        self._api = api
        """Of its own: what it does is no part of anybody's question."""
        self._kept = kept
        self._tasks: BackgroundQueue[_Task] = BackgroundQueue("tao-lepton-aftermath", self._try)
        self._seen: set[str] = set()
        self._next_sweep = 0.0

    def clean(self, secrets: Sequence[str], job: str = "") -> None:
        """Remove the secrets of a job that has ended, and the job where it is named."""
        names = [name for name in secrets if name not in self._seen]
        if job in self._seen:
            job = ""
        if names or job:
            self._seen |= {*names, job}
            self._tasks.add(_Task(names, job))

    def remove(self, job: str) -> None:
        """Remove a job that nobody wants."""
        self.clean((), job)

    def sweep_now_and_then(self) -> None:
        """Look for what killed clients left, if this process has not done so lately."""
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS
            self._tasks.add(_Task(sweep=True))

    def finish(self) -> None:
        """Wait until everything is done."""
        self._tasks.finish()

    def close(self) -> None:
        """Let go of connections, once everything is done."""
        self.finish()
        self._api.close()

    def _try(self, task: _Task) -> None:
        try:
            self._do(task)
        except BackendUnreachableError as error:
            # A program that ends does not wait for a server: the next poll cleans up.
            self._tasks.drop()
            _log.warning("what is left of ended jobs stays for now: %s", error)
        except (TaoError, OSError) as error:
            _log.warning("what is left of an ended job could not be removed: %s", error)

    def _do(self, task: _Task) -> None:
        for name in task.secrets:
            self._api.delete(naming.below(naming.SECRETS, name))
        if task.job:
            self._api.delete(naming.below(naming.JOBS, task.job))
        if task.sweep:
            sweep(self._api, self._kept)


def sweep(api: LeptonClient, kept: JobFiles, abandoned: float = ABANDONED_SECONDS) -> None:
    """Remove secrets that no job can want any more, and jobs that we stopped."""
    parsed = [naming.parse_secret(str(one.get("name"))) for one in api.get_list(naming.SECRETS)]
    secrets = [one for one in parsed if one is not None]
    jobs: dict[str, Mapping[str, Any]] = {}
    for page in api.pages(naming.JOBS, "jobs", job_query_mode="alive_only", query=naming.OURS):
        jobs |= {naming.job_id_in(job).replace("-", ""): job for job in page}
    for secret in secrets:
        job = jobs.get(secret.job)
        if kept.is_marked(secret.job_id, naming.UNWANTED):
            goes = True
        elif job is not None:
            goes = _is_over(job, kept)
        else:
            goes = time.time() - secret.made_at > abandoned and _is_nowhere(api, secret)
        if goes:
            api.delete(naming.below(naming.SECRETS, str(secret)))
    for job in jobs.values():
        job_id = naming.job_id_in(job)
        if kept.is_marked(job_id, naming.UNWANTED) or (
            is_stopped(job) and kept.is_marked(job_id, CANCELED)
        ):
            api.delete(naming.below(naming.JOBS, naming.id_of(job)))


def _is_over(job: Mapping[str, Any], kept: JobFiles) -> bool:
    """Has it ended so that nobody can start it again?"""
    return has_ended(job) and (
        not is_stopped(job) or kept.is_marked(naming.job_id_in(job), CANCELED)
    )


def _is_nowhere(api: LeptonClient, secret: naming.SecretName) -> bool:
    """A list that changes while its pages are read may lack a job: asked for by its name."""
    name = naming.job_name(secret.job)
    return not any(api.pages(naming.JOBS, "jobs", job_query_mode="alive_only", q=name))
