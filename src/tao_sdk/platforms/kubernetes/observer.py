"""What is true about jobs now: one list of Jobs, and of pods where Jobs do not tell enough."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from typing import Any, NamedTuple

from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import MISSING, JobRef, Observation
from tao_sdk.platforms.common.job_files import CANCELED, JobFiles
from tao_sdk.platforms.kubernetes import kinds, naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.cluster import Cluster
from tao_sdk.platforms.kubernetes.following import TELLING, Following
from tao_sdk.platforms.kubernetes.saving import LogSaver
from tao_sdk.platforms.kubernetes.states import (
    are_its_pods,
    has_ended,
    interpret,
    is_another,
    is_suspended,
    needs_events,
    needs_pods,
    queue_of,
)
from tao_sdk.platforms.kubernetes.submit import is_fence

_log = logging.getLogger("tao_sdk.kubernetes")
_MOST_EVENTS = "500"
_LAST_LINES_SECONDS = 5.0

GONE = MISSING._replace(
    message="vanished: its Job is not in the cluster any more (somebody deleted it or its "
    "namespace, or the time was over for which ended Jobs are kept), and it left no result record"
)

Object = dict[str, Any]
Events = dict[str, list[dict[str, Any]]]


class Look(NamedTuple):
    """A namespace at one moment."""

    jobs: dict[str, Object]
    """By the job's id."""
    pods: dict[str, list[Object]] | None
    """Those that neither run nor have succeeded, where they matter; by the job's id.

    None, if we may not list them.
    """
    events: Events
    """Warnings, where they matter; by the uid of what they are about."""
    queued: Mapping[str, str]

    def pods_of(self, job: Mapping[str, Any]) -> list[Object] | None:
        return None if self.pods is None else self.pods.get(_job_id(job), [])


