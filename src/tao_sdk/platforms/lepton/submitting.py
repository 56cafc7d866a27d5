"""Making a job with its secrets, and finding out what became of one half made.

The order, and what a client that is killed there leaves behind::

    1  create the pull secret    a pull secret of the workspace, made once and used by all
    2  create the job's secrets  secrets that nobody uses
    3  create the job            a job

A job is made by one request that is never repeated unless the server has refused it, and found
again by the name and the token that are in it. A list of jobs may be some seconds behind; so a job
that is not in it is looked for until LEPTON_SETTLE_SECONDS are over, and then declared never
submitted. Its secrets are removed, without which it could not start; and should it be seen
afterwards, whoever sees it removes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError, TaoError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.api import ApiError, LeptonApi
from tao_sdk.platforms.lepton.kept import Kept
from tao_sdk.platforms.lepton.payload import Objects

_log = logging.getLogger("tao_sdk.lepton")
# With these answers the server has done nothing.
DEFINITIVE = frozenset({400, 401, 403, 404, 405, 406, 409, 410, 411, 413, 414, 415, 422, 429})
EVERYWHERE = "alive_and_archive"
_FEW = 5
_SETTLE_PAUSE_SECONDS = 0.5
_REGISTRY = "https://nvcr.io"


class Submitting:
    """Jobs of one workspace, on their way to it."""

    def __init__(self, api: LeptonApi, kept: Kept) -> None:
        self._api = api
        self._kept = kept

    def make(self, objects: Objects) -> dict[str, Any]:
        """Submit; the job as the server has it then."""
        if objects.makes_pull_secret:
            self.create_pull_secret()
        if objects.secrets:
            self.create_secrets(objects.secrets)
        try:
            return self.create_job(objects.job)
        except BackendUnreachableError:
            labels = naming.labels_of(objects.job)
            tokens = {labels[naming.LABEL_JOB]: labels[naming.LABEL_TOKEN]}
            found = self._look_for(tokens)
            if not found:
                raise
            return next(iter(found.values()))
        except SubmissionRejectedError as refusal:
            self._take_back_after(refusal, [one["name"] for one in objects.secrets])
            raise

    # Each step is a method of its own, so that tests can die between any two of them.

    def create_pull_secret(self) -> None:
        name = naming.PULL_SECRET
        spec = {
            "registry_server": _REGISTRY,
            "username": settings.get("DOCKER_USERNAME"),
            "password": settings.lookup("NGC_KEY"),
        }
        try:
            with _refusals(f"the pull secret {name}", "image_pull_secret=[] goes without"):
                body = {"metadata": {"id": name, "name": name}, "spec": spec}
                self._api.create(naming.PULL_SECRETS, body)
        except ApiError as error:
            if not error.conflict:
                raise

    def create_secrets(self, secrets: Sequence[Mapping[str, str]]) -> None:
        """Where the answer is lost they are looked for: there are no others of their names."""
        names = {one["name"] for one in secrets}
        for is_last in (False, False, True):
            try:
                with _refusals("the secrets of the job"):
                    self._api.create(naming.SECRETS, [dict(one) for one in secrets])
                return
            except BackendUnreachableError:
                if is_last:
                    raise
            if names <= {str(one.get("name")) for one in self._api.get_list(naming.SECRETS)}:
                return

    def create_job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        with _refusals("the job"):
            made = self._api.create(naming.JOBS, job)
        if not isinstance(made, dict) or not naming.id_of(made):
            raise BackendUnreachableError("Lepton took the job, and did not say under which id")
        return made

    # ------------------------------------------------------------------ what became of them

    def settle(self, jobs: Sequence[JobRef]) -> dict[str, dict[str, Any] | None]:
        """The jobs as the server has them; None for those that it will never have."""
        there = self._look_for({job.job_id: job.identity.token for job in jobs})
        found: dict[str, dict[str, Any] | None] = {**there}
        for job in jobs:
            if job.job_id not in found:
                self._kept.mark_unwanted(job.job_id)
                self.remove_secrets(job.native["secrets"])
                found[job.job_id] = None
        return found

    def remove_secrets(self, names: Sequence[str]) -> None:
        for name in names:
            self._api.delete(naming.below(naming.SECRETS, name))

    def remove_job(self, server_id: str) -> bool:
        return self._api.delete(naming.below(naming.JOBS, server_id))

    def _look_for(self, tokens: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Those of the jobs that the server has, by our id, as soon as it tells of them."""
        deadline = time.monotonic() + settings.get_seconds("LEPTON_SETTLE_SECONDS")
        found: dict[str, dict[str, Any]] = {}
        while True:
            missing = {job_id: tokens[job_id] for job_id in tokens if job_id not in found}
            found |= self._find(missing)
            if len(found) == len(tokens) or time.monotonic() >= deadline:
                return found
            time.sleep(_SETTLE_PAUSE_SECONDS)

    def _find(self, tokens: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        query = {"job_query_mode": EVERYWHERE}
        if len(tokens) <= _FEW:
            asked = [{**query, "q": naming.job_name(job_id)} for job_id in tokens]
        else:
            asked = [{**query, "query": naming.OURS}]
        found: dict[str, dict[str, Any]] = {}
        for one in asked:
            for page in self._api.pages(naming.JOBS, "jobs", **one):
                for job in page:
                    job_id, labels = naming.job_id_in(job), naming.labels_of(job)
                    if tokens.get(job_id) == labels.get(naming.LABEL_TOKEN, ""):
                        found.setdefault(job_id, job)
        return found

    def _take_back_after(self, refusal: Exception, secrets: Sequence[str]) -> None:
        try:
            self.remove_secrets(secrets)
        except TaoError as error:
            # Whoever looks at ended jobs next removes them.
            _log.warning("secrets of a job that was refused (%s) stay: %s", refusal, error)


@contextmanager
def _refusals(what: str, hint: str = "") -> Iterator[None]:
    """An answer that is certainly a no becomes `SubmissionRejectedError`."""
    try:
        yield
    except ApiError as error:
        if error.status not in DEFINITIVE or (error.conflict and hint):
            raise
        told = f"Lepton refuses {what}: {error.message}"
        raise SubmissionRejectedError(f"{told} ({hint})" if hint else told) from error
