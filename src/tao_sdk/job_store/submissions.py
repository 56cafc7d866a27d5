"""Submissions: a crash between intent and platform neither loses a job nor doubles it.

`submitting` is written before the platform is asked, with the token by which the job can be found
there. A process that later finds such a row, and its owner gone, claims it and settles it:
`submitted` when the platform knows the token, `rejected` when it does not.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.errors import JobExistsError, ValidationError
from tao_sdk.job_states import TERMINAL_STATES, JobState, utc_now, validate_job_id
from tao_sdk.job_store.base import StoreBase
from tao_sdk.job_store.rows import (
    Confirmation,
    NewJob,
    Row,
    abridged,
    checked_status,
    encode,
    is_terminal,
)
from tao_sdk.job_store.schema import UNSETTLED
from tao_sdk.job_store.statements import (
    NARROW,
    append_event,
    insert_row,
    require_parent,
    select_all,
    select_job,
    select_jobs,
    update_job,
)

_SUBMITTING = "submitting"
_SUBMITTED = "submitted"
_REJECTED = "rejected"

UNSETTLED_QUERY = f"SELECT {NARROW} FROM jobs WHERE {UNSETTLED} AND backend_type = ? ORDER BY seq"


class Submissions(StoreBase):
    """Jobs on their way to a platform."""

    def begin_submissions(self, jobs: Sequence[NewJob]) -> None:
        """Record the intent to submit. All of the jobs or, when one cannot be, none."""
        rows = [_intent(job) for job in jobs]
        if not rows:
            return
        _refuse_repetition([job.job_id for job in jobs])
        with self._database.write() as connection:
            existing = select_jobs(connection, (job.job_id for job in jobs))
            if existing:
                raise JobExistsError(
                    f"already in the store: {', '.join(sorted(existing))}. "
                    "Nothing was recorded; use fresh job ids"
                )
            for job, row in zip(jobs, rows, strict=True):
                require_parent(connection, job.job_id, job.parent_job_id)
                whole = row["request"]
                row["request"] = abridged(whole)
                insert_row(connection, "jobs", row)
                if row["request"] != whole:
                    insert_row(connection, "job_requests", {"job_id": job.job_id, "request": whole})
                append_event(
                    connection,
                    job.job_id,
                    _SUBMITTING,
                    to_status=row["status"],
                    message=job.message,
                )

    def confirm_submission(
        self, job_id: str, *, backend_job_id: str, native: Mapping[str, Any], message: str = ""
    ) -> Row | None:
        """The platform has the job. Its row; None when it was settled before, or is not known."""
        confirmation = Confirmation(job_id, backend_job_id, native, message)
        return next(iter(self.confirm_submissions([confirmation])), None)

    def confirm_submissions(self, confirmations: Sequence[Confirmation]) -> list[Row]:
        """Confirm many in one transaction. The rows that were confirmed by this call."""
        natives = [encode(item.native, "native") for item in confirmations]
        if not natives:
            return []
        # Should a power cut undo this, the platform is asked once more what became of the jobs.
        with self._database.write(durable=False) as connection:
            rows = [
                _confirm(connection, item, native)
                for item, native in zip(confirmations, natives, strict=True)
            ]
        return [row for row in rows if row is not None]

    def reject_submission(
        self,
        job_id: str,
        *,
        message: str,
        failure: Mapping[str, Any],
        status: str = JobState.ERROR.value,
    ) -> bool:
        """The platform does not have the job and never will. False when it was settled before."""
        return bool(
            self.reject_submissions([job_id], message=message, failure=failure, status=status)
        )

    def reject_submissions(
        self,
        job_ids: Sequence[str],
        *,
        message: str,
        failure: Mapping[str, Any],
        status: str = JobState.ERROR.value,
    ) -> list[str]:
        """The same for many, in one transaction. The jobs that were rejected by this call."""
        status, cause = checked_status(status), encode(failure, "failure")
        if status not in TERMINAL_STATES:
            raise ValidationError(
                f"status={status!r}: a rejected job has ended; use one of "
                f"{', '.join(sorted(TERMINAL_STATES))}"
            )
        with self._database.write() as connection:
            rows = [row for row in select_jobs(connection, job_ids).values() if _is_unsettled(row)]
            for row in rows:
                _reject(connection, row, message, cause, status)
        return [row["job_id"] for row in rows]

    def release_submission(self, job_id: str) -> None:
        """No process works on this submission any more: the next one that looks settles it."""
        with self._database.write() as connection:
            if _unsettled(connection, job_id) is not None:
                update_job(connection, job_id, {"owner": ""})

    def release_submissions(self, job_ids: Sequence[str], owner: str) -> list[str]:
        """The same for those of these jobs that `owner` has. Which they were."""
        with self._database.read() as connection:
            rows = select_jobs(connection, job_ids)
        if not any(_is_unsettled(row) for row in rows.values()):
            return []
        with self._database.write() as connection:
            released = [
                row["job_id"]
                for row in select_jobs(connection, job_ids).values()
                if _is_unsettled(row) and row["owner"] == owner
            ]
            for job_id in released:
                update_job(connection, job_id, {"owner": ""})
        return released

    def claim_submission(self, job_id: str, expected_owner: str, new_owner: str) -> bool:
        """Take over an unsettled submission. True for exactly one of several claimants."""
        with self._database.write() as connection:
            row = _unsettled(connection, job_id)
            if row is None or row["owner"] != expected_owner:
                return False
            update_job(connection, job_id, {"owner": new_owner})
        return True

    def unsettled_submissions(self, backend_type: str) -> list[Row]:
        """Submissions of a platform whose outcome is not recorded, oldest first."""
        with self._database.read() as connection:
            return select_all(connection, UNSETTLED_QUERY, (backend_type,))


def _intent(job: NewJob) -> Row:
    now = utc_now()
    return {
        **job._asdict(),
        "job_id": validate_job_id(job.job_id),
        "parent_job_id": job.parent_job_id or None,
        "specs": encode(job.specs, "specs"),
        "request": encode(job.request, "request"),
        "native": encode(job.native, "native"),
        "status": JobState.PENDING.value,
        "phase": _SUBMITTING,
        "created_at": now,
        "updated_at": now,
    }


def _confirm(connection: sqlite3.Connection, item: Confirmation, native: str) -> Row | None:
    row = _unsettled(connection, item.job_id)
    if row is None:
        return None
    changes = {
        "phase": _SUBMITTED,
        "owner": "",
        "backend_job_id": item.backend_job_id,
        "native": native,
        "updated_at": utc_now(),
    }
    if item.message:
        changes["message"] = item.message
    update_job(connection, item.job_id, changes)
    append_event(
        connection,
        item.job_id,
        _SUBMITTED,
        from_status=row["status"],
        to_status=row["status"],
        message=item.message,
    )
    return {**row, **changes}


def _reject(
    connection: sqlite3.Connection, row: Row, message: str, cause: str, status: str
) -> None:
    changes = {"phase": _REJECTED, "owner": "", "failure": row["failure"] or cause}
    ended_before = is_terminal(row)
    if not ended_before:
        changes |= {"status": status, "message": message, "ended_at": utc_now()}
    update_job(connection, row["job_id"], changes)
    append_event(
        connection,
        row["job_id"],
        _REJECTED,
        from_status=row["status"],
        to_status=row["status"] if ended_before else status,
        message=message,
    )


def _refuse_repetition(job_ids: list[str]) -> None:
    repeated = sorted(job_id for job_id, times in Counter(job_ids).items() if times > 1)
    if repeated:
        raise JobExistsError(f"given more than once: {', '.join(repeated)}; nothing was recorded")


def _unsettled(connection: sqlite3.Connection, job_id: str) -> Row | None:
    row = select_job(connection, job_id)
    return row if row is not None and _is_unsettled(row) else None


def _is_unsettled(row: Row) -> bool:
    return bool(row["phase"] == _SUBMITTING)
