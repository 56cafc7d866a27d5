"""A store of the version before is brought up to date, and loses nothing on the way.

That its jobs go on, on their platforms, is part of the conformance suite (`TestUpgrade`).
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab.old_store import old_rows, write_old_store
from tao_sdk.job_store import JobStore, Row, StatusUpdate, decode, schema

PLATFORMS = ("local", "docker", "slurm", "kubernetes", "brev", "lepton")


@pytest.fixture(params=["wal", "network"])
def path(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", request.param)
    path = tmp_path / "jobs.db"
    write_old_store(path, network=request.param == "network")
    return path


@pytest.fixture
def store(path: Path) -> Iterator[JobStore]:
    with JobStore(path) as store:
        yield store


def of_old_columns(rows: list[Row]) -> list[dict[str, Any]]:
    columns = old_rows()[0].keys()
    return [{name: row[name] for name in columns} for row in rows]


def test_every_row_survives(store: JobStore) -> None:
    assert of_old_columns(store.list_jobs()) == list(reversed(old_rows()))
    assert store.events() == old_rows("events")
    for row in old_rows("checkpoints"):
        assert store.get_checkpoints(row["job_id"]) == [row]


def test_the_file_is_of_the_present_version_afterwards(store: JobStore, path: Path) -> None:
    store.list_jobs()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_open_jobs_go_on(store: JobStore, platform: str) -> None:
    (row,) = store.active_jobs(platform)
    ended = StatusUpdate(row["job_id"], status="Error", exit_code=1, cleanup_due=True)
    assert store.apply_updates([ended]) == {row["job_id"]: "Error"}
    assert store.record_failure(row["job_id"], {"cause": "x"})
    assert [found["job_id"] for found in store.jobs_to_clean(platform)] == [row["job_id"]]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_explanations_stay(store: JobStore, platform: str) -> None:
    failed = store.list_jobs(status="Error", backend_type=platform)
    assert [decode(row, "failure")["exit_code"] for row in failed] == [3]


def test_an_unsettled_submission_is_settled(path: Path) -> None:
    with closing(sqlite3.connect(path)) as old:
        old.execute("UPDATE jobs SET phase = 'submitting' WHERE status = 'Running'")
        old.commit()
    with JobStore(path) as store:
        for platform in PLATFORMS:
            (row,) = store.unsettled_submissions(platform)
            assert store.claim_submission(row["job_id"], "", "me")
            assert store.confirm_submission(row["job_id"], backend_job_id="b", native={})


def test_long_requests_of_open_jobs_move_to_their_own_table(path: Path) -> None:
    long = json.dumps({"command": "x" * 40_000, "num_nodes": 2})
    with closing(sqlite3.connect(path)) as old:
        old.execute("UPDATE jobs SET request = ?", (long,))
        old.commit()
    with JobStore(path) as store:
        assert {row["request"] for row in store.list_jobs()} == {long}
        for row in store.active_jobs():
            assert decode(row, "request")["num_nodes"] == 2
            assert len(row["request"]) < 1000
        with store._database.read() as connection:
            moved = {row[0] for row in connection.execute("SELECT job_id FROM job_requests")}
        assert moved == {row["job_id"] for row in store.active_jobs()}


def test_an_ended_job_is_forgotten_with_all_of_its_rows(store: JobStore) -> None:
    done = store.list_jobs(status="Complete")[0]["job_id"]
    assert store.delete_job(done)
    assert store.events(done) == store.get_checkpoints(done) == []


class TestOldProcess:
    """A process of the version before that has the file open goes on reading and writing."""

    @pytest.fixture
    def old(self, path: Path) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("SELECT * FROM jobs").fetchall()
            yield connection

    def test_its_jobs_are_found(self, old: sqlite3.Connection, path: Path) -> None:
        with JobStore(path) as store:
            store.list_jobs()
            row = {**old_rows()[0], "seq": 100, "job_id": "by-the-old-process"}
            row["request"] = json.dumps({"command": "x" * 40_000, "num_nodes": 2})
            insert = f"INSERT INTO jobs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608 - the columns of the dump
            old.execute(insert, [*row.values()])
            found = store.get_job("by-the-old-process")
            assert found is not None
            assert of_old_columns([found]) == [row]
            assert found["job_id"] in {row["job_id"] for row in store.active_jobs("local")}

    def test_it_goes_on_with_jobs_of_ours(self, old: sqlite3.Connection, path: Path) -> None:
        with JobStore(path) as store:
            (ours,) = store.active_jobs("slurm")
            name = ours["job_id"]
            old.execute("UPDATE jobs SET status = 'Complete' WHERE job_id = ?", (name,))
            assert [row["job_id"] for row in store.list_jobs("Complete", backend_type="slurm")] == [
                name
            ]


def test_processes_that_upgrade_at_once_do_it_once(path: Path) -> None:
    stores = [JobStore(path) for _ in range(6)]
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda store=store: counts.append(len(store.list_jobs())))
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [len(old_rows())] * 6
