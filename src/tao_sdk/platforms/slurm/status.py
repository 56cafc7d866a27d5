"""From Slurm's answers and the job's files to the state of a job. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from tao_sdk.models import JobState
from tao_sdk.plain_data import parse_json
from tao_sdk.platforms.slurm.parse import ENDED, Answer, Claim, Ended, JobFiles, QueueRow
from tao_sdk.result_record import first_failure

_Row = TypeVar("_Row", QueueRow, Ended)
_MAPPED = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.PENDING,
    "RESIZING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "SUSPENDED": JobState.PAUSED,
    "STOPPED": JobState.PAUSED,
    "COMPLETED": JobState.COMPLETE,
    "CANCELLED": JobState.CANCELED,
    "PREEMPTED": JobState.CANCELED,
    "REVOKED": JobState.CANCELED,
    "FAILED": JobState.ERROR,
    "BOOT_FAIL": JobState.ERROR,
    "DEADLINE": JobState.ERROR,
    "OUT_OF_MEMORY": JobState.ERROR,
    "NODE_FAIL": JobState.ERROR,
    "TIMEOUT": JobState.ERROR,
}

# Why a job waits, in words; Slurm's own word follows in brackets.
_REASONS = {
    "Resources": "waiting for free nodes",
    "Priority": "waiting behind jobs of higher priority",
    "Dependency": "waiting for other jobs",
    "DependencyNeverSatisfied": "its dependency can never be satisfied: cancel it",
    "BeginTime": "waiting for its start time (after a requeue, or between retries)",
    "JobHeldUser": "held by its user: scontrol release it",
    "JobHeldAdmin": "held by an administrator: ask your site",
    "Licenses": "waiting for licences",
    "ReqNodeNotAvail": "the nodes it needs are down, drained or reserved",
    "Reservation": "waiting for its reservation",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs at present",
    "PartitionTimeLimit": "asks for more time than its partition grants: it will never start",
    "PartitionNodeLimit": "asks for more nodes than its partition grants: it will never start",
    "PartitionConfig": "asks for more than its partition grants: it will never start",
    "AssocGrpGRES": "its account uses all the GPUs it may",
    "AssocMaxJobsLimit": "its account runs as many jobs as it may",
    "AssocGrpCpuLimit": "its account uses all the processors it may",
    "QOSMaxJobsPerUserLimit": "you run as many jobs as the QOS lets you",
    "QOSMaxGRESPerUser": "you use all the GPUs that the QOS grants a user",
    "QOSGrpGRES": "the QOS has no GPUs left",
    "QOSMaxCpuPerUserLimit": "you use all the processors that the QOS grants a user",
    "NodeDown": "a node it needs is down",
    "BadConstraints": "no node has what it asks for: it will never start",
    "Prolog": "its nodes are being prepared",
    "launch failed requeued held": "its launch failed and Slurm holds it: look at the node",
    "JobLaunchFailure": "its launch failed; it was requeued",
}

# Of these, the ones that waiting does not cure.
_NEVER_STARTS = {
    "DependencyNeverSatisfied",
    "PartitionTimeLimit",
    "PartitionNodeLimit",
    "PartitionConfig",
    "BadConstraints",
}

# Requeued, and not to start by itself.
_HELD = {
    "REQUEUE_HOLD": "requeued and held: scontrol release it",
    "SPECIAL_EXIT": "requeued in a special state and held: scontrol release it",
    "RESV_DEL_HOLD": "held, because its reservation was deleted: scontrol release it",
}

# How an end reads, where it is not simply a failure.
_ENDS = {
    "PREEMPTED": "Preempted",
    "REVOKED": "Revoked",
    "TIMEOUT": "Wall time reached",
    "DEADLINE": "Deadline reached",
    "OUT_OF_MEMORY": "Out of memory",
    "NODE_FAIL": "A node failed",
    "BOOT_FAIL": "A node did not boot",
}

# Whose fault an end is, where Slurm's state alone tells.
_FAULTS = {"NODE_FAIL": "infra", "BOOT_FAIL": "infra", "PREEMPTED": "preempted"}

# Ends that leave no exit code of the program.
_WITHOUT_CODE = {"NODE_FAIL", "BOOT_FAIL", "CANCELLED", "PREEMPTED", "REVOKED", "DEADLINE"}

_NODE = re.compile(r"[A-Za-z0-9_.-]+")


class Verdict(NamedTuple):
    """The state of a job, and what it rests on."""

    state: JobState | None
    """None: neither Slurm nor the job's folder knows it."""
    message: str = ""
    exit_code: int | None = None
    native: str = ""
    """Slurm's word: FAILED, NODE_FAIL, ..."""
    nodes: str = ""
    started_at: str = ""
    ended_at: str = ""
    slurm_id: str = ""
    at_limit: bool = False
    reason: str = ""
    """For the explanation, beside log and exit code."""
    stuck: bool = False
    """It waits, and will never start."""

    @property
    def fault(self) -> str:
        """Whose fault this end was; empty if it has not ended, or only the log can tell."""
        if self.state not in (JobState.ERROR, JobState.CANCELED):
            return ""
        if self.state is JobState.ERROR and self.native == "FAILED" and not self.at_limit:
            return ""
        return _FAULTS.get(self.native, "program")

    @property
    def node(self) -> str:
        """Its node, if it had exactly one."""
        return self.nodes if _NODE.fullmatch(self.nodes) else ""