class Observer:
    """Looks at the jobs of one cluster."""

    def __init__(
        self, api: KubernetesClient, cluster: Cluster, kept: JobFiles, saver: LogSaver
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._kept = kept
        self._saver = saver
        self.namespaces: set[str] = set()
        """Where jobs have been looked for."""
        self._followed: dict[str, Following] = {}
        """By namespace, where many jobs are looked for."""

    def observe(self, jobs: Sequence[JobRef]) -> dict[str, Observation]:
        """The state of each job; a namespace that cannot be asked is no other's trouble."""
        by_namespace: dict[str, list[JobRef]] = {}
        for job in jobs:
            by_namespace.setdefault(job.native["namespace"], []).append(job)
        # Asked only when a job is not there, and then once for each cluster that jobs remember.
        is_here = cache(
            lambda server, cluster: self._cluster.is_that_of({"server": server, "cluster": cluster})
        )
        seen: dict[str, Observation] = {}
        for namespace, some in by_namespace.items():
            self.namespaces.add(namespace)
            try:
                look = self.look(namespace, some)
            except ApiError as error:
                told = f"namespace {namespace}: {error.message}"
                seen |= {job.job_id: Observation(None, unreachable=told) for job in some}
                continue
            # After the look: whoever cancels says so before the Job hears of it.
            canceled = self._kept.marked((job.job_id for job in some), CANCELED)
            seen |= {
                job.job_id: self._judge(job, look, is_here, canceled=job.job_id in canceled)
                for job in some
            }
        return seen

    def look(self, namespace: str, refs: Sequence[JobRef]) -> Look:
        """Jobs, and what else it takes to understand them."""
        job_ids = [job.job_id for job in refs]
        selector = naming.selector_of(job_ids)
        wrappers = {kinds.root_of(job.native) for job in refs} - {kinds.JOB}
        watched = selector == naming.ALL and not wrappers
        known = self._known(namespace, job_ids) if watched else None
        if known is None:
            path = naming.jobs_path(namespace)
            listed = self._api.list_all(path, labelSelector=selector).items
            jobs = _by_id(listed)
            for kind in wrappers:
                roots = self._api.list_all(kind.path(namespace), labelSelector=selector).items
                jobs |= _by_id([kinds.as_job(root, listed) for root in roots])
            asked = [jobs[job_id] for job_id in job_ids if job_id in jobs]
            pods = self._pods(namespace, selector) if any(map(needs_pods, asked)) else {}
        else:
            jobs, pods = known
            asked = [jobs[job_id] for job_id in job_ids]
        now = datetime.now(timezone.utc)
        told = pods or {}
        puzzling = [job for job in asked if needs_events(job, told.get(_job_id(job), ()), now)]
        events = self._events(namespace, puzzling, told) if puzzling else {}
        waits = any(is_suspended(job) and queue_of(job) and not has_ended(job) for job in asked)
        queued = self._cluster.waiting_reasons(namespace) if waits else {}
        return Look(jobs, pods, events, queued)

    def close(self) -> None:
        """Stop following."""
        while self._followed:
            self._followed.popitem()[1].close()

    def elsewhere(self, job: JobRef) -> str:
        """Why this cluster cannot be asked about a job that it does not know."""
        return (
            f"the job was given to another cluster ({job.native['server']}, context "
            f"{job.native['context']}); this one is {self._api.access.server}: choose it with "
            "TAO_K8S_CONTEXT or KUBECONFIG"
        )

    def _judge(
        self, job: JobRef, look: Look, is_here: Callable[[str, str], bool], *, canceled: bool
    ) -> Observation:
        found = look.jobs.get(job.job_id)
        if found is not None and not is_fence(found) and not is_another(found, job.native):
            seen = interpret(
                found,
                look.pods_of(found),
                look.events,
                look.queued.get(found["metadata"]["uid"], ""),
            )
            if seen.state in (JobState.COMPLETE, JobState.ERROR):
                self._saver.save(job, found["metadata"]["uid"])
                if canceled and seen.state is JobState.ERROR:
                    return seen._replace(state=JobState.CANCELED, message="cancelled")
            elif canceled:
                return seen._replace(message="being stopped")
            return seen
        if canceled:
            self._saver.finish(job.job_id, _LAST_LINES_SECONDS)
            return Observation(JobState.CANCELED, "cancelled", cancel_aware=True)
        if not is_here(job.native["server"], job.native["cluster"]):
            return Observation(None, unreachable=self.elsewhere(job))
        return GONE

    def _known(
        self, namespace: str, job_ids: Sequence[str]
    ) -> tuple[dict[str, Object], dict[str, list[Object]]] | None:
        """Jobs and pods as the cluster has told of them; None where it is to be asked.

        It is, when a job is not there (yet, or any more) or its pods do not fit.
        """
        following = self._followed.get(namespace)
        if following is None:
            following = self._followed.setdefault(namespace, Following(self._api, namespace))
        listed = following.jobs()
        if listed is None:
            return None
        jobs = _by_id(listed)
        if not jobs.keys() >= set(job_ids):
            return None
        unclear = [jobs[job_id] for job_id in job_ids if needs_pods(jobs[job_id])]
        if not unclear:
            return jobs, {}
        found = following.pods()
        if found is None:
            return None
        pods = _by_job(found)
        fit = all(are_its_pods(job, pods.get(_job_id(job), ())) for job in unclear)
        return (jobs, pods) if fit else None

    def _pods(self, namespace: str, selector: str) -> dict[str, list[Object]] | None:
        path = naming.core_path(namespace, "pods")
        query = {"labelSelector": selector, "fieldSelector": TELLING}
        try:
            return _by_job(self._api.list_all(path, **query).items)
        except ApiError as error:
            if not error.forbidden:
                raise
            _log.info("pods of namespace %s cannot be listed: %s", namespace, error)
            return None  # how a Job ended, it says itself

    def _events(
        self,
        namespace: str,
        jobs: Sequence[Mapping[str, Any]],
        pods: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> Events:
        """Warnings about these Jobs and their pods. Whoever may see none goes without."""
        about = [*jobs, *(pod for job in jobs for pod in pods.get(_job_id(job), ()))]
        chosen = "type=Warning"
        if len(about) == 1:
            chosen += f",involvedObject.uid={about[0]['metadata']['uid']}"
        try:
            listed = self._api.get(
                naming.core_path(namespace, "events"), fieldSelector=chosen, limit=_MOST_EVENTS
            )
        except ApiError as error:
            _log.info("events of namespace %s cannot be read: %s", namespace, error)
            return {}
        found: Events = {}
        for event in listed.get("items") or ():
            found.setdefault(event["involvedObject"].get("uid", ""), []).append(event)
        return found


def _job_id(job: Mapping[str, Any]) -> str:
    return str((job["metadata"].get("labels") or {}).get(naming.LABEL_JOB, ""))


def _by_id(jobs: Sequence[Object]) -> dict[str, Object]:
    return {_job_id(job): job for job in jobs if _is_by_name(job)}


def _by_job(pods: Sequence[Object]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for pod in pods:
        found.setdefault(_job_id(pod), []).append(pod)
    return found


def _is_by_name(job: Mapping[str, Any]) -> bool:
    """Is it the job itself? Somebody's copy of it has its labels as well."""
    return _name(job) == naming.job_name(_job_id(job))


def _name(job: Mapping[str, Any]) -> str:
    return str(job["metadata"]["name"])
