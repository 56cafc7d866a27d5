"""What the server says about a job, as a state of ours. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import Observation
from tao_sdk.platforms.common.times import parse_time, time_text
from tao_sdk.platforms.lepton.naming import part, whole

Job = Mapping[str, Any]

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
_LOG_LAG_SECONDS = 60.0
_SECONDS_BEFORE = 10_000_000_000  # times above this are no seconds


def word_of(job: Job) -> str:
    """The server's word for the job's state."""
    return str(_status(job).get("state") or "")


def has_ended(job: Job) -> bool:
    """Does nothing of it run, and nothing will unless somebody starts it again?"""
    return word_of(job) in _ENDED


def has_begun(job: Job) -> bool:
    """Has a worker of it been started?"""
    if word_of(job) in _REMOVED:
        return bool(_count(job, "succeeded") + _count(job, "failed"))
    return word_of(job) not in _WAITING


def is_stopped(job: Job) -> bool:
    return word_of(job) == "Stopped"


def interpret(job: Job, *, canceled: bool) -> Observation:
    """The state of a job that the server knows; `canceled`: we have asked it to stop."""
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
        return Observation(JobState.PAUSED, "Stopped: somebody stopped it; it can be started again")
    if word in ("Stopped", "Deleted") or (canceled and word == "Archived"):
        told = "cancelled" if canceled else f"{word}: somebody removed it"
        return Observation(
            JobState.CANCELED, told, started_at=since, ended_at=until, cancel_aware=True
        )
    if word == "Archived":
        # It is over, and the server has forgotten how: its record may know.
        return Observation(None, "Archived: the server no longer says how it ended")
    return Observation(JobState.UNKNOWN, f"Lepton says {word or 'nothing'} of its state")


def begun_at(job: Job) -> str:
    """When it was made: the server has no other time of its beginning."""
    return moment(_status(job).get("creation_time") or _created(job))


def ended_at(job: Job) -> str:
    return moment(_status(job).get("completion_time"))


def has_just_ended(job: Job | None) -> bool:
    """Whether the last lines of its log may not be kept yet."""
    if job is None or not has_ended(job):
        return False
    return ended_at(job) > moment(time.time() - _LOG_LAG_SECONDS)


def moment(value: Any) -> str:
    """A time of the server's (seconds, milliseconds, … or text) as we write it; "" for none."""
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
        if scaled < _SECONDS_BEFORE:
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
