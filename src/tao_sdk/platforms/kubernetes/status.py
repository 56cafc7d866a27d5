"""The state of a job, from its Job and, where that is not enough, its pods and events. Pure.

A Job counts a pod as active from its creation, before it is on a node, so an active pod alone does
not mean "running". A Job has ended when one of its conditions says so, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import Observation
from tao_sdk.platforms.common.times import parse_time
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.pods import (
    Issue,
    Pod,
    end_of,
    has_begun,
    in_order,
    is_being_made,
    issue_from,
    issue_of,
    name_of,
    node_of,
    phase_of,
    rank_of,
    started_at,
)

Job = Mapping[str, Any]
Events = Mapping[str, Sequence[Mapping[str, Any]]]
"""Warnings, by the uid of the object that they are about."""
# A pod is created within moments; if not, an event says why.
_SOON = timedelta(seconds=3)
# A node sets up a pod in a few seconds; if not, an event may say why.
_BEING_MADE = timedelta(seconds=15)
# Reasons of a failed Job that say less than the end of its pods.
EMPTY_WORDS = (
    "BackoffLimitExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
_UNSEEN = "not all of its pods run; the reason is unknown, because you may not list pods"
_RESUME = 'kubectl patch job {name} -n {namespace} -p \'{{"spec":{{"suspend":false}}}}\''


def conditions_of(job: Job) -> dict[str, Mapping[str, Any]]:
    """The conditions that are true, by type."""
    return {
        condition["type"]: condition
        for condition in _status(job).get("conditions") or ()
        if condition.get("status") == "True"
    }


def has_ended(job: Job) -> bool:
    # "Completed" is the condition of a JobSet.
    return not conditions_of(job).keys().isdisjoint(("Complete", "Completed", "Failed"))


def is_half_made(job: Job) -> bool:
    """Whether its submission is not complete."""
    return naming.LABEL_SUBMITTING in (job["metadata"].get("labels") or {})


def is_another(job: Job, native: Mapping[str, Any]) -> bool:
    """Whether it is not the Job that was submitted, but a later one of the same name."""
    uid = job["metadata"]["uid"]
    return bool(native.get("uid", uid) != uid)


def is_suspended(job: Job) -> bool:
    return bool(job["spec"].get("suspend"))


def queue_of(job: Job) -> str:
    return str((job["metadata"].get("labels") or {}).get(naming.QUEUE_LABEL, ""))


def needs_pods(job: Job) -> bool:
    """Whether only its pods tell what it does, or how it failed."""
    if "Failed" in conditions_of(job):
        return True
    if has_ended(job) or is_suspended(job):
        return False
    if _count(job, "terminating"):
        return True
    return _count(job, "active") > _count(job, "ready")


def needs_running_pods(job: Job) -> bool:
    """Whether only its running pods show that it still runs: it is being deleted.

    The counts of such a Job are not updated any more.
    """
    deleted = bool(job["metadata"].get("deletionTimestamp"))
    return deleted and needs_pods(job) and not has_ended(job) and not _count(job, "ready")


def are_its_pods(job: Job, pods: Sequence[Pod]) -> bool:
    """Whether these pods match the counts of a Job that `needs_pods`.

    Jobs and pods that were observed separately may be of different moments. `pods` are those that
    neither run nor have succeeded.
    """
    if "Failed" in conditions_of(job):
        return any(phase_of(pod) == "Failed" for pod in pods)
    if needs_running_pods(job):
        return False
    waiting = sum(phase_of(pod) == "Pending" for pod in pods)
    return not _count(job, "terminating") and _count(job, "ready") + waiting == _count(
        job, "active"
    )


def needs_events(job: Job, pods: Sequence[Pod], now: datetime) -> bool:
    """Whether it waits for something that only events explain."""
    if has_no_pods(job):
        puzzles = _is_older(job, _SOON, now)
    else:
        puzzles = any(is_being_made(pod) and _is_older(pod, _BEING_MADE, now) for pod in pods)
    return puzzles and not has_ended(job) and not is_suspended(job)


def has_no_pods(job: Job) -> bool:
    """Whether it has had none so far."""
    return not any(_count(job, kind) for kind in ("active", "succeeded", "failed", "terminating"))


def interpret(
    job: Job,
    pods: Sequence[Pod] | None = (),
    events: Events | None = None,
    queued: str = "",
) -> Observation:
    """The state of a Job that exists.

    `pods` are those that neither run nor have succeeded, None if we may not list them. `queued` is
    the reason why its queue has not let it start.
    """
    conditions = conditions_of(job)
    if "Complete" in conditions:
        return Observation(
            JobState.COMPLETE,
            "completed",
            0,
            started_at=_begun(job),
            ended_at=str(_status(job).get("completionTime") or _since(conditions["Complete"])),
            cancel_aware=True,
        )
    if "Failed" in conditions:
        return _failed(job, conditions["Failed"], pods or ())
    if job["metadata"].get("deletionTimestamp"):
        begun = _still_runs(job, pods)
        state = JobState.RUNNING if begun else JobState.PENDING
        return Observation(state, "being deleted", started_at=_begun(job) if begun else "")
    if is_suspended(job):
        return _suspended(job, queued)
    if pods is None and "FailureTarget" not in conditions and needs_pods(job):
        return Observation(JobState.PENDING, _UNSEEN)
    return _open(job, conditions, pods or (), events or {})


def waiting_for(job: Job, pods: Sequence[Pod], events: Events) -> list[tuple[int, Issue]]:
    """The ranks that wait, and for what."""
    if has_no_pods(job):
        refused = [
            event
            for event in events.get(job["metadata"]["uid"], ())
            if event.get("reason") == "FailedCreate"
        ]
        issue = issue_from(refused)
        return [(0, issue)] if issue else []
    found = []
    for pod in in_order(pods):
        if phase_of(pod) == "Pending":
            issue = issue_of(pod, events.get(pod["metadata"]["uid"], ()))
            found.append((rank_of(pod), issue or Issue("ContainerCreating", "")))
    return found


def first_failed(pods: Sequence[Pod]) -> Pod | None:
    """The pod that failed first: the others may have been stopped because of it.

    Of the pods of a rank that was tried again, only the last counts.
    """
    last = {rank_of(pod): pod for pod in in_order(pods)}
    failed = [pod for pod in last.values() if phase_of(pod) == "Failed"]
    return min(failed, key=lambda pod: (end_of(pod).ended_at or "9", rank_of(pod)), default=None)


def without_forgiven(job: Job, pods: Sequence[Pod]) -> list[Pod]:
    """The pods of a failed Job, without failures after which a retry succeeded."""
    to_blame = _failed_ranks(job)
    return [
        pod for pod in pods if not to_blame or rank_of(pod) in to_blame or phase_of(pod) != "Failed"
    ]


def replica_of(pod: Pod, events: Events) -> dict[str, Any]:
    """A pod in the shape that every platform returns, with the reason if it does not run."""
    end = end_of(pod)
    issue = issue_of(pod, events.get(pod["metadata"]["uid"], ()))
    return {
        "name": name_of(pod),
        "id": pod["metadata"]["uid"],
        "rank": rank_of(pod),
        "started_at": started_at(pod),
        "finished_at": end.ended_at,
        "status": {
            "node": {"name": node_of(pod), "node_group_id": ""},
            "phase": phase_of(pod),
            "readiness_issue": _shown(issue),
            "exit_code": end.exit_code,
        },
    }


def replica_to_come(job: Job, events: Events) -> dict[str, Any]:
    """The first pod of a job without pods: a quota or policy refuses them, or a queue holds it."""
    waiting = waiting_for(job, (), events)
    issue = waiting[0][1] if waiting else None
    if issue is None and queue_of(job):
        issue = Issue("Queued", f"waits in queue {queue_of(job)}")
    return {
        "name": "",
        "id": "",
        "rank": 0,
        "started_at": "",
        "finished_at": "",
        "status": {
            "node": {"name": "", "node_group_id": ""},
            "phase": "Pending",
            "readiness_issue": _shown(issue),
            "exit_code": None,
        },
    }


def _failed(job: Job, condition: Mapping[str, Any], pods: Sequence[Pod]) -> Observation:
    first = first_failed(without_forgiven(job, pods))
    end = end_of(first) if first is not None else None
    texts = []
    if end is not None and first is not None:
        rank = f"rank {rank_of(first)} " if int(job["spec"].get("completions") or 1) > 1 else ""
        code = "" if end.exit_code is None else f"ended with exit code {end.exit_code}"
        texts += [f"{rank}{code}" if code else "", end.reason]
    # "The limit of retries is reached" says less than the end of the pod.
    if not any(texts) or condition.get("reason") not in EMPTY_WORDS:
        texts.append(_condition_text(condition))
    return Observation(
        JobState.ERROR,
        "; ".join(text for text in texts if text),
        end.exit_code if end is not None else None,
        started_at=_begun(job),
        ended_at=_since(condition),
        cancel_aware=True,
    )


def _failed_ranks(job: Job) -> set[int]:
    """The ranks that a Job with retries has given up, from text such as `0,3-5`."""
    ranks: set[int] = set()
    for part in filter(None, str(_status(job).get("failedIndexes") or "").split(",")):
        first, _, last = part.partition("-")
        ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


def _suspended(job: Job, queued: str) -> Observation:
    if is_half_made(job):
        return Observation(JobState.PENDING, "being submitted")
    if queue := queue_of(job):
        why = f": {queued}" if queued else ""
        return Observation(JobState.PENDING, f"waits in queue {queue}{why}")
    metadata = job["metadata"]
    resume = _RESUME.format(name=metadata["name"], namespace=metadata["namespace"])
    return Observation(JobState.PAUSED, f"suspended; {resume} resumes it")


def _open(
    job: Job,
    conditions: Mapping[str, Mapping[str, Any]],
    pods: Sequence[Pod],
    events: Events,
) -> Observation:
    if "FailureTarget" in conditions:
        # It fails when its pods are gone, which a lost node never confirms.
        message = (
            f"failing ({_condition_text(conditions['FailureTarget'])}): its pods are being ended"
        )
        return Observation(JobState.RUNNING, message, started_at=_begun(job))
    waiting = waiting_for(job, pods, events)
    if waiting:
        return Observation(
            JobState.PENDING, _why(waiting, int(job["spec"].get("completions") or 1))
        )
    if has_no_pods(job):
        return Observation(JobState.PENDING, "its pod is being created")
    return Observation(JobState.RUNNING, started_at=_begun(job))


def _why(waiting: Sequence[tuple[int, Issue]], ranks: int) -> str:
    worst = [(rank, issue) for rank, issue in waiting if issue.reason != "ContainerCreating"]
    rank, issue = (worst or waiting)[0]
    text = "its container is being created" if issue.reason == "ContainerCreating" else str(issue)
    if ranks == 1:
        return text
    return f"{len(waiting)} of {ranks} pods wait; rank {rank}: {text}"


def _still_runs(job: Job, pods: Sequence[Pod] | None) -> bool:
    """Whether a Job that is being deleted has begun. Its counts are not updated any more."""
    if _count(job, "ready"):
        return True
    if pods is None:
        return _count(job, "terminating") > 0
    return any(phase_of(pod) == "Running" or has_begun(pod) for pod in pods)


def _is_older(one: Mapping[str, Any], age: timedelta, now: datetime) -> bool:
    return now - parse_time(one["metadata"]["creationTimestamp"]) > age


def _begun(job: Job) -> str:
    return str(_status(job).get("startTime") or "")


def _since(condition: Mapping[str, Any]) -> str:
    return str(condition.get("lastTransitionTime") or "")


def _condition_text(condition: Mapping[str, Any]) -> str:
    parts = (condition.get("reason"), condition.get("message"))
    return ": ".join(part for part in parts if part)


def _count(job: Job, pods: str) -> int:
    """One of the counts of pods in the status of a Job."""
    return int(_status(job).get(pods) or 0)


def _status(job: Job) -> Mapping[str, Any]:
    return job.get("status") or {}


def _shown(issue: Issue | None) -> dict[str, str] | None:
    return None if issue is None else {"reason": issue.reason, "message": issue.message}
