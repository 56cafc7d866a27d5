"""Submitting a job with its secrets, and settling an interrupted submission.

The order, and what a client that is killed there leaves behind::

    1  create the pull secret    a pull secret of the workspace, created once and used by all jobs
    2  create the job's secrets  secrets that no job uses
    3  create the job            a job

The request that creates a job is repeated only if the server refused it. The job is found again by
its name and by the token in a label. That it is not found proves nothing: lists are up to
LEPTON_SETTLE_SECONDS behind, and a request may be delayed on its way for any time. The server
accepts equal names, so a name is no lock. Secrets are: every job has at least one, and cannot
start without it. So `settle` proceeds like this::

    1  search for the job, until lists would show it if the server had accepted it at once
    2  delete its secrets: what has not started cannot start from here on
    3  search again, until lists would show what had started before

A job that is found in 3 and runs was submitted; one that cannot start is deleted. One that appears
even later cannot start either, and a sweep deletes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError, TaoError
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.job_spec import Objects
from tao_sdk.platforms.lepton.status import has_begun
from tao_sdk.platforms.rest import RefusedError
from tao_sdk.secrets import Secret

# After these answers it is certain that the server did nothing.
DEFINITIVE = frozenset({400, 401, 403, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422, 429})
_FEW = 5
_SETTLE_PAUSE_SECONDS = 0.5
_REGISTRY = "https://nvcr.io"


class Submitter:
    """Submits jobs to one workspace."""

    def __init__(self, client: LeptonClient, files: JobFiles) -> None:
        self._client = client
        self._files = files

    def make(self, objects: Objects) -> dict[str, Any]:
        """Submit; the job as the server describes it."""
        if objects.makes_pull_secret:
            self.create_pull_secret()
        self.create_secrets(objects.secrets)
        try:
            return self.create_job(objects.job)
        except BackendUnreachableError:
            labels = naming.labels_of(objects.job)
            sought = JobRef(JobIdentity(labels[naming.LABEL_JOB], labels[naming.LABEL_TOKEN]), {})
            found = self._look_for([sought], settings.get_seconds("LEPTON_SETTLE_SECONDS"))
            if not found:
                raise
            return found[sought.job_id]
        except SubmissionRejectedError as refusal:
            self._take_back_after(refusal, [one["name"] for one in objects.secrets])
            raise

    # Each step is a method of its own, so that tests can die between any two of them.

    def create_pull_secret(self) -> None:
        """One for all jobs: it may exist already, or another client may be faster."""
        name = naming.PULL_SECRET
        spec = {
            "registry_server": _REGISTRY,
            "username": settings.get("DOCKER_USERNAME"),
            "password": settings.lookup("NGC_KEY"),
        }
        body = {"metadata": {"id": name, "name": name}, "spec": spec}
        with _refusals(f"the pull secret {name}", "image_pull_secret=[] goes without"):
            try:
                self._persist(naming.PULL_SECRETS, body, [Secret(spec["password"])])
            except RefusedError as error:
                if not error.conflict:
                    raise

    def create_secrets(self, secrets: Sequence[Mapping[str, str]]) -> None:
        """Their names are unique: if they exist already, an earlier request created them."""
        with _refusals("the secrets of the job"):
            hide = [Secret(one["value"]) for one in secrets]
            self._persist(naming.SECRETS, [dict(one) for one in secrets], hide)

    def _persist(self, path: str, body: Any, hide: Sequence[Secret]) -> None:
        """Create what can exist once only; repeated if the answer was lost."""
        for again in (False, True, True):
            try:
                self._client.create(path, body, hide)
                return
            except BackendUnreachableError as error:
                lost = error
            except RefusedError as error:
                if not again:
                    raise
                if not error.conflict:
                    raise lost from error
                return  # the request before created it
        raise lost

    def create_job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        with _refusals("the job"):
            made = self._client.create(naming.JOBS, job)
        if not isinstance(made, dict) or not naming.id_of(made):
            raise BackendUnreachableError("Lepton accepted the job without an id in its answer")
        return made

    # ------------------------------------------------------------------ settling

    def settle(self, jobs: Sequence[JobRef]) -> dict[str, dict[str, Any] | None]:
        """The jobs as the server has them; None for those that will never run."""
        window = settings.get_seconds("LEPTON_SETTLE_SECONDS")
        sent = max((int(job.native["made_at"]) for job in jobs), default=0)
        found = self._look_for(jobs, min(window, sent + window - time.time()))
        # Also a job whose secrets an earlier `settle` deleted before it was killed.
        doubtful = [
            job
            for job in jobs
            if job.job_id not in found or self._files.is_marked(job.job_id, naming.FENCED)
        ]
        for job in doubtful:
            self._files.mark(job.job_id, naming.FENCED)
            self.remove_secrets(job.native["secrets"])
        found |= self._look_for(doubtful, window, has_begun)
        settled: dict[str, dict[str, Any] | None] = {**found}
        for job in doubtful:
            there = found.get(job.job_id)
            if there is None or not has_begun(there):
                self._files.mark(job.job_id, naming.UNWANTED)
                self._files.unmark(job.job_id, naming.FINGERPRINTS)
                settled[job.job_id] = None
                if there is not None:
                    self.remove_job(naming.id_of(there))
        return settled

    def remove_secrets(self, names: Sequence[str]) -> None:
        for name in names:
            self._client.delete(naming.below(naming.SECRETS, name))

    def remove_job(self, server_id: str) -> bool:
        return self._client.delete(naming.below(naming.JOBS, server_id))

    def _look_for(
        self,
        jobs: Sequence[JobRef],
        seconds: float,
        enough: Callable[[Mapping[str, Any]], bool] = bool,
    ) -> dict[str, dict[str, Any]]:
        """Those of the jobs that the server has, by our id. Ends early if all are `enough`."""
        deadline = time.monotonic() + seconds
        tokens = dict(job.identity for job in jobs)
        found: dict[str, dict[str, Any]] = {}
        while tokens:
            found |= self._find(tokens)
            tokens = {
                one: token
                for one, token in tokens.items()
                if one not in found or not enough(found[one])
            }
            if time.monotonic() >= deadline:
                break
            if tokens:
                time.sleep(_SETTLE_PAUSE_SECONDS)
        return found

    def _find(self, tokens: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        query = {"job_query_mode": naming.EVERYWHERE}
        if len(tokens) <= _FEW:
            asked = [{**query, "q": naming.job_name(job_id)} for job_id in tokens]
        else:
            asked = [{**query, "query": naming.OURS}]
        found: dict[str, dict[str, Any]] = {}
        for one in asked:
            for page in self._client.pages(naming.JOBS, "jobs", **one):
                for job in page:
                    job_id, labels = naming.job_id_in(job), naming.labels_of(job)
                    if tokens.get(job_id) == labels.get(naming.LABEL_TOKEN, ""):
                        found.setdefault(job_id, job)
        return found

    def _take_back_after(self, refusal: Exception, secrets: Sequence[str]) -> None:
        """Remove the secrets of a refused job. While they are there, the submission is in doubt,
        and `settle` tries again.
        """
        try:
            self.remove_secrets(secrets)
        except TaoError as error:
            raise BackendUnreachableError(
                f"{refusal}; the secrets of the job could not be removed: {error}"
            ) from error


@contextmanager
def _refusals(what: str, hint: str = "") -> Iterator[None]:
    """Turn a certain refusal into `SubmissionRejectedError`."""
    try:
        yield
    except RefusedError as error:
        if error.status not in DEFINITIVE:
            raise
        reason = f"Lepton refuses {what}: {error.message}"
        raise SubmissionRejectedError(f"{reason} ({hint})" if hint else reason) from error
