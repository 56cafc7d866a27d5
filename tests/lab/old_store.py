"""Stores as the first version of the SDK left them (`store_version_1.sql`)."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tao_sdk.job_store import JobStore, decode
from tao_sdk.job_store.schema import APPLICATION_ID

_DUMP = Path(__file__).with_name("store_version_1.sql")
# Of a job that waits for GPUs on a Docker host; in the dump, none does.
_WHILE_WAITING = {"queued"}
_TABLES = ("checkpoints", "events", "imports", "jobs")


def old_rows(table: str = "jobs") -> list[dict[str, Any]]:
    """The rows of the dump as that version read them."""
    with closing(_dumped()) as database:
        return _rows(database, table)


def write_old_store(path: Path, *, network: bool = False) -> None:
    """The store of the dump."""
    with closing(_dumped()) as database:
        _write(path, database, network=network)


def make_old(path: Path) -> None:
    """Rewrite a closed store of today as the first version would have left it.

    Of what the platform keeps about a job, only those keys remain that this version knew.
    """
    with JobStore(path) as store:
        rows = {row["job_id"]: row for row in store.list_jobs()}
        events = store.events()
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    with closing(_dumped()) as database:
        for table in _TABLES:
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of the dump
        for row in rows.values():
            _insert(database, "jobs", {**row, "native": json.dumps(_old_native(row))})
        for event in events:
            _insert(database, "events", event)
        _write(path, database)


_READ_BY_NO_VERSION = {"type", "price", "keep"}
"""Of Brev's instances; the ledger has them."""


def _old_native(row: Mapping[str, Any]) -> dict[str, Any]:
    native = decode(row, "native")
    known = {
        key
        for old in old_rows()
        if old["backend_type"] == row["backend_type"]
        for key in decode(old, "native")
    }
    if row["status"] == "Running":
        missing = sorted(known - native.keys() - _READ_BY_NO_VERSION)
        assert not missing, f"{row['backend_type']}: the version before had {missing}, too"
    return {key: value for key, value in native.items() if key in known | _WHILE_WAITING}


def _dumped() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.executescript(_DUMP.read_text(encoding="utf-8"))
    return database


def _rows(database: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    return [dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY rowid")]  # noqa: S608 - a name of the dump


def _insert(database: sqlite3.Connection, table: str, values: Mapping[str, Any]) -> None:
    columns = [row["name"] for row in database.execute(f"PRAGMA table_info({table})")]
    database.execute(
        f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",  # noqa: S608 - a name of the dump
        [values[name] for name in columns],
    )


def _write(path: Path, database: sqlite3.Connection, *, network: bool = False) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(f"PRAGMA journal_mode = {'DELETE' if network else 'WAL'}")
        file.executescript("\n".join(database.iterdump()))
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute("PRAGMA user_version = 1")
