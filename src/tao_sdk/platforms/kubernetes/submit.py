"""Making a Job with all that belongs to it, and finding out what became of one half made.

The order, and what a client that is killed there leaves behind::

    1  create the Job            nothing; or a Job, see 2. Without companions this is all.
    2  create its companions     a suspended Job, marked as not yet submitted, and what it owns
    3  mark and suspension go    a submitted Job

A Job in the state of 2 is taken back with the version that was seen as a condition: if step 3 was
on its way after all, either it or the removal finds something else than it expects, and loses.
What was still being made for a Job that is gone belongs to nobody, and the cluster removes it.

A Job that is not there may be on its way. Its name is then taken by a fence: a Job that has
nothing to do and goes by itself. A name is given once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError
from tao_sdk.platforms.kubernetes import manifests, naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.states import is_half_made

# With these answers the server has done nothing.
DEFINITIVE = frozenset({400, 401, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422})
_QUOTA_PAUSES = (0.1, 0.4, 1.6)
_SETTLE_SECONDS = 30.0
_SETTLE_PAUSE_SECONDS = 0.1


class Submitter:
    """Jobs of one cluster, on their way to it."""

    def __init__(self, api: KubernetesClient) -> None:
        self._api = api

    def make(self, objects: manifests.Objects) -> dict[str, Any]:
        """Submit; the Job as the cluster has it then."""
        made = self.create_job(objects.job)
        if objects.release is None:
            return made
        try:
            for resource, companion in objects.companions:
                self.create_companion(made, resource, companion)
            return self.release(made, objects.release)
        except SubmissionRejectedError as refusal:
            self._take_back_after(refusal, made)
            raise

    # Each step is a method of its own, so that tests can die between any two of them.

    def create_job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        namespace = job["metadata"]["namespace"]
        try:
            return self._create("the Job", naming.jobs_path(namespace), job)
        except ApiError as error:
            if not error.conflict:
                raise
            found = self.find(namespace, job["metadata"]["name"])
            if found is not None and is_fence(found):
                raise SubmissionRejectedError(
                    "another process declared this job never submitted"
                ) from error
            raise BackendUnreachableError(f"the Job's name is taken: {error}") from error

    def create_companion(
        self, job: Mapping[str, Any], resource: str, companion: Mapping[str, Any]
    ) -> None:
        namespace = companion["metadata"]["namespace"]
        what = f"the {companion['kind']} {companion['metadata']['name']}"
        owned = manifests.owned_by(job, companion)
        self._create(what, naming.core_path(namespace, resource), owned)

    def release(self, job: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
        """Let a Job start whose companions are all there."""
        metadata = job["metadata"]
        # The uid makes it a change of this Job, not of a later one of the same name.
        body = {**change, "metadata": {**change["metadata"], "uid": metadata["uid"]}}
        with _refusals("that the Job may start", metadata["namespace"]):
            return self._api.patch(naming.jobs_path(metadata["namespace"], metadata["name"]), body)

    def take_back(self, job: Mapping[str, Any], *, version: bool) -> bool:
        """Delete a Job with all it owns; False when it is not what we saw any more."""
        metadata = job["metadata"]
        conditions = {"uid": metadata["uid"]}
        if version:
            conditions["resourceVersion"] = metadata["resourceVersion"]
        try:
            self._api.delete(
                naming.jobs_path(metadata["namespace"], metadata["name"]),
                {"preconditions": conditions, "propagationPolicy": "Background"},
            )
        except ApiError as error:
            if error.missing:
                return True
            if error.conflict:
                return False
            raise
        return True

    def _create(self, what: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        for pause in (*_QUOTA_PAUSES, None):
            try:
                with _refusals(what, body["metadata"]["namespace"]):
                    return self._api.create(path, body, fieldValidation="Strict")
            except ApiError as error:
                # Many counted against one quota at the same moment, and nothing was made.
                if error.reason != "Conflict":
                    raise
                if pause is None:
                    raise SubmissionRejectedError(
                        f"Kubernetes is too busy for {what}: {error.message}"
                    ) from error
                time.sleep(pause)
        raise AssertionError("the last attempt either succeeds or raises")

    def _take_back_after(self, refusal: SubmissionRejectedError, job: Mapping[str, Any]) -> None:
        """Remove what a refusal left half made, or say that it is there."""
        try:
            self.take_back(job, version=False)
        except ApiError as error:
            if not error.forbidden:
                raise
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            raise SubmissionRejectedError(
                f"{refusal}. Its Job is there, suspended, and you may not remove it: have somebody "
                f"run kubectl delete job {name} -n {namespace}"
            ) from refusal

    def find(self, namespace: str, name: str) -> dict[str, Any] | None:
        try:
            return self._api.get(naming.jobs_path(namespace, name))
        except ApiError as error:
            if error.missing:
                return None
            raise

    def settle(self, namespace: str, job_id: str, token: str) -> dict[str, Any] | None:
        """The Job, if its submission is complete. None: it never will be."""
        name = naming.job_name(job_id)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            found = self.find(namespace, name)
            if found is None:
                if self._fence(namespace, job_id):
                    return None
            elif is_fence(found):
                return None
            elif (found["metadata"].get("labels") or {}).get(naming.LABEL_TOKEN) != token:
                raise BackendUnreachableError(
                    f"Job {name} in namespace {namespace} is not the one of this submission"
                )
            elif not is_half_made(found):
                return found
            elif not _is_going(found) and self.take_back(found, version=True):
                return None
            time.sleep(_SETTLE_PAUSE_SECONDS)
        raise BackendUnreachableError(
            f"the cluster does not say what became of Job {name} in namespace {namespace}: it is "
            "being deleted, or changes all the time"
        )

    def _fence(self, namespace: str, job_id: str) -> bool:
        """Take the name of a Job that is not there; False when somebody was faster."""
        try:
            self._api.create(naming.jobs_path(namespace), manifests.fence(job_id, namespace))
        except ApiError as error:
            if error.conflict:
                return False
            if error.missing:
                return True  # without the namespace nothing can be made in it
            raise
        return True


def _is_going(job: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in job["metadata"]


def is_fence(job: Mapping[str, Any]) -> bool:
    return naming.LABEL_FENCE in (job["metadata"].get("labels") or {})


@contextmanager
def _refusals(what: str, namespace: str) -> Iterator[None]:
    """An answer that means "no, and nothing was done"."""
    try:
        yield
    except ApiError as error:
        if error.status not in DEFINITIVE:
            raise
        if error.missing and "namespaces" in error.message:
            raise SubmissionRejectedError(
                f"there is no namespace {namespace}: create it (kubectl create namespace "
                f"{namespace}), or choose another (namespace=, TAO_K8S_NAMESPACE)"
            ) from error
        raise SubmissionRejectedError(f"Kubernetes refuses {what}: {error.message}") from error
