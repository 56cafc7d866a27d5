"""Forgetting jobs that have ended, and writing out what is known."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, TextIO

from tao_sdk.errors import ValidationError
from tao_sdk.job_store.queries import Queries
from tao_sdk.job_store.rows import JSON_COLUMNS, Row, checked_limit, decode, is_terminal
from tao_sdk.job_store.schema import ACTIVE
from tao_sdk.job_store.statements import chunks, placeholders, select_all, select_job

_EXPORT_PAGE = 200

CHILDREN_QUERY = "SELECT job_id FROM jobs WHERE parent_job_id = ?"


class Retention(Queries):
    """How long jobs are kept, and in which form they leave."""

    def delete_job(self, job_id: str) -> bool:
        """Forget a job that has ended, with its events and checkpoints. False if there is none."""
        with self._database.write() as connection:
            row = select_job(connection, job_id)
            if row is None:
                return False
            if not is_terminal(row):
                raise ValidationError(
                    f"job {job_id} has not ended ({row['status']}): cancel it before deleting it"
                )
            children = select_all(connection, CHILDREN_QUERY, (job_id,))
            if children:
                raise ValidationError(
                    f"job {job_id} is the parent of {children[0]['job_id']}: "
                    "delete its children first"
                )
            _delete(connection, [job_id])
        return True

    def prune(
        self,
        older_than: timedelta | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> list[str]:
        """Forget ended jobs: those last changed longer ago than `older_than`, and beyond the
        newest `keep`. With both given, both must hold. Parents of remaining jobs remain, and
        jobs of which something is left to be cleaned up.

        The ids that were forgotten (with `dry_run`: that would be), newest first.
        """
        if older_than is None and keep is None:
            raise ValidationError("prune: say older_than, keep, or both; otherwise all would go")
        kept = 0 if keep is None else checked_limit(keep, "keep")
        before = None if older_than is None else datetime.now(timezone.utc) - older_than
        if dry_run:
            with self._database.read() as connection:
                return _prunable(connection, before, kept)
        with self._database.write() as connection:
            doomed = _prunable(connection, before, kept)
            _delete(connection, doomed)
        return doomed

    def export(self, out: TextIO, *, limit: int | None = None) -> int:
        """Write jobs as JSON lines, newest first, with events and checkpoints. Returns how many.

        Works in pages, so that neither memory nor other writers suffer from a long export.
        """
        written = 0
        for row in self._pages(limit):
            out.write(json.dumps(row) + "\n")
            written += 1
        return written

    def _pages(self, limit: int | None) -> Iterator[dict[str, Any]]:
        left = checked_limit(limit)
        before: int | None = None
        while left != 0:
            size = _EXPORT_PAGE if left < 0 else min(left, _EXPORT_PAGE)
            page = self.list_jobs(limit=size, before=before)
            if not page:
                return
            with self._database.read() as connection:
                events = _by_job(connection, "events", "seq", page)
                checkpoints = _by_job(connection, "checkpoints", "id", page)
            for row in page:
                decoded = {name: decode(row, name) for name in JSON_COLUMNS if row[name]}
                job_id = row["job_id"]
                yield {
                    **row,
                    **decoded,
                    "events": events.get(job_id, []),
                    "checkpoints": checkpoints.get(job_id, []),
                }
            before = page[-1]["seq"]
            left -= len(page) if left > 0 else 0


def _delete(connection: sqlite3.Connection, job_ids: Iterable[str]) -> None:
    for chunk in chunks(job_ids):
        connection.execute(
            f"DELETE FROM jobs WHERE job_id IN ({placeholders(chunk)})",
            chunk,
        )


def _prunable(connection: sqlite3.Connection, before: datetime | None, keep: int) -> list[str]:
    ended = select_all(
        connection,
        f"SELECT job_id, updated_at, cleanup_due FROM jobs WHERE NOT ({ACTIVE}) ORDER BY seq DESC",
    )
    doomed = dict.fromkeys(
        row["job_id"]
        for row in ended[keep:]
        # What is left to be cleaned up is found by the record.
        if (before is None or _moment(row["updated_at"]) < before) and not row["cleanup_due"]
    )
    parents = {
        row["job_id"]: row["parent_job_id"]
        for row in select_all(
            connection, "SELECT job_id, parent_job_id FROM jobs WHERE parent_job_id IS NOT NULL"
        )
    }
    # A job that stays keeps its parent, which keeps its own parent, and so on.
    for job_id in parents:
        ancestor = job_id
        while ancestor not in doomed and parents.get(ancestor) in doomed:
            ancestor = parents[ancestor]
            del doomed[ancestor]
    return list(doomed)


def _moment(text: str) -> datetime:
    """A stored time; one that cannot be read (it came from another program) counts as old."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return datetime.min.replace(tzinfo=timezone.utc)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _by_job(
    connection: sqlite3.Connection, table: str, order: str, jobs: list[Row]
) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    ids = [row["job_id"] for row in jobs]
    query = f"SELECT * FROM {table} WHERE job_id IN ({placeholders(ids)}) ORDER BY {order}"
    for row in select_all(connection, query, ids):
        found.setdefault(row["job_id"], []).append(row)
    return found
