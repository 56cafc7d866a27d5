"""Finding jobs. Every query is answered from an index, whatever the size of the store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tao_sdk.errors import AmbiguousJobError, JobNotFoundError
from tao_sdk.job_store.base import StoreBase
from tao_sdk.job_store.rows import Row, checked_limit, checked_statuses
from tao_sdk.job_store.schema import ACTIVE, TO_CLEAN
from tao_sdk.job_store.statements import (
    NARROW,
    chunks,
    placeholders,
    select_all,
    select_jobs,
    select_whole,
)

_SHORTEST_PREFIX = 4
_SHOWN_CANDIDATES = 10
_NEWEST = "-"
_PAGE = 500
_AFTER_EVERY_JOB = 2**63 - 1
# Sorts behind every character that a job id may contain.
_BEHIND_EVERY_ID = "~"


class Queries(StoreBase):
    """Reading the store."""

    def list_jobs(
        self,
        status: str | Collection[str] | None = None,
        network_arch: str | None = None,
        action: str | None = None,
        limit: int | None = None,
        *,
        backend_type: str | None = None,
        before: int | None = None,
        narrow: bool = False,
    ) -> list[Row]:
        """Jobs, newest first. `before`: only those older than the row with that `seq` (a page).

        `narrow`: quicker, without `specs` and with long requests abridged.
        """
        query, values = list_query(
            status, network_arch, action, limit, backend_type, before, NARROW if narrow else "*"
        )
        if not query:
            return []
        with self._database.read() as connection:
            return (select_all if narrow else select_whole)(connection, query, values)

    def job_pages(
        self, status: Collection[str] | None = None, *, backend_type: str | None = None
    ) -> Iterator[list[Row]]:
        """Every job as a narrow row, newest first, in pages: a store may hold very many."""
        before: int | None = None
        while page := self.list_jobs(
            status, limit=_PAGE, backend_type=backend_type, before=before, narrow=True
        ):
            yield page
            before = int(page[-1]["seq"])

    def active_jobs(self, backend_type: str | None = None) -> list[Row]:
        """Jobs that have not ended, oldest first, as narrow rows."""
        query, values = of_backend_query(ACTIVE, backend_type)
        with self._database.read() as connection:
            return sorted(select_all(connection, query, values), key=lambda row: int(row["seq"]))

    def jobs_to_clean(self, backend_type: str | None = None) -> list[Row]:
        """Jobs after which their platform still has to clean up, oldest first, as narrow rows."""
        query, values = of_backend_query(TO_CLEAN, backend_type)
        with self._database.read() as connection:
            return sorted(select_all(connection, query, values), key=lambda row: int(row["seq"]))

    def jobs_by_id(self, ids: Sequence[str]) -> dict[str, Row]:
        """The narrow rows of those ids that are in the store: the one read of a poll."""
        if not ids:
            return {}
        with self._database.read() as connection:
            return select_jobs(connection, ids)

    def whole_jobs_by_id(self, ids: Sequence[str]) -> dict[str, Row]:
        """The whole rows of those ids that are in the store."""
        found: dict[str, Row] = {}
        with self._database.read() as connection:
            for chunk in chunks(ids):
                query = f"SELECT * FROM jobs WHERE job_id IN ({placeholders(chunk)})"
                found |= {row["job_id"]: row for row in select_whole(connection, query, chunk)}
        return found

    def find_job(self, reference: str, backend_type: str | None = None) -> Row:
        """The job that a person means: a full id, a unique beginning of one, or "-" (newest)."""
        if reference == _NEWEST:
            return self._newest(backend_type)
        with self._database.read() as connection:
            exact = select_whole(connection, EXACT_QUERY, (reference,))
            fitting = exact or select_whole(connection, *prefix_query(reference))
        of_backend = [row for row in fitting if backend_type in (None, row["backend_type"])]
        if len(of_backend) == 1:
            return of_backend[0]
        if of_backend:
            raise AmbiguousJobError(_several(reference, of_backend))
        raise JobNotFoundError(_none(reference, fitting, backend_type))

    def _newest(self, backend_type: str | None) -> Row:
        newest = self.list_jobs(limit=1, backend_type=backend_type)
        if not newest:
            where = f" of platform {backend_type}" if backend_type else ""
            raise JobNotFoundError(f"the store holds no job{where} yet")
        return newest[0]

    def get_job_by_plan_step(self, plan_id: str, step_id: int) -> Row | None:
        """The newest job of a step of a plan."""
        with self._database.read() as connection:
            found = select_whole(connection, STEP_QUERY, (plan_id, step_id))
        return found[0] if found else None

    def events(self, job_id: str | None = None, after: int = 0, limit: int = 1000) -> list[Row]:
        """The history, oldest first; `after`: only events behind the one with that `seq`."""
        query, values = events_query(job_id, after, limit)
        with self._database.read() as connection:
            return select_all(connection, query, values)


EXACT_QUERY = "SELECT * FROM jobs WHERE job_id = ?"
STEP_QUERY = """
    SELECT * FROM jobs WHERE plan_id = ? AND plan_id <> '' AND step_id = ?
    ORDER BY seq DESC LIMIT 1
