"""Asking about jobs: one list in pages answers for any number of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.errors import BackendUnreachableError, CredentialError, TaoError
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import CANCELED_AND_GONE, MISSING, JobRef, Observation
from tao_sdk.platforms.common.job_files import CANCELED, JobFiles
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.cleanup import Cleanup, is_over
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.logs import JobLogs
from tao_sdk.platforms.lepton.status import has_just_ended, interpret, is_stopped
from tao_sdk.platforms.lepton.workspace import Workspace
from tao_sdk.result_record import first_failure

_log = logging.getLogger("tao_sdk.lepton")
# How long one poll waits for the logs of failed jobs, which may be behind.
_MAX_WAIT_SECONDS = 2.0
# Up to this number, jobs are asked for by id instead of by a list.
_MAX_BY_ID = 2
# The same for jobs that a list lacks: it may be behind.
_MAX_MISSING_BY_ID = 8

Job = dict[str, Any]


class Observer:
    """Asks one workspace about jobs."""

    def __init__(
        self,
        client: LeptonClient,
        workspace: Workspace,
        files: JobFiles,
        cleanup: Cleanup,
        logs: JobLogs,
    ) -> None:
        self._client = client
        self._logs = logs
        self._workspace = workspace
        self._files = files
        self._cleanup = cleanup
        self._ended: dict[str, Job | None] = {}
        """Jobs that were seen to have ended, until `ended` is called; stopped ones in full."""

    def observe(self, jobs: Sequence[JobRef]) -> dict[str, Observation]:
        elsewhere = self._workspace.elsewhere(jobs)  # known without asking
        here = [job for job in jobs if job.job_id not in elsewhere]
        found = self.find(here)
        doubt = "" if len(found) == len(here) else self.doubt()
        seen = {job.job_id: self._judge(job, found.get(job.job_id), doubt) for job in here}
        failed = [job for job in here if seen[job.job_id].state is JobState.ERROR]
        seen |= self._ends(failed, found, seen)
        return dict.fromkeys(elsewhere, MISSING) | seen

    def _ends(
        self,
        failed: Sequence[JobRef],
        found: Mapping[str, Job],
        seen: Mapping[str, Observation],
    ) -> dict[str, Observation]:
        """How failed jobs ended, by their records: Lepton has no exit codes."""
        ends = {}
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        for job in failed:
            wait_until = deadline if has_just_ended(found[job.job_id]) else 0.0
            try:
                first = first_failure(self._logs.records_of_failed(job, wait_until))
            except TaoError as error:
                _log.info("how job %s ended is not known yet: %s", job.job_id, error)
                break
            if first is not None:
                ends[job.job_id] = seen[job.job_id]._replace(
                    message=f"ended with exit code {first.exit_code}",
                    exit_code=first.exit_code,
                    started_at=first.started_at,
                    ended_at=first.ended_at,
                )
        return ends

    def ended(self, jobs: Sequence[JobRef]) -> dict[str, Job]:
        """Ended jobs as the server has them, by our id, for `Cleanup.clean`.

        Asks only about jobs whose end this process has not seen. Of the others, those that ended by
        themselves are left out: nothing of them but their secrets has to be deleted.
        """
        unknown = [job for job in jobs if job.job_id not in self._ended]
        found: dict[str, Job | None] = dict(self.find(unknown))
        if len(found) < len(unknown) and (doubt := self.doubt()):
            raise BackendUnreachableError(doubt)
        found |= {job.job_id: self._ended.pop(job.job_id) for job in jobs if job not in unknown}
        return {job_id: job for job_id, job in found.items() if job is not None}

    def find(self, jobs: Sequence[JobRef]) -> dict[str, Job]:
        """Those of the jobs that the server has, by our id."""
        if len(jobs) <= _MAX_BY_ID:
            return self._by_id(jobs)
        wanted = {job.native["id"]: job.job_id for job in jobs}
        found = self._listed(wanted, "alive_only")
        missing = [job for job in jobs if job.job_id not in found]
        if len(missing) <= _MAX_MISSING_BY_ID:
            return {**found, **self._by_id(missing)}
        return {**found, **self._listed(wanted, "archive_only")}

    def _by_id(self, jobs: Sequence[JobRef]) -> dict[str, Job]:
        seen = {job.job_id: self._client.job(job.native["id"]) for job in jobs}
        return {job_id: job for job_id, job in seen.items() if job is not None}

    def _listed(self, wanted: Mapping[str, str], mode: str) -> dict[str, Job]:
        found: dict[str, Job] = {}
        for page in self._client.pages(naming.JOBS, "jobs", job_query_mode=mode, query=naming.OURS):
            for job in page:
                job_id = wanted.get(naming.id_of(job))
                if job_id is not None:
                    found[job_id] = job
                elif self._files.is_marked(naming.job_id_in(job), naming.UNWANTED):
                    self._cleanup.sweep_soon()
            if len(found) == len(wanted):
                break
        return found

    def doubt(self) -> str:
        """Why "no such job" may not mean that there is none."""
        try:
            self._workspace.require(now=True)
        except CredentialError as error:
            return str(error)
        return ""

    def _judge(self, job: JobRef, found: Job | None, doubt: str) -> Observation:
        canceled = self._files.is_marked(job.job_id, CANCELED)
        if found is None:
            if doubt:
                return Observation(None, unreachable=doubt)
            # Its secrets stay: a list may be behind, and the job may be about to start.
            seen = MISSING
            if canceled:
                seen = CANCELED_AND_GONE._replace(due=True)
        else:
            seen = interpret(found, canceled=canceled)
            seen = seen._replace(due=is_over(found, job.job_id, self._files))
        if seen.due:
            self._ended[job.job_id] = found if found and is_stopped(found) else None
        return seen