def judge(job_id: str, key: str, answer: Answer, *, cancel_requested: bool = False) -> Verdict:
    """The state of one job. `key` is the id under which it was submitted first."""
    name = f"tao-job-{job_id}"
    rows = [*answer.queue.get(name, ()), *_tasks(answer.queue, key)]
    alive = [row for row in rows if row.state not in ENDED]
    if alive:
        return _in_queue(alive[-1])
    files = answer.files.get(job_id)
    if files is None:
        return Verdict(None)
    attempts = files.attempts
    slurm_id = attempts[-1].native_id if attempts else key
    # Ids are used again: the name decides.
    reported = [*answer.ended.get(name, ()), *_tasks(answer.ended, slurm_id)]
    ended = next((row for row in reversed(reported) if row.id == slurm_id), None)
    for row in rows:
        # The queue is never behind, accounting often is. But the queue has no exit code.
        if row.id == slurm_id and (ended is None or ended.state != row.state):
            ended = Ended(slurm_id, name, row.state, None, 0, row.nodes)
    return _ended(ended, files, slurm_id, cancel_requested=cancel_requested)


def _tasks(rows: Mapping[str, list[_Row]], id_: str) -> list[_Row]:
    """The rows of this task of an array, whose name is the array's."""
    return [row for row in rows.get(id_, ()) if row.name.startswith("tao-array-")]


def _in_queue(row: QueueRow) -> Verdict:
    # A state that we do not know: with nodes of its own it is likely to run.
    state = _MAPPED.get(row.state, JobState.RUNNING if row.nodes else JobState.PENDING)
    message = ""
    stuck = False
    if state is JobState.PENDING:
        message = _why_waiting(row)
        stuck = _reason_word(row) in _NEVER_STARTS
    elif state is JobState.RUNNING:
        what = "running" if row.state in _MAPPED else row.state
        what = "ending" if row.state == "COMPLETING" else what
        message = f"{what} on {row.nodes}" if row.nodes else what
    elif state is JobState.PAUSED:
        message = f"{row.state.lower()} on {row.nodes}"
    return Verdict(state, message, native=row.state, nodes=row.nodes, slurm_id=row.id, stuck=stuck)


def _reason_word(row: QueueRow) -> str:
    return row.reason.strip("()").split(",")[0]


def _why_waiting(row: QueueRow) -> str:
    if row.state == "CONFIGURING":
        return f"its nodes are being prepared ({row.nodes})"
    if row.state in _HELD:
        return f"{_HELD[row.state]} ({row.state})"
    if row.state not in _MAPPED:
        return f"in Slurm's state {row.state} ({row.reason})"
    reason = _reason_word(row)
    if reason == "None":
        return f"Queued as Slurm job {row.id}"
    known = _REASONS.get(reason)
    message = f"{known} ({reason})" if known else f"waiting: {row.reason}"
    if row.start not in ("", "N/A"):
        message += f"; expected to start at {row.start} (cluster time)"
    return message


