"""Taking over the jobs of NVIDIA's own SDK: from its database, or from its session file.

The source is opened read-only and never written. A job that our store has already is left alone.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tao_sdk.errors import ForeignStoreError, ValidationError
from tao_sdk.job_states import JobState, utc_now, validate_job_id
from tao_sdk.job_store.base import StoreBase
from tao_sdk.job_store.rows import Row
from tao_sdk.job_store.statements import (
    append_event,
    insert_row,
    select_all,
    select_job,
    update_job,
)
from tao_sdk.plain_data import parse_json

if TYPE_CHECKING:
    import logging

_TEXT_COLUMNS = (
    "network_arch",
    "action",
    "workspace_id",
    "backend_type",
    "backend_job_id",
    "image",
    "results_dir",
    "local_results_dir",
    "base_checkpoint",
    "plan_id",
    "instance_id",
)
_NUMBER_COLUMNS = ("step_id", "last_epoch")
_STATES = frozenset(state.value for state in JobState)


def log() -> logging.Logger:
    import logging  # rarely needed

    return logging.getLogger(__name__)


class References(StoreBase):
    """Imports from NVIDIA's SDK."""

    def import_from_state_file(self, path: str | os.PathLike[str]) -> int:
        """Take over the jobs of a session file (JSON). Returns how many were new."""
        try:
            state = parse_json(Path(path).read_text(encoding="utf-8"))
            jobs = [job for job in state["active_jobs"] if isinstance(job, dict)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            log().info("no jobs imported from %s: %s", path, error)
            return 0
        with self._database.write() as connection:
            return len(_insert_absent(connection, jobs, str(path)))

    def import_reference(self, source: str | os.PathLike[str], *, once: bool = False) -> int:
        """Take over the jobs of the reference's database. Returns how many were new.

        With `once`, a database that was imported before is not read again.
        """
        path = Path(source).resolve()
        with self._database.read() as connection:
            if once and _was_imported(connection, path):
                return 0
        jobs, checkpoints = _read(path)
        with self._database.write() as connection:
            if once and _was_imported(connection, path):
                return 0  # another process was faster
            imported = _insert_absent(connection, jobs, str(path))
            for row in checkpoints:
                if row["job_id"] in imported:
                    insert_row(connection, "checkpoints", row)
            connection.execute(
                "INSERT OR REPLACE INTO imports (path, imported_at, jobs) VALUES (?, ?, ?)",
                (str(path), utc_now(), len(imported)),
            )
        return len(imported)


def _was_imported(connection: sqlite3.Connection, path: Path) -> bool:
    return bool(select_all(connection, "SELECT path FROM imports WHERE path = ?", (str(path),)))


def is_reference(path: Path) -> bool:
    """Whether the file is a job database of NVIDIA's SDK."""
    try:
        with closing(sqlite3.connect(_read_only_address(path), uri=True)) as connection:
            connection.execute("SELECT jobs.job_id, checkpoints.id FROM jobs, checkpoints LIMIT 0")
    except sqlite3.DatabaseError:
        return False
    return True


def _read(path: Path) -> tuple[list[Row], list[Row]]:
    """The jobs, oldest first, and the checkpoints of the reference's database."""
    try:
        with closing(sqlite3.connect(_read_only_address(path), uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            found = connection.execute("SELECT * FROM jobs ORDER BY created_at, rowid")
            jobs = [dict(row) for row in found]
            checkpoints = select_all(connection, "SELECT * FROM checkpoints ORDER BY id")
    except sqlite3.DatabaseError as error:
        raise ForeignStoreError(
            f"{path} cannot be read as a job database of NVIDIA's SDK ({error}): nothing was "
            "imported and nothing was changed"
        ) from error
    return jobs, [_checkpoint(row) for row in checkpoints]


def _read_only_address(path: Path) -> str:
    # Reading a cleanly closed WAL database would leave empty companion files beside it. No
    # process has it open while there is no -wal file, so it can be read as if it never changed.
    unchanging = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    return f"file://{quote(os.fsencode(path))}?mode=ro{unchanging}"


def _insert_absent(
    connection: sqlite3.Connection, jobs: Iterable[Mapping[str, Any]], origin: str
) -> set[str]:
    """Insert the jobs that are not in the store; link parents afterwards. The ids inserted."""
    parents: dict[str, str] = {}
    for job in jobs:
        columns = _columns(job, origin)
        if columns is None or select_job(connection, columns["job_id"]) is not None:
            continue
        insert_row(connection, "jobs", columns)
        append_event(
            connection,
            columns["job_id"],
            "imported",
            to_status=columns["status"],
            message=f"from {origin}",
        )
        parents[columns["job_id"]] = str(job.get("parent_job_id") or "")
    for job_id, parent in parents.items():
        if parent and parent != job_id and select_job(connection, parent) is not None:
            kept = select_job(connection, job_id) or {}
            update_job(
                connection, job_id, {"parent_job_id": parent, "updated_at": kept["updated_at"]}
            )
    return set(parents)


def _columns(job: Mapping[str, Any], origin: str) -> Row | None:
    try:
        job_id = validate_job_id(str(job.get("job_id", "")))
    except ValidationError as error:
        log().warning("%s: a job was not imported: %s", origin, error)
        return None
    now = utc_now()
    created_at = str(job.get("created_at") or now)
    given = str(job.get("status") or JobState.UNKNOWN.value)
    known = given in _STATES
    return {
        "job_id": job_id,
        **{name: str(job.get(name) or "") for name in _TEXT_COLUMNS},
        **{name: _number(job.get(name)) for name in _NUMBER_COLUMNS},
        "status": given if known else JobState.UNKNOWN.value,
        "message": "" if known else f"imported with the state {given!r}, which is not one of ours",
        "specs": _mapping_text(job.get("specs")),
        "created_at": created_at,
        "updated_at": str(job.get("updated_at") or created_at),
    }


def _checkpoint(row: Mapping[str, Any]) -> Row:
    return {
        "job_id": str(row["job_id"]),
        "path": str(row["path"]),
        "epoch": _number(row.get("epoch")),
        "format": str(row.get("format") or "safetensors"),
        "created_at": str(row.get("created_at") or utc_now()),
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _mapping_text(value: object) -> str:
    """The JSON text of a mapping, given as such or as text; {} for anything else."""
    try:
        parsed = parse_json(value) if isinstance(value, str) else value
        return json.dumps(parsed) if isinstance(parsed, dict) else "{}"
    except (TypeError, ValueError):
        return "{}"
