"""Why a job ended as it did: what its Job, its pods and their logs say."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tao_sdk.errors import PlatformError
from tao_sdk.failures import Evidence, ReplicaEvidence
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.common.log_lines import rank_prefix
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.kubernetes import kinds, naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.logs import last_lines
from tao_sdk.platforms.kubernetes.pods import (
    Pod,
    end_of,
    has_begun,
    in_order,
    issue_from,
    latest,
    name_of,
    node_of,
    phase_of,
    rank_of,
)
from tao_sdk.platforms.kubernetes.status import (
    EMPTY_WORDS,
    conditions_of,
    first_failed,
    is_another,
    without_forgiven,
)
from tao_sdk.secrets import Secret

_log = logging.getLogger("tao_sdk.kubernetes")
_LINES = 200
_STOPPED = "stopped by Kubernetes together with the others"
# Pods that are taken are deleted: nothing but an event tells of it afterwards.
_TAKEN = ("Preempted", "TaintManagerEviction", "NodeControllerEviction")
_MOST_EVENTS = "2000"
# Warnings about containers that cannot be made.
_KEEPS_FROM_STARTING = ("Failed: ", "BackOff: ", "FailedMount: ", "ErrImage", "InspectFailed: ")


class Witness:
    """Asks a cluster about a job that failed."""

    def __init__(self, api: KubernetesClient) -> None:
        self._api = api

    def evidence(self, job: JobRef) -> RawEvidence:
        """What explains the end of a job; nothing when the cluster has forgotten it."""
        namespace, name = job.native["namespace"], naming.job_name(job.job_id)
        found = self._job(job)
        if found is None or is_another(found, job.native):
            return RawEvidence(Evidence())
        pods = without_forgiven(found, self._pods(namespace, job.job_id, found["metadata"]["uid"]))
        reason = condition_text(found)
        if not pods:
            reason = self._told_without_pods(namespace, name, reason)
        values = self._secret_values(job, namespace, name)
        tail = "" if values is None else self._log_tail(namespace, pods, int(job.native["nodes"]))
        ended = conclude(pods, int(job.native["nodes"]), reason)
        told = replace(
            ended,
            log_tail=tail,
            never_started=bool(pods) and not any(map(has_begun, pods)),
            # Where memory was the reason, Kubernetes says so.
            memory_sufficed="OOMKilled" not in ended.reason,
        )
        return RawEvidence(told, values or ())

    def _job(self, job: JobRef) -> dict[str, Any] | None:
        """Its Job, or the one that its JobSet or TrainJob stands for."""
        named = kinds.named(job.native, job.job_id)
        root = self._get(kinds.path_of(named))
        if root is None or kinds.root_of(job.native) is kinds.JOB:
            return root
        path = kinds.JOB.path(job.native["namespace"], kinds.child_of(named["metadata"]["name"]))
        child = self._get(path)
        return kinds.as_job(root, [child] if child else [])

    def _pods(self, namespace: str, job_id: str, uid: str) -> list[dict[str, Any]]:
        """Its pods; as if there were none, where nobody lets us look."""
        path, selector = naming.core_path(namespace, "pods"), naming.pods_selector(job_id, uid)
        try:
            return self._api.list_all(path, labelSelector=selector).items
        except ApiError as error:
            if error.forbidden:
                return []
            raise

    def _log_tail(self, namespace: str, pods: Sequence[Pod], nodes: int) -> str:
        """The end of the log of the pod that failed first; the others' are consequences."""
        first = first_failed(pods) or next(iter(in_order(pods)), None)
        if first is None or not has_begun(first):
            return ""
        try:
            lines = last_lines(self._api, namespace, first, _LINES)
        except PlatformError as error:
            # Its node is the one to be asked, and may be what was lost.
            _log.info("explained without the log of pod %s: %s", name_of(first), error)
            return ""
        prefix = rank_prefix(rank_of(first), nodes)
        return "\n".join(prefix + line for line in lines)

    def _secret_values(self, job: JobRef, namespace: str, name: str) -> list[Secret] | None:
        """The values of its environment, to be left out; None when they cannot be known.

        Then nothing of its log is quoted: it may hold one of them.
        """
        names = list(job.native.get("env_secrets", ()))
        if job.native["secret_names"]:
            names.append(f"{name}-env")
        values = []
        for each in names:
            held = self._get(naming.core_path(namespace, "secrets", each))
            if held is None:
                return None
            values += [
                Secret(base64.b64decode(value).decode("utf-8", "replace"))
                for value in (held.get("data") or {}).values()
            ]
        return values

    def _told_without_pods(self, namespace: str, name: str, condition: str) -> str:
        """What its Job says, and events about it and the pods that it had."""
        listed = self._get(naming.core_path(namespace, "events"), limit=_MOST_EVENTS) or {}
        about = [
            event
            for event in listed.get("items") or ()
            if str(event["involvedObject"].get("name", "")).startswith(name)
        ]
        return told_by_events(about, condition)

    def _get(self, path: str, **query: str) -> dict[str, Any] | None:
        """None where it is not there, or nobody lets us look."""
        try:
            return self._api.get(path, **query)
        except ApiError as error:
            if error.missing or error.forbidden:
                return None
            raise


def conclude(pods: Sequence[Pod], nodes: int, reason: str) -> Evidence:
    """What pods say about the end of a job of so many nodes."""
    first = first_failed(pods)
    if first is None:
        waiting = [pod for pod in in_order(pods) if phase_of(pod) != "Succeeded"]
        said = [end_of(pod).reason for pod in waiting[:1]]
        return Evidence(reason="\n".join(filter(None, (*said, reason))))
    end = end_of(first)
    told = "\n".join(filter(None, (end.reason, reason)))
    return Evidence(exit_code=end.exit_code, reason=told, replicas=_ranks(pods, nodes))


def condition_text(job: Mapping[str, Any]) -> str:
    """What the Job says about its failure, where that is more than "too many retries"."""
    condition = conditions_of(job).get("Failed") or {}
    if not condition or condition.get("reason") in EMPTY_WORDS:
        return ""
    return f"{condition.get('reason')}: {condition.get('message', '')}"


def told_by_events(events: Sequence[Mapping[str, Any]], condition: str) -> str:
    """Why a Job ended whose pods are gone; `condition` is what it says itself."""
    if taken := latest([event for event in events if event.get("reason") in _TAKEN]):
        return f"{taken.reason}: {taken.message}"
    empty = (*EMPTY_WORDS, "DeadlineExceeded")
    issue = issue_from([event for event in events if event.get("reason") not in empty])
    warning = f"{issue.reason}: {issue.message}" if issue else ""
    # That an image did not come is what was wrong, not the deadline that put an end to it.
    has_started = any(event.get("reason") == "Started" for event in events)
    if warning.startswith(_KEEPS_FROM_STARTING) and not has_started:
        return warning
    return "\n".join(filter(None, (condition, warning)))


def _ranks(pods: Sequence[Pod], nodes: int) -> tuple[ReplicaEvidence, ...]:
    """Every rank: by its last pod, or as one that was stopped and removed when another failed."""
    last = {rank_of(pod): pod for pod in in_order(pods)}
    found = []
    for rank in range(nodes):
        pod = last.get(rank)
        if pod is None or phase_of(pod) not in ("Succeeded", "Failed"):
            node = node_of(pod) if pod is not None else ""
            found.append(ReplicaEvidence(rank, node, reason=_STOPPED))
            continue
        end = end_of(pod)
        found.append(
            ReplicaEvidence(
                rank, node_of(pod), end.exit_code, end.ended_at, end.reason, event=end.event
            )
        )
    return tuple(found)
