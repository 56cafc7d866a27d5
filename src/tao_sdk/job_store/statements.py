"""The few statements that every part of the store is made of. Each takes an open transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from tao_sdk.errors import UnknownParentError, ValidationError
from tao_sdk.job_states import utc_now
from tao_sdk.job_store.rows import Row, known_status, storable

# The columns of a narrow row.
NARROW = (
    "seq, job_id, network_arch, action, workspace_id, backend_type, backend_job_id, status, "
    "parent_job_id, image, results_dir, local_results_dir, base_checkpoint, plan_id, step_id, "
    "last_epoch, instance_id, created_at, updated_at, phase, token, owner, native, request, "
    "message, observed_at, poll_error, poll_error_since, missing_since, cancel_requested_at, "
    "started_at, ended_at, exit_code, failure, cleanup_due"
)

# SQLite allows 999 parameters in old versions.
_CHUNK = 500

_T = TypeVar("_T")


def chunks(items: Iterable[_T], size: int = _CHUNK) -> Iterator[list[_T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def placeholders(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def select_all(connection: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> list[Row]:
    found = connection.execute(query, values)
    # Faster by half than dict() of a sqlite3.Row, which looks up each name.
    names = [column[0] for column in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found]
    if "status" in names:
        for row in rows:
            row["status"] = known_status(row["status"])
    return rows


def select_whole(
    connection: sqlite3.Connection, query: str, values: Sequence[Any] = ()
) -> list[Row]:
    """Jobs with everything that belongs to them; the query selects all columns."""
    rows = select_all(connection, query, values)
    for chunk in chunks(rows):
        ids = [row["job_id"] for row in chunk]
        found = connection.execute(
            f"SELECT job_id, request FROM job_requests WHERE job_id IN ({placeholders(ids)})", ids
        )
        requests = dict(found)
        for row in chunk:
            row["request"] = requests.get(row["job_id"], row["request"])
    return rows


def select_whole_job(connection: sqlite3.Connection, job_id: str) -> Row | None:
    found = select_whole(connection, "SELECT * FROM jobs WHERE job_id = ?", (job_id,))
    return found[0] if found else None


def select_job(connection: sqlite3.Connection, job_id: str) -> Row | None:
    """A narrow row."""
    found = select_all(connection, f"SELECT {NARROW} FROM jobs WHERE job_id = ?", (job_id,))
    return found[0] if found else None


def select_jobs(connection: sqlite3.Connection, job_ids: Iterable[str]) -> dict[str, Row]:
    """Narrow rows."""
    found: dict[str, Row] = {}
    for chunk in chunks(job_ids):
        query = f"SELECT {NARROW} FROM jobs WHERE job_id IN ({placeholders(chunk)})"
        found.update((row["job_id"], row) for row in select_all(connection, query, chunk))
    return found


def insert_row(connection: sqlite3.Connection, table: str, values: Mapping[str, Any]) -> None:
    # Table and column names come from our own code, never from a caller.
    connection.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({placeholders(values)})",
        [storable(value) for value in values.values()],
    )


def update_job(connection: sqlite3.Connection, job_id: str, changes: Mapping[str, Any]) -> None:
    """Change columns of a job; `updated_at` follows unless it is among them."""
    values = {"updated_at": utc_now(), **changes}
    connection.execute(
        f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in values)} WHERE job_id = ?",
        [*(storable(value) for value in values.values()), job_id],
    )


def append_event(
    connection: sqlite3.Connection,
    job_id: str,
    kind: str,
    *,
    from_status: str = "",
    to_status: str = "",
    message: str = "",
) -> None:
    insert_row(
        connection,
        "events",
        {
            "job_id": job_id,
            "at": utc_now(),
            "kind": kind,
            "from_status": from_status,
            "to_status": to_status,
            "message": message,
            "actor": f"{os.getpid()}@{os.uname().nodename}",
        },
    )


def change_status(connection: sqlite3.Connection, row: Row, status: str) -> None:
    """Give a job another status and note it; the caller has checked that it may."""
    if row["status"] != status:
        update_job(connection, row["job_id"], {"status": status})
        append_event(
            connection, row["job_id"], "status", from_status=row["status"], to_status=status
        )


def require_parent(connection: sqlite3.Connection, job_id: str, parent: str | None) -> None:
    """Check that a job's parent is in the store."""
    if not parent:
        return
    if parent == job_id:
        raise ValidationError(f"parent_job_id: job {job_id} cannot be its own parent")
    if select_job(connection, parent) is None:
        raise UnknownParentError(
            f"parent_job_id={parent!r} of job {job_id} is not in the store: record the parent "
            "first, or leave parent_job_id out"
        )
