"""Create a Job, JobSet or TrainJob with all that belongs to it, and settle a half-made one.

The steps, and what a client leaves that is killed after each of them::

    0  create the TrainingRuntime    for a TrainJob: a runtime, marked as not yet submitted
    1  create the root               a root as in 2; a Job without companions is submitted
    2  create its companions         a suspended root, marked as not yet submitted, that owns them
    3  remove mark and suspension    a submitted job

`settle` deletes a root in the state of 2 on the condition that it has not changed: either step 3 or
the deletion fails. The cluster removes companions of a deleted root.

If `settle` finds no root, a request for one may still be on its way. Then `settle` occupies the
name of the Job by a fence: a Job that runs nothing and is removed after some minutes. Step 1
creates a Job of that name; for a JobSet or a TrainJob the first companion is a fence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError
from tao_sdk.platforms.kubernetes import kinds, manifests, naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.status import is_half_made

# With these statuses the server has done nothing.
DEFINITIVE = frozenset({400, 401, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422})
_QUOTA_PAUSES = (0.1, 0.4, 1.6)
_SETTLE_SECONDS = 30.0
_SETTLE_PAUSE_SECONDS = 0.1
_DECLARED = "another process declared this job never submitted"


class Submitter:
    """Submits jobs to one cluster."""

    def __init__(self, api: KubernetesClient) -> None:
        self._api = api

    def make(self, objects: manifests.Objects) -> dict[str, Any]:
        """Submit a job; returns its root as the cluster has it."""
        for resource, body in objects.before:
            self.create_before(resource, body)
        try:
            made = self.create_job(objects.root)
        except SubmissionRejectedError:
            self._remove_before(objects)
            raise
        if objects.release is None:
            return made
        try:
            for resource, body in objects.before:
                self._adopt(made, resource, body)
            for resource, companion in objects.companions:
                self.create_companion(made, resource, companion)
            return self.release(made, objects.release)
        except SubmissionRejectedError as refusal:
            self._take_back_after(refusal, made)
            raise

    # Each step is a method, so that tests can kill the client between any two of them.

    def create_before(self, resource: str, body: Mapping[str, Any]) -> None:
        self._create(f"the {body['kind']}", _collection(resource, body), body)

    def create_job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        namespace, kind = job["metadata"]["namespace"], job["kind"]
        try:
            return self._create(f"the {kind}", _parent(kinds.path_of(job)), job)
        except ApiError as error:
            if not error.conflict:
                raise
            found = self.find(job)
            if found is not None and is_fence(found):
                raise SubmissionRejectedError(_DECLARED) from error
            raise BackendUnreachableError(
                f"the name of the {kind} is taken in namespace {namespace}: {error}"
            ) from error

    def create_companion(
        self, root: Mapping[str, Any], resource: str, companion: Mapping[str, Any]
    ) -> None:
        metadata = {**companion["metadata"], "ownerReferences": [manifests.owner_of(root)]}
        what = f"the {companion['kind']} {metadata['name']}"
        try:
            self._create(
                what, _collection(resource, companion), {**companion, "metadata": metadata}
            )
        except ApiError as error:
            if error.conflict and is_fence(companion):
                raise SubmissionRejectedError(_DECLARED) from error
            raise

    def release(self, root: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
        """Let a root start whose companions exist."""
        metadata = root["metadata"]
        # The uid keeps the change from a later object of the same name.
        body = {**change, "metadata": {**change["metadata"], "uid": metadata["uid"]}}
        with _refusals(f"that the {root['kind']} may start", metadata["namespace"]):
            return self._api.patch(kinds.path_of(root), body)

    def stop(self, root: Mapping[str, Any]) -> None:
        """Delete a root after its pods, so that it is there until they have ended."""
        conditions = {"uid": root["metadata"]["uid"]}
        options = {"preconditions": conditions, "propagationPolicy": "Foreground"}
        self._delete(kinds.path_of(root), options)

    def take_back(self, root: Mapping[str, Any], *, version: bool) -> bool:
        """Delete a root with all it owns; False if it has changed since it was read."""
        metadata = root["metadata"]
        conditions = {"uid": metadata["uid"]}
        if version:
            conditions["resourceVersion"] = metadata["resourceVersion"]
        return self._delete(
            kinds.path_of(root), {"preconditions": conditions, "propagationPolicy": "Background"}
        )

    def _delete(self, path: str, options: Mapping[str, Any]) -> bool:
        try:
            self._api.delete(path, options)
        except ApiError as error:
            if error.missing:
                return True
            if error.conflict:
                return False
            raise
        return True

    def _adopt(self, root: Mapping[str, Any], resource: str, body: Mapping[str, Any]) -> None:
        """Make the root the owner of an object that was created before it."""
        change = {
            "metadata": {
                "ownerReferences": [manifests.owner_of(root)],
                "labels": {naming.LABEL_SUBMITTING: None},
            }
        }
        with _refusals(f"to change the {body['kind']}", body["metadata"]["namespace"]):
            self._api.patch(f"{_collection(resource, body)}/{body['metadata']['name']}", change)

    def _remove_before(self, objects: manifests.Objects) -> None:
        for resource, body in objects.before:
            self._delete(f"{_collection(resource, body)}/{body['metadata']['name']}", {})

    def _create(self, what: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        for pause in (*_QUOTA_PAUSES, None):
            try:
                with _refusals(what, body["metadata"]["namespace"]):
                    return self._api.create(path, body, fieldValidation="Strict")
            except ApiError as error:
                # Concurrent requests count against one quota; nothing was created.
                if error.reason != "Conflict":
                    raise
                if pause is None:
                    raise SubmissionRejectedError(
                        f"Kubernetes is too busy for {what}: {error.message}"
                    ) from error
                time.sleep(pause)
        raise AssertionError("the last attempt either succeeds or raises")

    def _take_back_after(self, refusal: SubmissionRejectedError, job: Mapping[str, Any]) -> None:
        """Delete a root after a refusal of its companions, or report that it stays."""
        try:
            self.take_back(job, version=False)
        except ApiError as error:
            if not error.forbidden:
                raise
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            kind = job["kind"]
            raise SubmissionRejectedError(
                f"{refusal}. Its {kind} exists, suspended, and you may not delete it: ask for "
                f"kubectl delete {kind.lower()} {name} -n {namespace}"
            ) from refusal

    def find(self, root: Mapping[str, Any]) -> dict[str, Any] | None:
        """The object of this kind, namespace and name."""
        try:
            return self._api.get(kinds.path_of(root))
        except ApiError as error:
            if error.missing:
                return None
            raise

    def settle(self, root: Mapping[str, Any], token: str) -> dict[str, Any] | None:
        """The root, if its submission is complete; None if it never will be, or it is gone."""
        kind, metadata = root["kind"], root["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        fenced = False
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            found = self.find(root)
            if found is None:
                # Without a fence, a JobSet or TrainJob was never released, or is gone.
                if fenced and kind != kinds.JOB.kind:
                    return None
                if self._fence(namespace, name):
                    self._remove_runtime(root)
                    return None
                fenced = True
            elif is_fence(found):
                return None
            elif (found["metadata"].get("labels") or {}).get(naming.LABEL_TOKEN) != token:
                raise BackendUnreachableError(
                    f"{kind} {name} in namespace {namespace} is not the one of this submission"
                )
            elif not is_half_made(found):
                return found
            elif not _is_going(found) and self.take_back(found, version=True):
                self._remove_runtime(root)
                return None
            time.sleep(_SETTLE_PAUSE_SECONDS)
        raise BackendUnreachableError(
            f"it is unknown what became of {kind} {name} in namespace {namespace}: it is being "
            "deleted, or changes all the time"
        )

    def _remove_runtime(self, root: Mapping[str, Any]) -> None:
        """Delete the runtime of a TrainJob that will never exist: it may have no owner yet."""
        if root["kind"] == kinds.TRAINJOB.kind:
            path = kinds.TRAINING_RUNTIME.path(
                root["metadata"]["namespace"], root["metadata"]["name"]
            )
            self._delete(path, {})

    def _fence(self, namespace: str, name: str) -> bool:
        """Occupy the name of a Job; False if the name is taken."""
        try:
            self._api.create(kinds.JOB.path(namespace), manifests.fence(name, namespace))
        except ApiError as error:
            if error.conflict:
                return False
            if error.missing:
                return True  # there is no namespace, so no request can create anything
            raise
        return True


def _is_going(job: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in job["metadata"]


def _collection(resource: str, body: Mapping[str, Any]) -> str:
    version = body["apiVersion"]
    above = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{above}/namespaces/{body['metadata']['namespace']}/{resource}"


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def is_fence(job: Mapping[str, Any]) -> bool:
    return naming.LABEL_FENCE in (job["metadata"].get("labels") or {})


@contextmanager
def _refusals(what: str, namespace: str) -> Iterator[None]:
    """Turn answers after which nothing was done into `SubmissionRejectedError`."""
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