def _ended(
    ended: Ended | None, files: JobFiles, slurm_id: str, *, cancel_requested: bool
) -> Verdict:
    mine = [claim for claim in files.claims if claim.owner == slurm_id]
    if ended is None or ended.state not in ENDED:
        # The queue does not have it, so it has ended: accounting lags, or has lost it. What the
        # batch script left shows how; without it, a later poll may.
        last = max(mine, default=None)
        if last is None and cancel_requested:
            # Slurm keeps nothing of a task of an array that was cancelled before it was split off.
            return Verdict(JobState.CANCELED, "cancelled before it began", slurm_id=slurm_id)
        if last is None or last.exit_code is None:
            return Verdict(None)
        state = "FAILED" if last.exit_code else "COMPLETED"
        ended = Ended(slurm_id, "", state, last.exit_code, 0, "")
        source = "from the job's own record"
        return _judged(ended, files, last, source, cancel_requested=cancel_requested)
    if ended.restarts is None:
        claim = max(mine, default=None)
    else:
        claim = next((claim for claim in mine if claim.restart == ended.restarts), None)
    verdict = _judged(
        ended, files, claim, f"Slurm: {ended.state}", cancel_requested=cancel_requested
    )
    if ended.restarts is not None and claim is None and ended.state == "FAILED":
        # Nothing of ours ran: the node refused it, or has no such user or folder.
        message = f"{verdict.message}; its batch script did not begin"
        return verdict._replace(message=message, reason="LAUNCH_FAILED")
    return verdict


def _judged(
    ended: Ended, files: JobFiles, claim: Claim | None, source: str, *, cancel_requested: bool
) -> Verdict:
    state = _MAPPED[ended.state]
    code = _code(ended, claim)
    if claim is not None and code == claim.exit_code and (first := first_failure(files.records)):
        code = first.exit_code  # srun gives the greatest, which is that of the ranks it stopped
    # Slurm warns before it ends a job: one that then stops by itself has met the limit as well.
    at_limit = ended.state == "TIMEOUT" or (
        ended.state == "FAILED" and claim is not None and claim.at_limit
    )
    message = _message(ended, code, source, at_limit=at_limit)
    reason = "TIMEOUT" if at_limit else _reason(ended)
    failure = _failure_in(files.status_line)
    if state is JobState.COMPLETE and failure is not None:
        state = JobState.ERROR
        message = reason = f"status.json ends with a failure: {failure or 'without a message'}"
    if _was_stopped(ended, claim, cancel_requested=cancel_requested):
        state, message = JobState.CANCELED, "cancelled"
    return Verdict(
        state,
        message,
        None if state is JobState.CANCELED else code,
        native=ended.state,
        nodes=ended.nodes,
        # Slurm's times are local to the cluster and do not say so: our own record's are used.
        started_at=min((record.started_at for record in files.records), default=""),
        ended_at=max((record.ended_at for record in files.records), default=""),
        slurm_id=ended.id,
        at_limit=at_limit,
        reason=reason,
    )


def _was_stopped(ended: Ended, claim: Claim | None, *, cancel_requested: bool) -> bool:
    """Whether our cancellation ended the job: it had not ended by itself before."""
    if claim is not None and claim.canceled:
        return True  # its batch script stopped it on our request
    by_itself = ended.state == "FAILED" and claim is not None and claim.exit_code is not None
    return cancel_requested and ended.state != "COMPLETED" and not by_itself


def _code(ended: Ended, claim: Claim | None) -> int | None:
    if ended.state in _WITHOUT_CODE:
        return None  # no exit was seen; that of an earlier attempt does not count
    if claim is not None and claim.exit_code is not None:
        return claim.exit_code
    if ended.state == "COMPLETED" or ended.exit_code:
        return ended.exit_code
    # 125 stands for "out of memory" there, and nothing at all for a time-out.
    return 128 + ended.signal if 0 < ended.signal < 65 else None


def _message(ended: Ended, code: int | None, source: str, *, at_limit: bool) -> str:
    if ended.state == "COMPLETED":
        return "completed"
    if ended.state == "CANCELLED":
        by = f" by user {ended.by}" if ended.by else ""
        return f"cancelled{by} on the cluster, not by this SDK"
    how = "Wall time reached" if at_limit else _ENDS.get(ended.state, "Failed")
    if code is not None:
        how += f" with exit code {code}" if how == "Failed" else f", exit code {code}"
    return f"{how} ({source})"


def _reason(ended: Ended) -> str:
    if ended.state in ("FAILED", "COMPLETED"):
        return ""
    return f"{ended.state} by {ended.by}" if ended.by else ended.state


def _failure_in(status_line: str) -> str | None:
    """The failure in the last record of TAO's status.json; None if it has none."""
    try:
        record = parse_json(status_line)
    except ValueError:
        return None
    if not isinstance(record, dict) or str(record.get("status", "")).upper() != "FAILURE":
        return None
    return str(record.get("message", ""))
