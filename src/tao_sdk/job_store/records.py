"""Recording jobs and changing them one at a time: the methods of the reference's store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tao_sdk.errors import JobExistsError, ValidationError
from tao_sdk.job_states import JobState, utc_now, validate_job_id
from tao_sdk.job_store.base import StoreBase
from tao_sdk.job_store.rows import (
    Row,
    checked_status,
    checked_statuses,
    encode,
    is_terminal,
    same_json,
)
from tao_sdk.job_store.statements import (
    append_event,
    change_status,
    insert_row,
    require_parent,
    select_job,
    select_whole_job,
    update_job,
)

_MAY_GET_BACKEND_STATUS = (JobState.PENDING.value, JobState.RUNNING.value)


class _Record(NamedTuple):
    """The columns that a caller of the reference's API may set."""

    job_id: str
    network_arch: str
    action: str
    workspace_id: str
    backend_type: str
    backend_job_id: str
    status: str
    parent_job_id: str | None
    image: str
    specs: Mapping[str, Any] | None
    results_dir: str
    local_results_dir: str
    base_checkpoint: str
    plan_id: str
    step_id: int
    created_at: str | None

    def columns(self) -> Row:
        """The checked values of the row; raises before anything is written."""
        now = utc_now()
        return {
            **self._asdict(),
            "job_id": validate_job_id(self.job_id),
            "status": checked_status(self.status),
            "parent_job_id": self.parent_job_id or None,
            "specs": encode(self.specs, "specs"),
            "last_epoch": 0,
            "instance_id": "",
            "created_at": self.created_at or now,
            "updated_at": now,
        }


class Records(StoreBase):
    """Jobs as single rows."""

    def create_job(
        self,
        job_id: str,
        network_arch: str,
        action: str,
        workspace_id: str,
        backend_type: str = "",
        backend_job_id: str = "",
        status: str = JobState.PENDING.value,
        parent_job_id: str | None = None,
        image: str = "",
        specs: Mapping[str, Any] | None = None,
        results_dir: str = "",
        local_results_dir: str = "",
        base_checkpoint: str = "",
        plan_id: str = "",
        step_id: int = 0,
        created_at: str | None = None,
    ) -> None:
        """Record a job. An existing row of that id is replaced, but never one that has ended."""
        record = _Record(
            job_id,
            network_arch,
            action,
            workspace_id,
            backend_type,
            backend_job_id,
            status,
            parent_job_id,
            image,
            specs,
            results_dir,
            local_results_dir,
            base_checkpoint,
            plan_id,
            step_id,
            created_at,
        )
        self._record(record, replace=True)

    def create_job_if_absent(
        self,
        job_id: str,
        network_arch: str,
        action: str,
        workspace_id: str,
        backend_type: str = "",
        backend_job_id: str = "",
        status: str = JobState.PENDING.value,
        parent_job_id: str | None = None,
        image: str = "",
        specs: Mapping[str, Any] | None = None,
        results_dir: str = "",
        local_results_dir: str = "",
        base_checkpoint: str = "",
        plan_id: str = "",
        step_id: int = 0,
        created_at: str | None = None,
    ) -> bool:
        """Record a job unless its id is there already. True when it was recorded."""
        record = _Record(
            job_id,
            network_arch,
            action,
            workspace_id,
            backend_type,
            backend_job_id,
            status,
            parent_job_id,
            image,
            specs,
            results_dir,
            local_results_dir,
            base_checkpoint,
            plan_id,
            step_id,
            created_at,
        )
        return self._record(record, replace=False)

    def _record(self, record: _Record, *, replace: bool) -> bool:
        columns = record.columns()
        job_id, status = record.job_id, columns["status"]
        with self._database.write() as connection:
            row = select_job(connection, job_id)
            if row is not None and not replace:
                return False
            require_parent(connection, job_id, record.parent_job_id)
            if row is None:
                insert_row(connection, "jobs", columns)
                append_event(connection, job_id, "recorded", to_status=status)
                return True
            if is_terminal(row):
                raise JobExistsError(
                    f"job {job_id} has ended ({row['status']}) and cannot be recorded anew: "
                    "use another job id, or delete_job first"
                )
            update_job(connection, job_id, columns)
            append_event(
                connection, job_id, "replaced", from_status=row["status"], to_status=status
            )
        return True

    def get_job(self, job_id: str) -> Row | None:
        """The row of a job, or None. `specs` and the other JSON columns are text: see `decode`."""
        with self._database.read() as connection:
            return select_whole_job(connection, job_id)

    def compare_and_set_job_status(
        self, job_id: str, expected: Collection[str], status: str
    ) -> bool:
        """Change the status if it is one of `expected`. A job that has ended stays as it is."""
        expected, status = _expected_statuses(expected), checked_status(status)
        with self._database.write() as connection:
            row = select_job(connection, job_id)
            if row is None or row["status"] not in expected:
                return False
            if is_terminal(row) and row["status"] != status:
                return False
            change_status(connection, row, status)
        return True

    def update_job_backend_id(
        self, job_id: str, backend_job_id: str, status: str | None = None
    ) -> bool:
        """Note the platform's name of a job; together with a status only while it may still run."""
        status = None if status is None else checked_status(status)
        with self._database.write() as connection:
            row = select_job(connection, job_id)
            if row is None:
                return False
            if status is not None and row["status"] not in _MAY_GET_BACKEND_STATUS:
                return False
            update_job(connection, job_id, {"backend_job_id": backend_job_id})
            change_status(connection, row, status or row["status"])
        return True

    def update_job_specs(self, job_id: str, specs: Mapping[str, Any]) -> bool:
        """Replace the specs. True when the job exists."""
        text = encode(specs, "specs")
        with self._database.write() as connection:
            if select_job(connection, job_id) is None:
                return False
            update_job(connection, job_id, {"specs": text})
        return True

    def compare_and_set_job_specs(
        self,
        job_id: str,
        expected: Mapping[str, Any] | None,
        specs: Mapping[str, Any],
        *,
        expected_statuses: Collection[str] | None = None,
    ) -> bool:
        """Replace the specs if they equal `expected` in value and the status fits."""
        wanted, text = encode(expected, "expected"), encode(specs, "specs")
        statuses = None if expected_statuses is None else _expected_statuses(expected_statuses)
        with self._database.write() as connection:
            row = select_whole_job(connection, job_id)
            if row is None or not same_json(row["specs"], wanted):
                return False
            if statuses is not None and row["status"] not in statuses:
                return False
            update_job(connection, job_id, {"specs": text})
        return True


def _expected_statuses(expected: Collection[str]) -> list[str]:
    statuses = checked_statuses(expected)
    if not statuses:
        raise ValidationError("expected statuses: give at least one status")
    return statuses
