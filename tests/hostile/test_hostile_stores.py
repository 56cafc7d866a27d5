"""Damaged store files: recognised, named, and no command ends in a traceback."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from fuzzing import counts

from tao_sdk import LocalSDK
from tao_sdk.cli import main
from tao_sdk.errors import DamagedRowError, StoreError
from tao_sdk.failures import Evidence, explain
from tao_sdk.job_store import JobStore, NewJob, recovery
from tao_sdk.job_store.recovery import salvage
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.submit import job_ref
from tao_sdk.watcher import Watcher

JOBS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(60)]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of jobs in every phase."""
    path = tmp_path_factory.mktemp("good") / "s.tao.db"
    with JobStore(path) as store:
        for number, job_id in enumerate(JOBS):
            native = {"folder": f"/nowhere/jobs/{job_id}", "nodes": 1, "host": "h", "root": "r"}
            store.begin_submissions(
                [
                    NewJob(
                        job_id,
                        "dino",
                        "train",
                        "local",
                        "local",
                        f"token-{number}",
                        "",
                        specs={"train": {"epochs": number}},
                        request={"command": "true " * 30, "num_nodes": 1},
                        native=native,
                        results_dir=f"/nowhere/results/{job_id}",
                    )
                ]
            )
            store.confirm_submission(job_id, backend_job_id=f"tao-job-{job_id}", native=native)
            if number % 3:
                store.update_job_status(job_id, "Error")
                store.record_failures({job_id: explain(Evidence(exit_code=1))})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


COMMANDS = [
    ["ls", "-a"],
    ["ls", "-a", "--json"],
    ["status", JOBS[0]],
    ["status", JOBS[1], "--json"],
    ["explain", JOBS[1]],
    ["logs", JOBS[2]],
    ["doctor"],
]


