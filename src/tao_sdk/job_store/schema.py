"""The tables, and how an older store is brought up to date.

`PRAGMA user_version` counts the migrations that a file has had; `application_id` says that the
file is ours. A migration runs inside one transaction: it happens whole or not at all. Changes must
be additive, because processes of the previous version may have the file open.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from tao_sdk.errors import ForeignStoreError, NewerStoreError
from tao_sdk.job_states import TERMINAL_STATES, JobState
from tao_sdk.job_store.rows import abridged
from tao_sdk.job_store.statements import NARROW

APPLICATION_ID = int.from_bytes(b"TAOj", "big")

_TABLES = frozenset({"jobs", "checkpoints", "events", "imports", "leases", "job_requests"})


def _quoted(words: list[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


_STATES = _quoted([state.value for state in JobState])

# The one spelling of "has not ended": SQLite uses a partial index only where a query repeats the
# index's own condition.
ACTIVE = f"status NOT IN ({_quoted(sorted(TERMINAL_STATES))})"
UNSETTLED = "phase = 'submitting'"
TO_CLEAN = "cleanup_due = 1"

_VERSION_1 = (
    f"""
    CREATE TABLE jobs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        network_arch TEXT NOT NULL,
        action TEXT NOT NULL,
        workspace_id TEXT NOT NULL,
        backend_type TEXT NOT NULL DEFAULT '',
        backend_job_id TEXT NOT NULL DEFAULT '',
        status TEXT NOT NULL DEFAULT 'Pending' CHECK (status IN ({_STATES})),
        parent_job_id TEXT REFERENCES jobs (job_id) DEFERRABLE INITIALLY DEFERRED,
        image TEXT NOT NULL DEFAULT '',
        specs TEXT NOT NULL DEFAULT '{{}}',
        results_dir TEXT NOT NULL DEFAULT '',
        local_results_dir TEXT NOT NULL DEFAULT '',
        base_checkpoint TEXT NOT NULL DEFAULT '',
        plan_id TEXT NOT NULL DEFAULT '',
        step_id INTEGER NOT NULL DEFAULT 0,
        last_epoch INTEGER NOT NULL DEFAULT 0,
        instance_id TEXT NOT NULL DEFAULT '',
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        phase TEXT NOT NULL DEFAULT 'recorded',
        token TEXT NOT NULL DEFAULT '',
        owner TEXT NOT NULL DEFAULT '',
        native TEXT NOT NULL DEFAULT '{{}}',
        request TEXT NOT NULL DEFAULT '{{}}',
        message TEXT NOT NULL DEFAULT '',
        observed_at TEXT NOT NULL DEFAULT '',
        poll_error TEXT NOT NULL DEFAULT '',
        poll_error_since TEXT NOT NULL DEFAULT '',
        missing_since TEXT NOT NULL DEFAULT '',
        cancel_requested_at TEXT NOT NULL DEFAULT '',
        started_at TEXT NOT NULL DEFAULT '',
        ended_at TEXT NOT NULL DEFAULT '',
        exit_code INTEGER,
        failure TEXT
    )
    """,
    # Every index ends in the row's seq by itself, so each of these also yields newest first.
    "CREATE INDEX jobs_by_status ON jobs (status)",
    "CREATE INDEX jobs_by_backend ON jobs (backend_type)",
    "CREATE INDEX jobs_by_backend_and_status ON jobs (backend_type, status)",
    f"CREATE INDEX jobs_active ON jobs (backend_type) WHERE {ACTIVE}",
    f"CREATE INDEX jobs_unsettled ON jobs (backend_type) WHERE {UNSETTLED}",
    "CREATE INDEX jobs_by_parent ON jobs (parent_job_id) WHERE parent_job_id IS NOT NULL",
    "CREATE INDEX jobs_by_step ON jobs (plan_id, step_id) WHERE plan_id <> ''",
    """
    CREATE TABLE checkpoints (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
        path TEXT NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0,
        format TEXT NOT NULL DEFAULT 'safetensors',
        created_at TEXT NOT NULL
    )
    """,
    "CREATE INDEX checkpoints_by_job ON checkpoints (job_id)",
    """
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
        at TEXT NOT NULL,
        kind TEXT NOT NULL,
        from_status TEXT NOT NULL DEFAULT '',
        to_status TEXT NOT NULL DEFAULT '',
        message TEXT NOT NULL DEFAULT '',
        actor TEXT NOT NULL DEFAULT ''
    )
    """,
    "CREATE INDEX events_by_job ON events (job_id)",
    """
    CREATE TABLE imports (
        path TEXT PRIMARY KEY,
        imported_at TEXT NOT NULL,
        jobs INTEGER NOT NULL
    )
    """,
)


_VERSION_2 = (
    "ALTER TABLE jobs ADD COLUMN cleanup_due INTEGER NOT NULL DEFAULT 0",
    f"CREATE INDEX jobs_to_clean ON jobs (backend_type) WHERE {TO_CLEAN}",
    """
    CREATE TABLE leases (
        name TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        until TEXT NOT NULL
    )
    """,
)

# The request of a job holds the command with everything that is packed into it, tens of kilobytes.
# SQLite would read them all, to get at the columns behind them, whenever it reads the row. So the
# row holds a short form and the side table the whole, where those differ.
_VERSION_3 = """
    CREATE TABLE job_requests (
        job_id TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
        request TEXT NOT NULL
    )
"""


def _create_version_1(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_1:
        connection.execute(statement)


def _add_leases_and_cleanup(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_2:
        connection.execute(statement)


def _move_long_requests(connection: sqlite3.Connection) -> None:
    """Of open jobs only: ended ones are hardly read, and there may be any number of them."""
    connection.execute(_VERSION_3)
    query = f"SELECT job_id, request FROM jobs WHERE {ACTIVE}"
    for job_id, request in connection.execute(query).fetchall():
        short = abridged(request)
        if short != request:
            connection.execute("INSERT INTO job_requests VALUES (?, ?)", (job_id, request))
            connection.execute("UPDATE jobs SET request = ? WHERE job_id = ?", (short, job_id))


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _create_version_1,
    _add_leases_and_cleanup,
    _move_long_requests,
)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the present version; new files start at version 0. One transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[_version(connection) :]:
            step(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def needs_migration(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the store is older than we are; raises when it is newer or not whole."""
    version = _version(connection)
    refuse_newer(version, path)
    if version < len(MIGRATIONS):
        return True
    found = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    missing = sorted(_TABLES - found)
    if not missing:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(jobs)")}
        missing = [f"jobs.{name}" for name in NARROW.split(", ") if name not in columns]
    if missing:
        raise ForeignStoreError(
            f"{path} is damaged (it lacks {', '.join(missing)}): restore it from a "
            "backup, or salvage it with `tao-sdk doctor --recover`; nothing was changed"
        )
    return False


def refuse_newer(version: int, path: Path) -> None:
    if version > len(MIGRATIONS):
        raise NewerStoreError(
            f"{path} was written by a newer version of the SDK (store version {version}, this one "
            f"knows {len(MIGRATIONS)}): upgrade the SDK (pip install -U tao-sdk) or choose another "
            "state file; nothing was changed"
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
