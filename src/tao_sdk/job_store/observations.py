"""What was learnt about jobs, written in one transaction for all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from tao_sdk.errors import JobNotFoundError
from tao_sdk.job_states import utc_now
from tao_sdk.job_store.base import StoreBase
from tao_sdk.job_store.rows import Row, StatusUpdate, encode, is_terminal, storable
from tao_sdk.job_store.statements import append_event, select_job, select_jobs, update_job
from tao_sdk.job_store.transitions import changes_of, checked

# Columns whose change says nothing new about the job itself.
_NO_NEWS = frozenset({"observed_at", "cleanup_due"})


class Observations(StoreBase):
    """The store's knowledge of what happens on the platforms."""

    def apply_updates(self, updates: Iterable[StatusUpdate]) -> dict[str, str]:
        """Write what is new. {job id: new status} of the jobs whose status changed.

        The rules are in `transitions`. Ids that are not in the store are passed over, because
        another process may have pruned a job since it was polled. When nothing is new, nothing is
        written and no other process is kept waiting.
        """
        before, after = self._apply(updates)
        return {
            job_id: row["status"]
            for job_id, row in after.items()
            if row["status"] != before[job_id]["status"]
        }

    def rows_after(
        self, updates: Iterable[StatusUpdate], known: Mapping[str, Row]
    ) -> dict[str, Row]:
        """The same for jobs whose rows were read before. Returns their rows afterwards.

        A job of which there is nothing new is not read again.
        """
        _, after = self._apply(updates, known)
        return after

    def update_job_status(self, job_id: str, status: str, last_epoch: int | None = None) -> bool:
        """Set the status. True when the job now has it; False when it ended otherwise before."""
        _, after = self._apply([StatusUpdate(job_id, status=status, last_epoch=last_epoch)])
        return job_id in after and after[job_id]["status"] == status

    def _apply(
        self, updates: Iterable[StatusUpdate], known: Mapping[str, Row] | None = None
    ) -> tuple[dict[str, Row], dict[str, Row]]:
        """Returns the rows of these jobs before and after."""
        by_job: dict[str, list[StatusUpdate]] = {}
        for update in updates:
            checked(update)
            by_job.setdefault(update.job_id, []).append(update)
        now = utc_now()
        if known is None:
            with self._database.read() as connection:
                known = select_jobs(connection, by_job)
        before = {job_id: known[job_id] for job_id in by_job if job_id in known}
        new = [job_id for job_id in before if _revised(before[job_id], by_job[job_id], now)]
        if not new:
            return before, before
        with self._database.write() as connection:
            # Look again: another process may have been faster.
            fresh = select_jobs(connection, new)
            before = {**before, **fresh}
            after = dict(before)
            for job_id, row in fresh.items():
                after[job_id] = _write(connection, row, by_job[job_id], now)
        return before, after

    def request_cancel(self, job_id: str) -> str:
        """Note that the job shall end. Returns when that was first noted; "" if it had ended."""
        with self._database.write() as connection:
            row = _existing(connection, job_id)
            if row["cancel_requested_at"] or is_terminal(row):
                return str(row["cancel_requested_at"])
            now = utc_now()
            update_job(connection, job_id, {"cancel_requested_at": now})
            append_event(
                connection,
                job_id,
                "cancel_requested",
                from_status=row["status"],
                to_status=row["status"],
            )
        return now

    def withdraw_cancel(self, job_id: str) -> None:
        """Take back a request to cancel that did not reach the platform."""
        with self._database.write() as connection:
            row = _existing(connection, job_id)
            if is_terminal(row):
                return
            update_job(connection, job_id, {"cancel_requested_at": ""})
            append_event(
                connection,
                job_id,
                "cancel_withdrawn",
                from_status=row["status"],
                to_status=row["status"],
            )

    def record_failure(self, job_id: str, failure: Mapping[str, Any]) -> bool:
        """Keep the explanation of a failure. The first one stays; True when it was this one."""
        text = encode(failure, "failure")
        with self._database.write() as connection:
            row = select_job(connection, job_id)
            return row is not None and _keep_failure(connection, row, text)

    def record_failures(self, failures: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
        """The same for many jobs in one transaction. Their rows afterwards."""
        texts = {job_id: encode(failure, "failure") for job_id, failure in failures.items()}
        if not texts:
            return {}
        with self._database.write() as connection:
            rows = select_jobs(connection, texts)
            for job_id, row in rows.items():
                _keep_failure(connection, row, texts[job_id])
        return rows

    def add_event(self, job_id: str, kind: str, message: str = "") -> None:
        """Append a note to a job's history."""
        with self._database.write() as connection:
            status = _existing(connection, job_id)["status"]
            append_event(
                connection, job_id, kind, from_status=status, to_status=status, message=message
            )


def _revised(row: Row, updates: list[StatusUpdate], now: str) -> bool:
    return any(changes_of(row, update, now) for update in updates)


def _write(connection: sqlite3.Connection, row: Row, updates: list[StatusUpdate], now: str) -> Row:
    for update in updates:
        changes = changes_of(row, update, now)
        if not changes:
            continue
        is_news = not changes.keys() <= _NO_NEWS
        changes["updated_at"] = utc_now() if is_news else row["updated_at"]
        update_job(connection, row["job_id"], changes)
        if "status" in changes:
            append_event(
                connection,
                row["job_id"],
                "status",
                from_status=row["status"],
                to_status=changes["status"],
                message=update.message or "",
            )
        row = {**row, **{name: storable(value) for name, value in changes.items()}}
    return row


def _keep_failure(connection: sqlite3.Connection, row: Row, text: str) -> bool:
    if row["failure"] is not None:
        return False
    changes = {"failure": text, "updated_at": utc_now()}
    update_job(connection, row["job_id"], changes)
    row.update(changes)
    return True


def _existing(connection: sqlite3.Connection, job_id: str) -> Row:
    row = select_job(connection, job_id)
    if row is None:
        raise JobNotFoundError(f"no job {job_id!r} in the store")
    return row
