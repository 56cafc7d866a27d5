"""Answers about jobs and workers as our states and replicas. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import Observation
from tao_sdk.platforms.common.times import parse_time, time_text
from tao_sdk.platforms.lepton.naming import id_of, part, whole

Job = Mapping[str, Any]
Replica = Mapping[str, Any]

_PENDING = {
    "Queueing": "waits in the queue of its node group",
    "Starting": "is being started",
    "Awaiting": "waits for its time or for resources",
    "Restarting": "is being restarted",
    "PendingRetry": "failed, and is tried again",
}
_WAITING = ("Queueing", "Starting", "Awaiting", "")
_REMOVED = ("Stopped", "Deleted", "Archived")
_STOPPING = ("Stopping", "Deleting", "Terminating")
_ENDED = ("Completed", "Failed", *_REMOVED)
# Reasons that waiting does not change.
STUCK = frozenset(
    {
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)
_LOG_LAG_SECONDS = 60.0
# Larger times are in milliseconds or smaller units.
_MAX_SECONDS = 10_000_000_000


def word_of(job: Job) -> str:
    """The state of the job as Lepton names it."""
    return str(_status(job).get("state") or "")


def has_ended(job: Job) -> bool:
    """Whether nothing of it runs. A stopped job can be started again."""
    return word_of(job) in _ENDED


def has_begun(job: Job) -> bool:
    """Whether a worker of it has started."""
    if word_of(job) in _REMOVED:
        return bool(_count(job, "succeeded") + _count(job, "failed"))
    return word_of(job) not in _WAITING


def is_stopped(job: Job) -> bool:
    return word_of(job) == "Stopped"


def is_being_stopped(job: Job) -> bool:
    """Whether it was asked to stop, or has ended."""
    asked = (job.get("spec") or {}).get("stopped") is True
    return asked or word_of(job) in _STOPPING or has_ended(job)


def interpret(job: Job, *, canceled: bool) -> Observation:
    """The state of a job that the server knows. `canceled`: we asked Lepton to stop it."""
    word = word_of(job)
    since, until = begun_at(job), ended_at(job)
    if word in _PENDING:
        return Observation(JobState.PENDING, f"{word}: it {_PENDING[word]}")
    if word == "Running":
        message = "being stopped" if canceled else _ready(job)
        return Observation(JobState.RUNNING, message, started_at=since)
    if word in _STOPPING:
        return Observation(JobState.RUNNING, f"{word}: being stopped", started_at=since)
    if word == "Completed" or (word == "Archived" and _succeeded(job)):
        return Observation(JobState.COMPLETE, "completed", 0, since, until)
    if word == "Failed" or (word == "Archived" and _count(job, "failed")):
        return Observation(JobState.ERROR, "Failed", None, since, until)
    if word == "Stopped" and not canceled:
        return Observation(JobState.PAUSED, "Stopped by another user; it can be started again")
    if word in ("Stopped", "Deleted") or (canceled and word == "Archived"):
        message = "cancelled" if canceled else f"{word} by another user"
        return Observation(
            JobState.CANCELED, message, started_at=since, ended_at=until, cancel_aware=True
        )
    if word == "Archived":
        # Its record may show how it ended.
        return Observation(None, "Archived: Lepton no longer shows how it ended")
    return Observation(JobState.UNKNOWN, f"unknown state: Lepton reports {word or 'none'}")


def begun_at(job: Job) -> str:
    """When it was created: the server has no time of its start."""
    return moment(_status(job).get("creation_time") or _created(job))


def ended_at(job: Job) -> str:
    return moment(_status(job).get("completion_time"))


def has_just_ended(job: Job | None) -> bool:
    """Whether the last lines of its log may not be stored yet."""
    if job is None or not has_ended(job):
        return False
    return ended_at(job) > moment(time.time() - _LOG_LAG_SECONDS)


def moment(value: Any) -> str:
    """A time of the server (a number in any unit, or text) in our form; "" for none."""
    found = _nanoseconds(value)
    if not found:
        return ""
    return time_text(found / 1e9)


def _nanoseconds(value: Any) -> int:
    if isinstance(value, str):
        try:
            parsed = parse_time(value)
        except ValueError:
            return 0
        return int(parsed.timestamp() * 1e9)
    if not isinstance(value, (int, float)) or value <= 0:
        return 0
    scaled = float(value)
    for unit in (1e9, 1e6, 1e3, 1):
        if scaled < _MAX_SECONDS:
            return int(value * unit)
        scaled /= 1000
    return 0


def _ready(job: Job) -> str:
    wanted = whole(part(job, "spec").get("completions")) or 1
    ready = _count(job, "ready")
    return f"{ready} of {wanted} workers are ready" if wanted > 1 and ready < wanted else ""


def _succeeded(job: Job) -> bool:
    wanted = whole(part(job, "spec").get("completions")) or 1
    return not _count(job, "failed") and _count(job, "succeeded") >= wanted


def _created(job: Job) -> Any:
    return part(job, "metadata").get("created_at")


def _count(job: Job, what: str) -> int:
    return whole(_status(job).get(what))


def _status(job: Job) -> Mapping[str, Any]:
    return part(job, "status")


def replica_of(replica: Replica, server_id: str, position: int) -> dict[str, Any]:
    """One worker in the shape that every platform returns."""
    status = part(replica, "status")
    node = part(status, "node")
    return {
        "name": id_of(replica),
        "id": id_of(replica),
        "rank": rank_of(replica, server_id, position),
        "started_at": moment(status.get("started_at") or status.get("start_time")),
        "finished_at": moment(status.get("finished_at") or status.get("end_time")),
        "status": {
            "node": {
                "name": node_of(replica),
                "node_group_id": str(node.get("node_group_id") or ""),
            },
            "phase": str(status.get("phase") or status.get("state") or ""),
            "readiness_issue": issue_of(replica),
            "exit_code": status.get("exit_code"),
        },
    }


def rank_of(replica: Replica, server_id: str, position: int) -> int:
    """The rank of a worker: its index, or in its name `<job>-<rank>[-…]`, or its position."""
    status = part(replica, "status")
    index = status.get("worker_index", status.get("index"))
    if isinstance(index, int):
        return index
    rest = id_of(replica).removeprefix(f"{server_id}-")
    rank = rest.partition("-")[0]
    return int(rank) if rank.isdecimal() else position


def node_of(replica: Replica) -> str:
    node = part(part(replica, "status"), "node")
    return str(node.get("name") or node.get("id") or "")


def issue_of(replica: Replica) -> dict[str, str] | None:
    """Why a worker is not ready."""
    issue = part(part(replica, "status"), "readiness_issue")
    if not issue.get("reason"):
        return None
    return {"reason": str(issue["reason"]), "message": str(issue.get("message") or "")}


def stuck_on(replicas: Sequence[Replica]) -> str:
    """Why the workers will never start; "" if they may."""
    for replica in replicas:
        issue = issue_of(replica)
        if issue is not None and issue["reason"] in STUCK:
            return f"{issue['reason']}: {issue['message']}".rstrip(": ")
    return ""