"""


def list_query(
    status: str | Collection[str] | None,
    network_arch: str | None,
    action: str | None,
    limit: int | None,
    backend_type: str | None,
    before: int | None,
    columns: str = "*",
) -> tuple[str, list[Any]]:
    """The query behind `list_jobs`; empty when no status can fit."""
    equals = {"network_arch": network_arch, "action": action, "backend_type": backend_type}
    conditions = ["seq < ?"]
    values: list[Any] = [_AFTER_EVERY_JOB if before is None else before]
    for column, value in equals.items():
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    statuses: list[str | None] = [None] if status is None else [*checked_statuses(status)]
    arms, arguments = [], []
    for state in statuses:
        arm = conditions if state is None else [*conditions, "status = ?"]
        arms.append(f"SELECT {columns} FROM jobs WHERE {' AND '.join(arm)}")
        arguments += values if state is None else [*values, state]
    # Arms instead of IN (...): SQLite merges arms that are ordered already, but would sort IN.
    query = f"{' UNION ALL '.join(arms)} ORDER BY seq DESC LIMIT ?" if arms else ""
    return query, [*arguments, checked_limit(limit)]


def of_backend_query(condition: str, backend_type: str | None) -> tuple[str, list[Any]]:
    """Jobs that fulfil the condition of a partial index."""
    query = f"SELECT {NARROW} FROM jobs WHERE {condition}"
    return (
        (query, []) if backend_type is None else (f"{query} AND backend_type = ?", [backend_type])
    )


def events_query(job_id: str | None, after: int, limit: int) -> tuple[str, list[Any]]:
    chosen, values = ("", []) if job_id is None else ("AND job_id = ?", [job_id])
    query = f"SELECT * FROM events WHERE seq > ? {chosen} ORDER BY seq LIMIT ?"
    return query, [after, *values, checked_limit(limit)]


def prefix_query(prefix: str) -> tuple[str, list[Any]]:
    """Jobs whose id begins with `prefix`; none when it is too short to mean one."""
    if len(prefix) < _SHORTEST_PREFIX:
        return "SELECT * FROM jobs WHERE 0", []
    query = "SELECT * FROM jobs WHERE job_id >= ? AND job_id < ? ORDER BY job_id LIMIT ?"
    return query, [prefix, prefix + _BEHIND_EVERY_ID, _SHOWN_CANDIDATES + 1]


def _several(reference: str, rows: list[Row]) -> str:
    lines = [
        f"  {row['job_id']}  {row['network_arch']} {row['action']}  {row['status']}  "
        f"{row['created_at']}"
        for row in rows[:_SHOWN_CANDIDATES]
    ]
    if len(rows) > _SHOWN_CANDIDATES:
        lines.append("  ...")
    return "\n".join([f"{reference!r} fits several jobs, give more of the id:", *lines])


def _none(reference: str, elsewhere: list[Row], backend_type: str | None) -> str:
    if elsewhere:
        return (
            f"job {elsewhere[0]['job_id']} belongs to platform {elsewhere[0]['backend_type']!r}, "
            f"not to {backend_type!r}"
        )
    if len(reference) < _SHORTEST_PREFIX:
        return f"no job {reference!r}: give at least {_SHORTEST_PREFIX} characters of the id"
    return f"no job {reference!r} in the store"
