"""Looking at jobs: one list for any number of them, in pages."""

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
from tao_sdk.platforms.lepton.records import Records
from tao_sdk.platforms.lepton.status import has_just_ended, interpret
from tao_sdk.platforms.lepton.workspace import Workspace
from tao_sdk.result_record import first_failure

_log = logging.getLogger("tao_sdk.lepton")
# So long, at one look, the logs of failed jobs are waited for, if they are behind.
_PATIENCE_SECONDS = 2.0
# So few are asked for by their ids; more by the list.
_FEW = 2
# So many that are not in the list are asked for by their ids: it may be behind.
_SOME = 8

Job = dict[str, Any]


class Observer:
    """Looks at the jobs of one workspace."""

    def __init__(
        self,
        api: LeptonClient,
        workspace: Workspace,
        kept: JobFiles,
        cleanup: Cleanup,
        records: Records,
    ) -> None:
        self._api = api
        self._records = records
        self._workspace = workspace
        self._kept = kept
        self._cleanup = cleanup
        self._ended: dict[str, Job | None] = {}
        """Jobs that were seen to have ended, until `ended` is asked about them."""

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
        """What their records say about jobs that failed: Lepton tells no exit codes."""
        told = {}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for job in failed:
            patience = deadline if has_just_ended(found[job.job_id]) else 0.0
            try:
                first = first_failure(self._records.of_failed(job, patience))
            except TaoError as error:
                _log.info("how job %s ended is not known yet: %s", job.job_id, error)
                break
            if first is not None:
                told[job.job_id] = seen[job.job_id]._replace(
                    message=f"ended with exit code {first.exit_code}",
                    exit_code=first.exit_code,
                    started_at=first.started_at,
                    ended_at=first.ended_at,
                )
        return told

    def ended(self, jobs: Sequence[JobRef]) -> dict[str, Job]:
        """Those of these ended jobs that the server has, by our id; asks about unknown ones."""
        unknown = [job for job in jobs if job.job_id not in self._ended]
        found: dict[str, Job | None] = dict(self.find(unknown))
        if len(found) < len(unknown) and (doubt := self.doubt()):
            raise BackendUnreachableError(doubt)
        found |= {job.job_id: self._ended.pop(job.job_id) for job in jobs if job not in unknown}
        return {job_id: job for job_id, job in found.items() if job is not None}

    def find(self, jobs: Sequence[JobRef]) -> dict[str, Job]:
        """Those of the jobs that the server has, by our id."""
        if len(jobs) <= _FEW:
            return self._by_id(jobs)
        wanted = {job.native["id"]: job.job_id for job in jobs}
        found = self._listed(wanted, "alive_only")
        missing = [job for job in jobs if job.job_id not in found]
        if len(missing) <= _SOME:
            return {**found, **self._by_id(missing)}
        return {**found, **self._listed(wanted, "archive_only")}

    def _by_id(self, jobs: Sequence[JobRef]) -> dict[str, Job]:
        seen = {job.job_id: self._api.job(job.native["id"]) for job in jobs}
        return {job_id: job for job_id, job in seen.items() if job is not None}

    def _listed(self, wanted: Mapping[str, str], mode: str) -> dict[str, Job]:
        found: dict[str, Job] = {}
        for page in self._api.pages(naming.JOBS, "jobs", job_query_mode=mode, query=naming.OURS):
            for job in page:
                job_id = wanted.get(naming.id_of(job))
                if job_id is not None:
                    found[job_id] = job
                elif self._kept.is_marked(naming.job_id_in(job), naming.UNWANTED):
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
        canceled = self._kept.is_marked(job.job_id, CANCELED)
        if found is None:
            if doubt:
                return Observation(None, unreachable=doubt)
            # Its secrets stay for now: a list may be behind, and the job about to start.
            seen = MISSING
            if canceled:
                seen = CANCELED_AND_GONE._replace(due=True)
        else:
            seen = interpret(found, canceled=canceled)
            seen = seen._replace(due=is_over(found, job.job_id, self._kept))
        if seen.due:
            self._ended[job.job_id] = found
        return seen