@counts(60, 2_000)
def test_flipped_bytes_end_in_sentences(
    good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int
) -> None:
    chance, ends, bad = random.Random(7), Counter[int](), []
    place = tmp_path / "s.tao.db"
    for number in range(count):
        for left in tmp_path.iterdir():
            left.unlink() if left.is_file() else shutil.rmtree(left)
        content = bytearray(good.read_bytes())
        for _ in range(chance.choice([1, 3, 30, 300])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        place.write_bytes(content)
        place.chmod(0o600)
        words = chance.choice(COMMANDS)
        code = main(["--state", str(tmp_path / "s.json"), *words])
        ends[code] += 1
        said = capfd.readouterr()
        if "mistake in the SDK" in said.err:
            bad.append(f"{number} {words}: {said.err[-400:]}")
    print(f"damaged stores: {count} tried, exit codes {dict(ends)}, {len(bad)} bad")
    assert not bad, "\n".join(bad[:5])


DAMAGE = {
    "native": "{",
    "request": "\x00",
    "status": "Sleeping",
    "failure": "[1",
    "created_at": "yesterday",
    "updated_at": "",
    "exit_code": "x",
    "specs": "[[",
}


@pytest.mark.parametrize("column", DAMAGE)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_damaged_row_hides_no_other(
    good: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    column: str,
    words: list[str],
) -> None:
    place = tmp_path / "s.tao.db"
    shutil.copy(good, place)
    place.chmod(0o600)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        for job_id in JOBS[:3]:
            connection.execute(
                f"UPDATE jobs SET {column} = ? WHERE job_id = ?",  # noqa: S608 - our names
                (DAMAGE[column], job_id),
            )
    main(["--state", str(tmp_path / "s.json"), *words])
    said = capfd.readouterr()
    assert "mistake in the SDK" not in said.err
    if words[0] == "ls":
        assert JOBS[-1][:8] in said.out


TIMES = ["updated_at", "observed_at", "created_at", "started_at", "poll_error_since"]


@pytest.mark.parametrize("value", ["", "{", "2026-01-01", "\x00"], ids=repr)
@pytest.mark.parametrize("phase", ["submitting", "submitted"])
@pytest.mark.parametrize("column", [*TIMES, "native", "owner", "token", "request", "message"])
def test_a_damaged_row_stops_no_watcher(
    tmp_path: Path, column: str, phase: str, value: str
) -> None:
    place = tmp_path / "s.tao.db"
    with LocalSDK(state_file=place, work_dir=tmp_path / "root") as sdk:
        other = sdk.create_job(command="true", gpu_count=0)
        native = sdk.store.jobs_by_id([other.id])[other.id]["native"]
        new = NewJob(JOBS[0], "", "train", "local", "local", "token", "", native=json.loads(native))
        sdk.store.begin_submissions([new])
        if phase == "submitted":
            sdk.store.confirm_submission(JOBS[0], backend_job_id="x", native=json.loads(native))
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute("UPDATE jobs SET owner = '' WHERE job_id = ?", (JOBS[0],))
        connection.execute(
            f"UPDATE jobs SET {column} = ? WHERE job_id = ?",  # noqa: S608 - our names
            (value, JOBS[0]),
        )
    watcher = Watcher(place, lambda _: None, lambda _: None)

    def is_seen() -> bool:
        watcher.look()
        with JobStore(place) as store:
            return bool(store.jobs_by_id([other.id])[other.id]["status"] == "Complete")

    eventually(is_seen)


def test_a_damaged_lease_is_free(tmp_path: Path) -> None:
    with JobStore(tmp_path / "s.tao.db") as store:
        with store.lease("x", 60) as mine:
            assert mine
            with closing(sqlite3.connect(store.path)) as connection, connection:
                connection.execute("UPDATE leases SET until = 'soon', owner = 'someone'")
        with store.lease("x", 60) as mine:
            assert mine


def recover(place: Path) -> None:
    assert main(["--state", str(place), "doctor", "--recover"]) in (0, 1)


@counts(15, 500)
def test_what_can_be_read_is_saved(
    good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int
) -> None:
    chance, saved = random.Random(11), Counter[int]()
    for number in range(count):
        place = tmp_path / str(number) / "s.tao.db"
        place.parent.mkdir()
        content = bytearray(good.read_bytes())
        for _ in range(chance.choice([1, 5, 30])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        place.write_bytes(content)
        place.with_name("s.tao.db-gate").touch(0o600)
        recover(place)
        with JobStore(place) as store:
            rows = store.list_jobs()
        saved[len(rows)] += 1
        for kept in place.parent.glob("*.damaged-*[0-9]"):
            assert kept.read_bytes() == content
    capfd.readouterr()
    print(f"recovered stores: {count}; jobs saved: {dict(saved)}")
    assert saved.total() == count
    assert sum(jobs * times for jobs, times in saved.items()) > 0.8 * count * len(JOBS)


@pytest.mark.parametrize("page", [4, 6, 9])
def test_only_the_rows_of_a_damaged_page_are_lost(good: Path, tmp_path: Path, page: int) -> None:
    place = tmp_path / "s.tao.db"
    content = bytearray(good.read_bytes())
    content[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    place.write_bytes(content)
    place.with_name("s.tao.db-gate").touch(0o600)
    recover(place)
    with JobStore(place) as store:
        found = store.list_jobs()
        assert len(found) >= len(JOBS) - 15
        for row in found[:3]:
            assert row["native"].startswith('{"folder"')


def test_a_whole_store_is_left_alone(
    good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "s.tao.db"
    shutil.copy(good, place)
    recover(place)
    assert "is not damaged: nothing to recover" in capfd.readouterr().err
    assert list(tmp_path.glob("*damaged*")) == []


def test_a_file_of_another_program_is_not_recovered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "s.tao.db"
    place.write_bytes(b"not a database" * 1000)
    assert main(["--state", str(place), "doctor", "--recover"]) == 125
    assert place.read_bytes() == b"not a database" * 1000


def test_doctor_reports_an_emptied_store(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "s.tao.db"
    place.touch(0o600)
    place.with_name("s.tao.db-gate").touch(0o600)
    assert main(["--state", str(place), "doctor"]) == 1
    assert "is damaged: it is empty, and was a store" in capfd.readouterr().out


def test_a_running_job_of_an_emptied_store_is_found_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_LOCAL_ROOT", str(tmp_path / "root"))
    place = tmp_path / "s.tao.db"
    with LocalSDK(state_file=place) as sdk:
        job = sdk.create_job(command="sleep 600", gpu_count=0)
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
    place.write_bytes(b"")
    assert main(["--state", str(place), "ls"]) == 125
    assert "it is empty, and was a store" in capfd.readouterr().err
    recover(place)
    assert "rebuilt 1 from their folders" in capfd.readouterr().err
    with LocalSDK(state_file=place) as sdk:
        assert sdk.get_job_status(job.id).status == "Running"
        assert sdk.cancel_job(job.id)
        assert sdk.wait(job.id).status == "Canceled"


def test_recovery_without_hard_links_keeps_the_newest_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be in the write-ahead log only, which must not part from its file."""
    place = tmp_path / "s.tao.db"
    with JobStore(place) as store:
        store.begin_submissions(
            [NewJob(job_id, "", "", "local", "local", job_id, "") for job_id in JOBS[:3]]
        )
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute("UPDATE jobs SET native = '{' WHERE job_id = ?", (JOBS[0],))

        def refuse(*_: object) -> None:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        monkeypatch.setattr(os, "link", refuse)
        saved = salvage(place)
    assert (saved.jobs, saved.lost) == (3, 0)
    with closing(sqlite3.connect(saved.kept_as)) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (3,)


def test_a_full_disk_stops_the_recovery_and_loses_no_job(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "s.tao.db"
    content = good.read_bytes().replace(b"/nowhere/jobs/0000000", b'"nowhere/jobs/0000000', 1)
    place.write_bytes(content)

    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(recovery, "insert_row", refuse)
    with pytest.raises(StoreError, match=r"disk is full; it is as it was"):
        salvage(place)
    assert place.read_bytes() == content


def test_jobs_that_never_were_do_not_count_as_lost(tmp_path: Path) -> None:
    """Where the last page of jobs is damaged, the highest number cannot be read from them."""
    place = tmp_path / "s.tao.db"
    with JobStore(place) as store:
        store.begin_submissions(
            [
                NewJob(f"{number:08x}-x", "", "", "local", "local", str(number), "")
                for number in range(500)
            ]
        )
    with closing(sqlite3.connect(place)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'jobs'"
        [page] = connection.execute(query).fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(place.read_bytes())
    while content[(page - 1) * 4096] == 5:  # an inner page: its last child
        page = int.from_bytes(content[(page - 1) * 4096 + 8 : (page - 1) * 4096 + 12], "big")
    content[(page - 1) * 4096] = 0xFF
    place.write_bytes(content)
    saved = salvage(place)
    assert saved.jobs + saved.lost == 500


def test_a_database_of_another_program_with_a_log_is_not_recovered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "jobs.db"
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path))
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE bookmarks (address)")
        assert place.with_name("jobs.db-wal").exists()
        assert main(["doctor", "--recover"]) == 125
        assert "of another program" in capfd.readouterr().err
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("SELECT address FROM bookmarks")


@pytest.mark.parametrize("column", ["specs", "request", "failure"])
def test_a_job_is_saved_without_its_damaged_details(
    good: Path, tmp_path: Path, column: str
) -> None:
    place = tmp_path / "s.tao.db"
    shutil.copy(good, place)
    with closing(sqlite3.connect(place)) as connection, connection:
        query = f"UPDATE jobs SET {column} = '{{' WHERE job_id = ?"  # noqa: S608 - ours
        connection.execute(query, (JOBS[1],))
    assert "damaged" in recovery.damage_of(place)
    saved = salvage(place)
    assert (saved.jobs, saved.lost) == (len(JOBS), 0)
    assert recovery.damage_of(place) == ""


@pytest.mark.parametrize("native", ["{", "[]", None, b"\xff"], ids=repr)
def test_a_job_whose_way_to_its_platform_is_damaged_is_not_forgotten(
    good: Path, tmp_path: Path, native: str | bytes | None
) -> None:
    place = tmp_path / "s.tao.db"
    shutil.copy(good, place)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        nullable = "replace(sql, 'native TEXT NOT NULL', 'native TEXT')"
        connection.execute(f"UPDATE sqlite_master SET sql = {nullable}")  # noqa: S608 - ours
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE jobs SET native = ? WHERE job_id = ?", (native, JOBS[0]))
    saved = salvage(place)
    assert (saved.jobs, saved.lost) == (len(JOBS), 0)
    with JobStore(place) as store:
        row = store.jobs_by_id([JOBS[0]])[JOBS[0]]
    assert (row["backend_job_id"], row["token"]) == (f"tao-job-{JOBS[0]}", "token-0")
    with pytest.raises(DamagedRowError, match="its native in the store is damaged"):
        job_ref(row)


def test_local_jobs_whose_native_is_damaged_are_rebuilt_from_their_folders(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_LOCAL_ROOT", str(tmp_path / "root"))
    place = tmp_path / "s.tao.db"
    with LocalSDK(state_file=place) as sdk:
        job = sdk.create_job(command="sleep 600", gpu_count=0)
        ended = sdk.create_job(command="echo finished", gpu_count=0)
        assert sdk.wait(ended.id).status == "Complete"
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE jobs SET native = '{'")
    recover(place)
    assert "saved 2 jobs, rebuilt 2 from their folders" in capfd.readouterr().err
    assert recovery.damage_of(place) == ""
    with LocalSDK(state_file=place) as sdk:
        assert "finished" in sdk.get_job_logs(ended.id)
        assert sdk.cancel_job(job.id)
        assert sdk.wait(job.id).status == "Canceled"


def test_a_whole_store_that_cannot_be_opened_is_not_recovered(
    good: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "s.tao.db"
    shutil.copy(good, place)
    monkeypatch.setenv("TAO_SDK_STORE_MODE", "network")
    assert main(["--state", str(place), "doctor", "--recover"]) == 125
    assert "but network mode is called for" in capfd.readouterr().err
    assert list(tmp_path.glob("*damaged*")) == []
