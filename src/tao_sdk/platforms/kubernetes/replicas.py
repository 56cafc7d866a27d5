"""The pods of a job, in the shape that every platform returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.platforms.kubernetes.pods import (
    Issue,
    Pod,
    end_of,
    issue_of,
    name_of,
    node_of,
    phase_of,
    rank_of,
    started_at,
)
from tao_sdk.platforms.kubernetes.status import queue_of, waiting_for

Events = Mapping[str, Sequence[Mapping[str, Any]]]


def replica_of(pod: Pod, events: Events) -> dict[str, Any]:
    """One pod, and why it does not run."""
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


def replica_to_come(job: Mapping[str, Any], events: Events) -> dict[str, Any]:
    """A job whose pods are not there: refused by a quota or a policy, or held back by a queue."""
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


def _shown(issue: Issue | None) -> dict[str, str] | None:
    return None if issue is None else {"reason": issue.reason, "message": issue.message}
