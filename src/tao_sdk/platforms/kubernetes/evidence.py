"""Raw facts about the end of a job: from its Job, its pods, their logs, and events."""

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
# These causes delete pods, so afterwards only events show them.
_REMOVED_BY = ("Preempted", "TaintManagerEviction", "NodeControllerEviction")
_MAX_EVENTS = "2000"
# Warnings about containers that cannot be created.
_NEVER_CREATED = ("Failed: ", "BackOff: ", "FailedMount: ", "ErrImage", "InspectFailed: ")


class EvidenceCollector:
    """Collects evidence from one cluster."""

    def __init__(self, api: KubernetesClient) -> None:
        self._api = api

    def evidence(self, job: JobRef) -> RawEvidence:
        """The evidence of a job; empty if the cluster has forgotten it."""
        namespace, name = job.native["namespace"], naming.job_name(job.job_id)
        found = self._job(job)
        if found is None or is_another(found, job.native):
            return RawEvidence(Evidence())
        pods = without_forgiven(found, self._pods(namespace, job.job_id, found["metadata"]["uid"]))
        reason = condition_text(found)
        if not pods:
            reason = self._reason_without_pods(namespace, name, reason)
        values = self._secret_values(job, namespace, name)
        tail = "" if values is None else self._log_tail(namespace, pods, int(job.native["nodes"]))
        ended = conclude(pods, int(job.native["nodes"]), reason)
        evidence = replace(
            ended,
            log_tail=tail,
            never_started=bool(pods) and not any(map(has_begun, pods)),
            # Kubernetes says so if memory was the reason.
            memory_sufficed="OOMKilled" not in ended.reason,
        )
        return RawEvidence(evidence, values or ())

    def _job(self, job: JobRef) -> dict[str, Any] | None:
        """Its Job, or its JobSet or TrainJob translated into one."""
        named = kinds.named(job.native, job.job_id)
        root = self._get(kinds.path_of(named))
        if root is None or kinds.root_of(job.native) is kinds.JOB:
            return root
        path = kinds.JOB.path(job.native["namespace"], kinds.child_of(named["metadata"]["name"]))
        child = self._get(path)
        return kinds.as_job(root, [child] if child else [])

    def _pods(self, namespace: str, job_id: str, uid: str) -> list[dict[str, Any]]:
        """Its pods; none if we may not list them."""
        path, selector = naming.core_path(namespace, "pods"), naming.pods_selector(job_id, uid)
        try:
            return self._api.list_all(path, labelSelector=selector).items
        except ApiError as error:
            if error.forbidden:
                return []
            raise

    def _log_tail(self, namespace: str, pods: Sequence[Pod], nodes: int) -> str:
        """The end of the log of the pod that failed first: the others followed from it."""
        first = first_failed(pods) or next(iter(in_order(pods)), None)
        if first is None or not has_begun(first):
            return ""
        try:
            lines = last_lines(self._api, namespace, first, _LINES)
        except PlatformError as error:
            # The log is on the pod's node, which may be what was lost.
            _log.info("explained without the log of pod %s: %s", name_of(first), error)
            return ""
        prefix = rank_prefix(rank_of(first), nodes)
        return "\n".join(prefix + line for line in lines)

    def _secret_values(self, job: JobRef, namespace: str, name: str) -> list[Secret] | None:
        """The values to hide; None if we cannot read them. Then no log is quoted."""
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

    def _reason_without_pods(self, namespace: str, name: str, condition: str) -> str:
        """The reason by its Job, and by events about it and its former pods."""
        listed = self._get(naming.core_path(namespace, "events"), limit=_MAX_EVENTS) or {}
        about = [
            event
            for event in listed.get("items") or ()
            if str(event["involvedObject"].get("name", "")).startswith(name)
        ]
        return reason_in_events(about, condition)

    def _get(self, path: str, **query: str) -> dict[str, Any] | None:
        """An object; None if it does not exist, or we may not read it."""
        try:
            return self._api.get(path, **query)
        except ApiError as error:
            if error.missing or error.forbidden:
                return None
            raise


def conclude(pods: Sequence[Pod], nodes: int, reason: str) -> Evidence:
    """The end of a job with this many nodes, by its pods."""
    first = first_failed(pods)
    if first is None:
        waiting = [pod for pod in in_order(pods) if phase_of(pod) != "Succeeded"]
        reasons = [*(end_of(pod).reason for pod in waiting[:1]), reason]
        return Evidence(reason="\n".join(filter(None, reasons)))
    end = end_of(first)
    text = "\n".join(filter(None, (end.reason, reason)))
    return Evidence(exit_code=end.exit_code, reason=text, replicas=_ranks(pods, nodes))


def condition_text(job: Mapping[str, Any]) -> str:
    """The failure by the Job itself, if that is more than "too many retries"."""
    condition = conditions_of(job).get("Failed") or {}
    if not condition or condition.get("reason") in EMPTY_WORDS:
        return ""
    return f"{condition.get('reason')}: {condition.get('message', '')}"


def reason_in_events(events: Sequence[Mapping[str, Any]], condition: str) -> str:
    """Why a Job ended whose pods are gone; `condition` is its own text."""
    if taken := latest([event for event in events if event.get("reason") in _REMOVED_BY]):
        return f"{taken.reason}: {taken.message}"
    empty = (*EMPTY_WORDS, "DeadlineExceeded")
    issue = issue_from([event for event in events if event.get("reason") not in empty])
    warning = f"{issue.reason}: {issue.message}" if issue else ""
    # An image that could not be pulled is the cause, not the deadline that was reached by that.
    has_started = any(event.get("reason") == "Started" for event in events)
    if warning.startswith(_NEVER_CREATED) and not has_started:
        return warning
    return "\n".join(filter(None, (condition, warning)))


def _ranks(pods: Sequence[Pod], nodes: int) -> tuple[ReplicaEvidence, ...]:
    """Every rank, by its last pod. Without one, it was stopped when another rank failed."""
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
