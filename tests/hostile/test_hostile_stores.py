"""Damaged store files: recognised, named, and no command ends in a traceback."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from fuzzing import counts

from tao_sdk.cli import main
from tao_sdk.failures import Evidence, explain
from tao_sdk.job_store import JobStore, NewJob

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
    os.chmod(place, 0o600)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        for job_id in JOBS[:3]:
            connection.execute(
                f"UPDATE jobs SET {column} = ? WHERE job_id = ?", (DAMAGE[column], job_id)
            )
    main(["--state", str(tmp_path / "s.json"), *words])
    said = capfd.readouterr()
    assert "mistake in the SDK" not in said.err
    if words[0] == "ls":
        assert JOBS[-1][:8] in said.out
