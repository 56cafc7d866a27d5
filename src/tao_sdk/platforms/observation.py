"""From an observation to the update of the stored job: pure decisions.

The rules that make a status trustworthy live here and nowhere else:

* a terminal state is final;
* a poll that failed changes nothing but the message;
* a job that its reachable platform does not know is settled by the record it left, and only
  after a grace period by the absence of one;
* a job that failed because we stopped it was cancelled; one that had ended before was not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tao_sdk.job_states import JobState
from tao_sdk.job_store import StatusUpdate
from tao_sdk.platforms.backend import Observation
from tao_sdk.platforms.common.times import parse_time
from tao_sdk.result_record import ResultRecord, first_failure

if TYPE_CHECKING:
    from tao_sdk.models import JobStatus

VANISHED = "vanished: the platform no longer knows this job and it left no valid result record"

Row = Mapping[str, Any]


def update_from_observation(row: Row, seen: Observation) -> StatusUpdate:
    """A job that the platform knows."""
    assert seen.state is not None, "missing jobs go through update_for_missing"  # noqa: S101 - a programming error, not input
    state = (
        seen.state
        if seen.cancel_aware
        else _canceled_instead_of_error(row, seen.state, seen.ended_at)
    )
    return StatusUpdate(
        job_id=row["job_id"],
        status=state.value,
        message=seen.message,
        exit_code=seen.exit_code,
        started_at=_known_time(seen.started_at),
        ended_at=_known_time(seen.ended_at),
        missing_since="",
        poll_error="",
        observed=True,
        cleanup_due=True if seen.due and state.terminal else None,
    )


def update_for_unreachable(row: Row, error: str) -> StatusUpdate:
    """A job whose platform could not be asked: the last known state stays."""
    return StatusUpdate(job_id=row["job_id"], poll_error=error)


def update_for_missing(
    row: Row,
    records: Sequence[ResultRecord],
    nodes: int,
    now: datetime,
    grace: timedelta,
    reason: str = "",
) -> StatusUpdate:
    """A job of `nodes` ranks that the reachable platform does not know; `reason` may say why."""
    failed = first_failure(records)
    if failed is not None:
        return _by_record(row, JobState.ERROR, failed, f"ended with exit code {failed.exit_code}")
    if len(records) >= nodes:
        return _by_record(row, JobState.COMPLETE, records[0], "completed")
    since = row["missing_since"]
    if not since:
        return StatusUpdate(
            job_id=row["job_id"],
            message=(
                "the platform does not know this job; it counts as lost in "
                f"{grace.total_seconds():.0f} s unless it reappears"
            ),
            missing_since=now.isoformat(),
            poll_error="",
        )
    if now - parse_time(since) < grace:
        return StatusUpdate(job_id=row["job_id"], poll_error="")
    if row["cancel_requested_at"]:
        state, message = JobState.CANCELED, "cancelled; the platform no longer knows this job"
    else:
        state, message = JobState.ERROR, reason or VANISHED
    return StatusUpdate(
        job_id=row["job_id"], status=state.value, message=message, ended_at=now.isoformat()
    )


def describe(row: Row) -> JobStatus:
    """A stored row as the status that users see."""
    from tao_sdk.models import JobStatus  # loaded late: see sdk.py

    message = row["message"]
    if row["poll_error"] and not JobState(row["status"]).terminal:
        doubt = (
            f"cannot reach the platform since {row['poll_error_since']}: {row['poll_error']}; "
            f"last known state {row['status']}"
        )
        message = f"{doubt} ({message})" if message else doubt
    return JobStatus(row["job_id"], row["status"], message, row["updated_at"])


def _known_time(text: Any) -> str | None:
    """A time of the platform's; None for anything that is none, whatever its type."""
    with suppress(ValueError, TypeError, AttributeError):
        parse_time(text)
        return str(text)
    return None


def _by_record(row: Row, state: JobState, record: ResultRecord, what: str) -> StatusUpdate:
    state = _canceled_instead_of_error(row, state, record.ended_at)
    return StatusUpdate(
        job_id=row["job_id"],
        status=state.value,
        message=f"{what}, says its result record; the platform has forgotten the job",
        exit_code=record.exit_code,
        started_at=record.started_at,
        ended_at=record.ended_at,
        missing_since="",
        poll_error="",
        observed=True,
    )


def _canceled_instead_of_error(row: Row, state: JobState, ended_at: str) -> JobState:
    asked = row["cancel_requested_at"]
    if state is not JobState.ERROR or not asked:
        return state
    return JobState.CANCELED if caused_by_cancel(asked, ended_at) else JobState.ERROR


def caused_by_cancel(asked_at: str, ended_at: str) -> bool:
    """Whether an end can be the effect of a request to cancel; one of unknown time can.

    Records have whole seconds: an end in the second of the request counts as caused by it.
    """
    if not asked_at:
        return False
    return not ended_at or parse_time(ended_at) + timedelta(seconds=1) > parse_time(asked_at)
