"""The state of jobs now: by one list of Jobs, and of pods if Jobs do not tell enough.

Polls of many jobs that are repeated soon, and of jobs that a caller waits for, use watches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import CANCELED_AND_GONE, MISSING, JobRef, Observation
from tao_sdk.platforms.kubernetes import kinds, naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.cluster import Cluster
from tao_sdk.platforms.kubernetes.status import (
    are_its_pods,
    has_ended,
    interpret,
    is_another,
    is_suspended,
    needs_events,
    needs_pods,
    needs_running_pods,
    queue_of,
)
from tao_sdk.platforms.kubernetes.submit import is_fence
from tao_sdk.platforms.kubernetes.watch import TELLING, NamespaceCache, Object, WatchBackoff

_log = logging.getLogger("tao_sdk.kubernetes")
_MAX_EVENTS = "500"

GONE = MISSING._replace(
    message="vanished: its Job is not in the cluster any more (it or its namespace was deleted, or "
    "the hour was over for which ended Jobs are kept), and it left no result record"
)
Events = dict[str, list[dict[str, Any]]]
Pods = dict[str, list[Object]]


class Snapshot(NamedTuple):
    """A namespace at one moment."""

    jobs: dict[str, Object]
    """By job id."""
    pods: Pods | None
    """Pods that tell more than their Job, by job id; None if we may not list them.

    Pods that run are among them only if their Job is being deleted; pods that have succeeded are
    not.
    """
    events: Events
    """Warnings about jobs that are otherwise unclear, by the uid of the object."""
    queued: Mapping[str, str]
    """Why a queue holds Jobs, by their uids."""

    def pods_of(self, job: Mapping[str, Any]) -> list[Object] | None:
        return None if self.pods is None else self.pods.get(_job_id(job), [])


class Observer:
    """Observes the jobs of one cluster."""

    def __init__(self, api: KubernetesClient, cluster: Cluster) -> None:
        self._api = api
        self._cluster = cluster
        self._caches: dict[str, NamespaceCache] = {}
        """By namespace, of all namespaces that were polled."""

    def observe(self, jobs: Sequence[JobRef]) -> dict[str, Observation]:
        """The state of each job; trouble with one namespace does not affect the others."""
        by_namespace: dict[str, list[JobRef]] = {}
        for job in jobs:
            by_namespace.setdefault(job.native["namespace"], []).append(job)
        seen: dict[str, Observation] = {}
        for namespace, some in by_namespace.items():
            try:
                snapshot = self.snapshot(namespace, some)
            except ApiError as error:
                reason = f"namespace {namespace}: {error.message}"
                seen |= {job.job_id: Observation(None, unreachable=reason) for job in some}
                continue
            seen |= {job.job_id: self._judge(job, snapshot) for job in some}
        return seen

    def snapshot(self, namespace: str, refs: Sequence[JobRef]) -> Snapshot:
        """Jobs, and what else it takes to judge them."""
        job_ids = [job.job_id for job in refs]
        jobs, known = self._watched(namespace, refs)
        pods: Pods | None = known
        if unknown := [job for job in refs if job.job_id not in jobs]:
            listed, pods = self._listed(namespace, unknown)
            jobs |= listed
            known |= pods or {}
            pods = None if pods is None else known
        asked = [jobs[job_id] for job_id in job_ids if job_id in jobs]
        now = datetime.now(timezone.utc)
        puzzling = [job for job in asked if needs_events(job, known.get(_job_id(job), ()), now)]
        events = self._events(namespace, puzzling, known) if puzzling else {}
        waits = any(is_suspended(job) and queue_of(job) and not has_ended(job) for job in asked)
        queued = self._cluster.waiting_reasons(namespace) if waits else {}
        return Snapshot(jobs, pods, events, queued)

    def backoff(self, job_ids: Sequence[str], longest: float) -> WatchBackoff:
        """The delays between polls of these jobs."""

        def only_cache() -> NamespaceCache | None:
            caches = list(self._caches.values())
            return caches[0] if len(caches) == 1 else None

        return WatchBackoff(only_cache, job_ids, longest)

    def close(self) -> None:
        """End the watches."""
        while self._caches:
            self._caches.popitem()[1].close()

    def _judge(self, job: JobRef, snapshot: Snapshot) -> Observation:
        found = snapshot.jobs.get(job.job_id)
        if found is not None and not is_fence(found) and not is_another(found, job.native):
            queued = snapshot.queued.get(found["metadata"]["uid"], "")
            seen = interpret(found, snapshot.pods_of(found), snapshot.events, queued)
            deleted_at = found["metadata"].get("deletionTimestamp")
            if deleted_at and job.cancel_requested:
                if not has_ended(found):
                    seen = seen._replace(message="being stopped")
                elif seen.state is JobState.ERROR and seen.ended_at >= deleted_at:
                    seen = seen._replace(state=JobState.CANCELED, message="cancelled")
            return seen._replace(due=has_ended(found))
        if job.cancel_requested:
            return CANCELED_AND_GONE._replace(due=True)
        return GONE

    # ------------------------------------------------------------------ watches and lists

    def _watched(self, namespace: str, refs: Sequence[JobRef]) -> tuple[dict[str, Object], Pods]:
        """The jobs that the watches know, with pods that match them."""
        cache = self._caches.setdefault(namespace, NamespaceCache(self._api, namespace))
        job_ids = [job.job_id for job in refs if kinds.root_of(job.native) is kinds.JOB]
        if naming.selector_of(job_ids) == naming.ALL:
            cache.note_poll()
        by_id = _by_id(cache.jobs() or ())
        jobs = {job_id: by_id[job_id] for job_id in job_ids if job_id in by_id}
        unclear = [job_id for job_id, job in jobs.items() if needs_pods(job)]
        if not unclear:
            return jobs, {}
        pods = _by_job(cache.pods() or ())
        for job_id in unclear:
            # The two watches may show different moments.
            if not are_its_pods(jobs[job_id], pods.get(job_id, ())):
                del jobs[job_id]
        return jobs, pods

    def _listed(
        self, namespace: str, refs: Sequence[JobRef]
    ) -> tuple[dict[str, Object], Pods | None]:
        """The jobs by lists of this moment."""
        job_ids = [job.job_id for job in refs]
        selector = naming.selector_of(job_ids)
        path = naming.jobs_path(namespace)
        listed = self._api.list_all(path, labelSelector=selector).items
        found = _by_id(listed)
        for kind in {kinds.root_of(job.native) for job in refs} - {kinds.JOB}:
            roots = self._api.list_all(kind.path(namespace), labelSelector=selector).items
            found |= _by_id(kinds.as_job(root, listed) for root in roots)
        jobs = {job_id: found[job_id] for job_id in job_ids if job_id in found}
        if not any(map(needs_pods, jobs.values())):
            return jobs, {}
        try:
            pods = self._pods(namespace, selector, TELLING)
            if stopping := [job_id for job_id, job in jobs.items() if needs_running_pods(job)]:
                running = naming.selector_of(stopping)
                pods += self._pods(namespace, running, "status.phase=Running")
        except ApiError as error:
            if not error.forbidden:
                raise
            _log.info("pods of namespace %s cannot be listed: %s", namespace, error)
            return jobs, None  # a Job itself shows how it ended
        return jobs, _by_job(pods)

    def _pods(self, namespace: str, selector: str, phases: str) -> list[Object]:
        path = naming.core_path(namespace, "pods")
        return self._api.list_all(path, labelSelector=selector, fieldSelector=phases).items

    def _events(
        self,
        namespace: str,
        jobs: Sequence[Mapping[str, Any]],
        pods: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> Events:
        """Warnings about these Jobs and their pods; none if we may not list events."""
        about = [*jobs, *(pod for job in jobs for pod in pods.get(_job_id(job), ()))]
        chosen = "type=Warning"
        if len(about) == 1:
            chosen += f",involvedObject.uid={about[0]['metadata']['uid']}"
        try:
            listed = self._api.get(
                naming.core_path(namespace, "events"), fieldSelector=chosen, limit=_MAX_EVENTS
            )
        except ApiError as error:
            _log.info("events of namespace %s cannot be read: %s", namespace, error)
            return {}
        found: Events = {}
        for event in listed.get("items") or ():
            found.setdefault(event["involvedObject"].get("uid", ""), []).append(event)
        return found


def list_pods(client: KubernetesClient, job: JobRef) -> list[Object]:
    """All pods of a job, ended ones included."""
    selector = naming.pods_selector(job.job_id, job.native.get("uid", ""))
    path = naming.core_path(job.native["namespace"], "pods")
    return client.list_all(path, labelSelector=selector).items


def _job_id(job: Mapping[str, Any]) -> str:
    return str((job["metadata"].get("labels") or {}).get(naming.LABEL_JOB, ""))


def _by_id(jobs: Iterable[Object]) -> dict[str, Object]:
    return {_job_id(job): job for job in jobs if _has_our_name(job)}


def _by_job(pods: Iterable[Object]) -> Pods:
    found: Pods = {}
    for pod in pods:
        found.setdefault(_job_id(pod), []).append(pod)
    return found


def _has_our_name(job: Mapping[str, Any]) -> bool:
    """Whether it is ours: a user's copy of a Job has the same labels."""
    return _name(job) == naming.job_name(_job_id(job))


def _name(job: Mapping[str, Any]) -> str:
    return str(job["metadata"]["name"])
