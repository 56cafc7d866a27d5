"""Taking over the jobs of NVIDIA's SDK without touching its files."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tao_sdk.errors import ForeignStoreError
from tao_sdk.job_store import JobStore, Row, decode, merge_legacy_database

JOBS = """
CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY, network_arch TEXT NOT NULL, action TEXT NOT NULL,
    workspace_id TEXT NOT NULL, backend_type TEXT DEFAULT '', backend_job_id TEXT DEFAULT '',
    status TEXT DEFAULT 'Pending', parent_job_id TEXT REFERENCES jobs (job_id),
    image TEXT DEFAULT '', specs TEXT DEFAULT '{}', results_dir TEXT DEFAULT '',
    local_results_dir TEXT DEFAULT '', base_checkpoint TEXT DEFAULT '',
    last_epoch INTEGER DEFAULT 0, created_at TEXT, updated_at TEXT
)
"""
LATER_COLUMNS = (
    "ALTER TABLE jobs ADD COLUMN plan_id TEXT DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN step_id INTEGER DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN instance_id TEXT DEFAULT ''",
)
CHECKPOINTS = """
CREATE TABLE checkpoints (
    id INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT REFERENCES jobs (job_id), path TEXT,
    epoch INTEGER DEFAULT 0, format TEXT DEFAULT 'safetensors', created_at TEXT
)
"""


def make_reference(path: Path, *, journal: str = "WAL", later_columns: bool = True) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute(JOBS)
    if later_columns:
        for statement in LATER_COLUMNS:
            connection.execute(statement)
    connection.execute(CHECKPOINTS)
    rows = [
        # The child was written first: its parent must be linked all the same.
        ("child", "Running", "mother", '{"_tao_artifacts": {}}', "2024-02-01T00:00:00+00:00"),
        ("mother", "Complete", None, '{"lr": 0.1}', "2024-01-01T00:00:00+00:00"),
        ("stopping", "Canceling", None, "{}", "2024-03-01T00:00:00+00:00"),
        ("odd", "Banana", "vanished", "not json", "2024-03-02T00:00:00+00:00"),
        ("../../etc/passwd", "Complete", None, "{}", "2024-03-03T00:00:00+00:00"),
    ]
    for job_id, status, parent, specs, created in rows:
        connection.execute(
            "INSERT INTO jobs (job_id, network_arch, action, workspace_id, backend_type, "
            "backend_job_id, status, parent_job_id, specs, last_epoch, created_at, updated_at) "
            "VALUES (?, 'dino', 'train', 'local', 'docker', 'tao-job', ?, ?, ?, 4, ?, ?)",
            (job_id, status, parent, specs, created, created),
        )
    connection.execute(
        "INSERT INTO checkpoints (job_id, path, epoch, created_at) "
        "VALUES ('mother', '/m.pth', 9, 't')"
    )
    connection.commit()
    connection.close()


def snapshot(folder: Path, stem: str) -> dict[str, tuple[bytes, int]]:
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.iterdir()
        if path.name.startswith(stem)
    }


def row_of(store: JobStore, job_id: str) -> Row:
    row = store.get_job(job_id)
    assert row is not None
    return row


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
@pytest.mark.parametrize("later_columns", [True, False])
def test_jobs_beside_the_state_file_are_taken_over(
    tmp_path: Path, journal: str, later_columns: bool
) -> None:
    make_reference(tmp_path / "run.db", journal=journal, later_columns=later_columns)
    before = snapshot(tmp_path, "run.db")
    store = JobStore.for_state_file(tmp_path / "run.json")
    assert snapshot(tmp_path, "run.db") == before

    assert [row["job_id"] for row in store.list_jobs()] == ["odd", "stopping", "child", "mother"]
    mother = row_of(store, "mother")
    assert (mother["status"], mother["backend_job_id"], mother["last_epoch"]) == (
        "Complete",
        "tao-job",
        4,
    )
    assert mother["created_at"] == mother["updated_at"] == "2024-01-01T00:00:00+00:00"
    assert decode(mother, "specs") == {"lr": 0.1}
    assert mother["phase"] == "recorded"
    child = row_of(store, "child")
    assert child["parent_job_id"] == "mother"
    assert child["updated_at"] == "2024-02-01T00:00:00+00:00"
    assert [row["path"] for row in store.get_checkpoints("mother")] == ["/m.pth"]
    assert [event["kind"] for event in store.events("child")] == ["imported"]


def test_states_that_are_not_ours_become_unknown_and_say_so(tmp_path: Path) -> None:
    make_reference(tmp_path / "run.db")
    store = JobStore.for_state_file(tmp_path / "run.json")
    for job_id, old in (("stopping", "Canceling"), ("odd", "Banana")):
        row = row_of(store, job_id)
        assert row["status"] == "Unknown"
        assert old in row["message"]
    assert row_of(store, "odd")["parent_job_id"] is None
    assert decode(row_of(store, "odd"), "specs") == {}


def test_a_job_with_an_impossible_id_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_reference(tmp_path / "run.db")
    with caplog.at_level(logging.WARNING):
        store = JobStore.for_state_file(tmp_path / "run.json")
    assert len(store.list_jobs()) == 4
    assert "etc/passwd" in caplog.text


def test_it_happens_once(tmp_path: Path) -> None:
    make_reference(tmp_path / "run.db")
    store = JobStore.for_state_file(tmp_path / "run.json")
    assert store.prune(keep=0, dry_run=False) == []  # the mother of a remaining job stays
    store.update_job_status("child", "Complete")
    store.prune(keep=0)
    again = JobStore.for_state_file(tmp_path / "run.json")
    assert sorted(row["job_id"] for row in again.list_jobs()) == ["odd", "stopping"]


def test_in_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path))
    make_reference(tmp_path / "tao_session_state.db")
    assert len(JobStore.for_state_file().list_jobs()) == 4


def test_our_own_rows_win(tmp_path: Path) -> None:
    make_reference(tmp_path / "run.db")
    with JobStore(tmp_path / "run.tao.db") as store:
        store.create_job("mother", "ours", "train", "local")
    store = JobStore.for_state_file(tmp_path / "run.json")
    assert row_of(store, "mother")["network_arch"] == "ours"
    assert store.get_checkpoints("mother") == []
    assert row_of(store, "child")["parent_job_id"] == "mother"


def test_a_database_that_its_program_did_not_close_is_read_with_its_log(tmp_path: Path) -> None:
    make_reference(tmp_path / "run.db")
    crash = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("INSERT INTO jobs (job_id, network_arch, action, workspace_id, created_at) "
                   "VALUES ('last', 'dino', 'train', 'local', 't')")
connection.commit()
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", crash, str(tmp_path / "run.db")], check=True)
    assert (tmp_path / "run.db-wal").stat().st_size > 0
    before = {name: content for name, (content, _) in snapshot(tmp_path, "run.db").items()}
    store = JobStore.for_state_file(tmp_path / "run.json")
    assert store.get_job("last") is not None
    after = {name: content for name, (content, _) in snapshot(tmp_path, "run.db").items()}
    assert after["run.db"] == before["run.db"]
    assert after["run.db-wal"] == before["run.db-wal"]


@pytest.mark.parametrize("content", [b"", b"rubbish" * 1000])
def test_a_file_of_somebody_else_does_not_stand_in_the_way(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run.db").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        store = JobStore.for_state_file(tmp_path / "run.json")
    store.create_job("job-1", "dino", "train", "local")
    assert "cannot be read as a job database" in caplog.text
    assert (tmp_path / "run.db").read_bytes() == content


def test_processes_that_open_it_at_once_import_it_once(tmp_path: Path) -> None:
    make_reference(tmp_path / "run.db")
    code = "import sys; from tao_sdk.job_store import JobStore as S; S.for_state_file(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "run.json")]
    started = [
        subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(4)
    ]
    assert [process.wait() for process in started] == [0] * 4
    store = JobStore.for_state_file(tmp_path / "run.json")
    assert len(store.list_jobs()) == len(store.events()) == 4
    assert len(store.get_checkpoints("mother")) == 1


class TestMerging:
    def test_by_path_and_again(self, tmp_path: Path) -> None:
        make_reference(tmp_path / "theirs.db")
        assert merge_legacy_database(tmp_path / "theirs.db", tmp_path / "ours.db") == 4
        assert merge_legacy_database(tmp_path / "theirs.db", tmp_path / "ours.db") == 0

    def test_into_an_open_store(self, tmp_path: Path) -> None:
        make_reference(tmp_path / "theirs.db")
        with JobStore(":memory:") as store:
            assert merge_legacy_database(tmp_path / "theirs.db", store) == 4
            assert store.get_job("child") is not None

    def test_a_missing_or_foreign_source_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ForeignStoreError, match="cannot be read"):
            merge_legacy_database(tmp_path / "missing.db", tmp_path / "ours.db")
        sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (a)").connection.close()
        with pytest.raises(ForeignStoreError, match="no such table"):
            merge_legacy_database(tmp_path / "other.db", tmp_path / "ours.db")
        assert not (tmp_path / "missing.db").exists()


class TestStateFile:
    def test_its_jobs_are_taken_over(self, tmp_path: Path) -> None:
        jobs = [
            {"job_id": "child", "network_arch": "dino", "parent_job_id": "mother", "last_epoch": 3},
            {"job_id": "mother", "network_arch": "dino", "status": "Complete"},
            {"job_id": "../x"},
            "no mapping",
        ]
        path = tmp_path / "state.json"
        path.write_text(json.dumps({"active_jobs": jobs}))
        store = JobStore(":memory:")
        assert store.import_from_state_file(path) == 2
        assert store.import_from_state_file(str(path)) == 0
        child = row_of(store, "child")
        assert (child["status"], child["last_epoch"]) == ("Unknown", 3)
        assert child["parent_job_id"] == "mother"
        assert child["message"] == ""

    @pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"active_jobs": 3}'])
    def test_a_file_without_jobs(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "state.json"
        path.write_text(content)
        assert JobStore(":memory:").import_from_state_file(path) == 0

    def test_no_file(self, tmp_path: Path) -> None:
        assert JobStore(":memory:").import_from_state_file(tmp_path / "missing.json") == 0
