"""Salvaging a damaged store: what can be read goes into a new file, the damaged one is kept.

The damaged file is only copied and renamed. The new one is filled under another name and takes its
place in one step, under the store's lock.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tao_sdk.errors import ForeignStoreError, NewerStoreError, StoreBusyError, StoreError, TaoError
from tao_sdk.job_states import validate_job_id
from tao_sdk.job_store.database import Database
from tao_sdk.job_store.deadline import Deadline
from tao_sdk.job_store.file_gate import FileGate
from tao_sdk.job_store.paths import PRIVATE_FILE
from tao_sdk.job_store.rows import JSON_COLUMNS, Row, decode_strictly, known_status
from tao_sdk.job_store.statements import insert_row
from tao_sdk.job_store.store_file import (
    Mode,
    build,
    choose_mode,
    connect,
    is_ours,
    read_header,
    wanted_mode,
    was_store,
)

_HEADER_BYTES = 100
_SIDECARS = ("-wal", "-journal")
# Each with the column that its rows are found by.
_TABLES = {"jobs": "seq", "job_requests": "rowid", "checkpoints": "id", "events": "seq"}
_SHORTEST_ROW = 20
_DETAILS = frozenset(JSON_COLUMNS) - {"native"}
_DAMAGED_NATIVE = "null"  # no mapping: the job is unreachable, and stays in its state


class Salvage(NamedTuple):
    """What was saved of a damaged store."""

    jobs: int
    lost: int
    """Rows of jobs that could not be read."""
    kept_as: Path
    """The damaged file."""


def damage_of(path: Path) -> str:
    """What is wrong with a store; "" for a whole one, or where there is none."""
    with suppress(ForeignStoreError):  # told below
        choose_mode(path)  # a whole store that the settings do not allow is not damaged
    database = Database(path)
    try:
        if not path.exists():
            return ""
        with database.read() as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                return str(found)
            for row in connection.execute("SELECT * FROM jobs"):
                if reason := damage_of_row(dict(row)):
                    return reason
    except (NewerStoreError, StoreBusyError):
        raise
    except StoreError as error:
        return str(error)
    finally:
        database.close()
    return ""


def damage_of_row(row: Row) -> str:
    """What is wrong with the row of a job; "" for a whole one."""
    try:
        validate_job_id(row["job_id"])
        for column in JSON_COLUMNS:
            if row.get(column):
                decode_strictly(row, column)
    except TaoError as error:
        return str(error)
    if known_status(row["status"]) != row["status"]:
        return f"job {row['job_id']}: {row['status']!r} is not a state"
    return ""


def salvage(path: Path) -> Salvage:
    """Put a new store, with all that can be read of the damaged one, in its place."""
    path = path.resolve()
    if not (was_store(path) or is_ours(path)):
        raise ForeignStoreError(f"{path} is not a job store, nor was one: nothing was changed")
    mode = _mode(path)
    try:
        with (
            _alone(path, mode),
            tempfile.TemporaryDirectory(prefix=f"{path.name}-recovery-", dir=path.parent) as folder,
        ):
            draft, copy = Path(folder, "new"), Path(folder, "damaged")
            _make_draft(draft, mode)
            for suffix in ("", *_SIDECARS):
                if path.with_name(path.name + suffix).is_file():
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
            _mend_header(copy, draft)
            jobs, lost = _transfer(copy, draft, mode)
            kept = _keep(path)
            draft.replace(path)
    except (OSError, sqlite3.Error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise StoreError(f"cannot recover {path}: {why}; it is as it was") from error
    return Salvage(jobs, lost, kept)


def _mode(path: Path) -> Mode:
    try:
        header = read_header(path)
    except ForeignStoreError:
        header = None
    return header.mode if header else wanted_mode(path)


def _alone(path: Path, mode: Mode) -> AbstractContextManager[Any]:
    deadline = Deadline.from_settings()
    if mode == "wal":
        return FileGate(path.with_name(f"{path.name}-gate")).held(deadline)
    from tao_sdk.job_store.network_lock import NetworkLock

    return NetworkLock(path).held(deadline)


def _make_draft(draft: Path, mode: Mode) -> None:
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    build(draft, mode)


def _mend_header(copy: Path, draft: Path) -> None:
    """A header that is not ours is replaced by that of a new store; the pages may be whole."""
    with open(draft, "rb") as new, open(copy, "r+b") as file:
        good, present = new.read(_HEADER_BYTES), file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
        if good[:20] == present[:20] and good[68:72] == present[68:72]:
            return
        page = int.from_bytes(good[16:18], "big")
        # Bytes 28 to 40: how many pages there are; none is free.
        pages = (size // page).to_bytes(4, "big") + bytes(8)
        if size >= _HEADER_BYTES:
            file.seek(0)
            file.write(good[:28] + pages + good[40:])


def _transfer(copy: Path, draft: Path, mode: Mode) -> tuple[int, int]:
    """How many jobs were saved, and how many could not be read."""
    lost = [0]
    with _opened(copy) as old, closing(connect(draft, mode)) as new:
        new.execute("PRAGMA foreign_keys = OFF")
        new.execute("BEGIN IMMEDIATE")
        for table, key in _TABLES.items():
            columns = {row[1] for row in new.execute(f"PRAGMA table_info({table})")}
            for row in _rows(old, table, key, copy.stat().st_size, lost if table == "jobs" else []):
                known = {n: v for n, v in row.items() if n in columns and v is not None}
                if table == "jobs":
                    known = _without_damaged_details(known)
                    # Without it, a platform could take another job for this one, or none.
                    known.setdefault("native", _DAMAGED_NATIVE)
                whole = {"status": None, "job_id": None, **known, "native": "{}"}
                if table == "jobs" and damage_of_row(whole):
                    lost[0] += 1
                    continue
                try:
                    insert_row(new, table, known)
                except (sqlite3.IntegrityError, sqlite3.InterfaceError):
                    lost[0] += table == "jobs"
        orphan = "NOT IN (SELECT job_id FROM jobs)"
        new.execute(f"UPDATE jobs SET parent_job_id = NULL WHERE parent_job_id {orphan}")
        for table in _TABLES.keys() - {"jobs"}:
            new.execute(f"DELETE FROM {table} WHERE job_id {orphan}")
        jobs = new.execute("SELECT count(*) FROM jobs").fetchone()[0]
        new.execute("COMMIT")
        if mode == "wal":
            new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(jobs), lost[0]


def _without_damaged_details(row: Row) -> Row:
    """The row without what a job can do without: what ran, and why it failed.

    A damaged `native` stays. The platform is not asked about such a job, which is listed as
    unreachable, with the name that it has on the platform.
    """
    whole = dict(row)
    for column in _DETAILS & row.keys():
        try:
            decode_strictly({"job_id": "", **row}, column)
        except TaoError:
            del whole[column]
    return whole


@contextmanager
def _opened(copy: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            # Go on with what can be understood of a damaged schema.
            connection.execute("PRAGMA writable_schema = ON")
        yield connection


def _rows(
    connection: sqlite3.Connection, table: str, key: str, size: int, lost: list[int]
) -> Iterator[Row]:
    """The rows that can be read: of ranges that cannot, the halves are tried."""
    last = _last(connection, table, key) or size // _SHORTEST_ROW
    ranges = [(1, last)]
    query = f"SELECT * FROM {table} WHERE {key} BETWEEN ? AND ? ORDER BY {key}"
    while ranges:
        first, last = ranges.pop()
        try:
            found = [dict(row) for row in connection.execute(query, (first, last))]
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                return
            found = []
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            if first < last:
                middle = (first + last) // 2
                ranges += [(middle + 1, last), (first, middle)]
            elif lost:
                lost[0] += 1
            continue
        yield from found


def _last(connection: sqlite3.Connection, table: str, key: str) -> int:
    """The highest key; 0 where neither the table nor SQLite's own note of it can be read."""
    noted = f"SELECT seq FROM sqlite_sequence WHERE name IN ('{table}', 'jobs') ORDER BY seq DESC"
    for query in (f"SELECT max({key}) FROM {table}", noted):
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError, TypeError, ValueError):
            return int(connection.execute(query).fetchone()[0] or 0)
    return 0


def _keep(path: Path) -> Path:
    """Give the damaged file another name, with its logs: they would be replayed into the new."""
    kept = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    # First, because it can fail: without its log the file would lack its newest jobs.
    try:
        os.link(path, kept)
    except OSError:  # not every file system has hard links
        shutil.copyfile(path, kept)
        kept.chmod(PRIVATE_FILE)
    for suffix in (*_SIDECARS, "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(f"{kept}{suffix}")
    return kept
