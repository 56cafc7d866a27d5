"""A job writes its own result record: nothing that it writes there touches another job."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzzing import DEEP, Findings, broken, counts, mutated

from tao_sdk import LocalSDK
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import Observation
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.observation import update_from_observation
from tao_sdk.process_identity import ProcessIdentity
from tao_sdk.result_record import MAX_RECORD_BYTES, ResultRecord, read_records, record_name
from tao_sdk.watcher import Watcher

GOOD = {
    "version": 1,
    "job_id": "j",
    "rank": 9,
    "attempt": 1,
    "exit_code": 3,
    "started_at": "2026-01-01T00:00:00Z",
    "ended_at": "2026-01-01T00:00:05.123Z",
    "host": "h",
}
POISON = {
    "an infinite code": '{"exit_code":1e999}',
    "a code of 30 digits": '{"exit_code":123456789012345678901234567890}',
    "a fraction": '{"exit_code":0.5}',
    "a code of 5,000 digits": '{"exit_code":' + "9" * 5000 + "}",
    "a late year": '{"ended_at":"9999-12-31T23:59:59Z"}',
    "no time": '{"ended_at":"yesterday"}',
    "a negative rank": '{"rank":-1}',
}


def record(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def test_a_good_record_is_read() -> None:
    assert ResultRecord.parse(record(), "j") is not None
    assert ResultRecord.parse(record(started_at=""), "j") is not None


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON.keys())
def test_a_value_out_of_bounds_is_no_record(poison: str) -> None:
    text = record()[:-1] + "," + poison[1:]
    assert ResultRecord.parse(text, "j") is None


@pytest.mark.parametrize(
    "text", [DEEP, DEEP[:60_000], '{"a":' * 10_000, " " * (1 << 20) + record()]
)
def test_deep_and_long_texts_are_no_record(text: str) -> None:
    assert ResultRecord.parse(text, "j") is None


@counts(2_000, 200_000)
def test_no_text_raises(count: int) -> None:
    chance, found = random.Random(1), Findings("records")
    for _ in range(count):
        text = json.dumps(mutated(GOOD, chance))
        text = broken(text, chance) if chance.random() < 0.5 else text

        def act(text: str = text) -> None:
            seen = ResultRecord.parse(text, "j")
            if seen is not None:
                row = {"job_id": "j", "cancel_requested_at": "2026-01-01T00:00:00+00:00"}
                ended = Observation(JobState.ERROR, "", seen.exit_code, ended_at=seen.ended_at)
                update_from_observation(row, ended)

        found.attempt(text, act)
    found.check()


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 30)


PLANTED: dict[str, Callable[[Path], object]] = {
    "a sparse file of 4 GiB": sparse,
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "deep nesting": lambda path: path.write_text(DEEP),
    "no text": lambda path: path.write_bytes(os.urandom(1000)),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_whatever_has_the_name_of_a_record(tmp_path: Path, plant: Callable[[Path], object]) -> None:
    plant(tmp_path / record_name(9))
    assert read_records(tmp_path, "j", 10) == []


def test_a_long_record_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / record_name(0)).write_text(record() + " " * MAX_RECORD_BYTES)
    assert [found.exit_code for found in read_records(tmp_path, "j", 1)] == [3]


def test_other_jobs_are_seen_to_their_end(tmp_path: Path) -> None:
    """The supervisor of a job is killed; the job then plants records and the files of its own."""
    sdk = LocalSDK(state_file=tmp_path / "s.json", work_dir=tmp_path / "root")
    hostile = sdk.create_job(command="sleep 600", gpu_count=0)
    good = sdk.create_job(command="sleep 1", gpu_count=0)
    folder = tmp_path / "root" / "jobs" / hostile.id
    eventually(lambda: (folder / "state.json").exists())
    eventually(lambda: json.loads((folder / "state.json").read_text()).get("ranks"))
    state = json.loads((folder / "state.json").read_text())
    state.update(phase="done", outcome="error", exit_code=10**40, message="\x1b\ud800", ended_at=5)
    (folder / "state.json").write_text(json.dumps(state))
    watcher = Watcher(tmp_path / "s.json", lambda _: None, lambda _: None)
    eventually(lambda: watcher.look() == 0)
    assert sdk.get_job_status(good.id).status == "Complete"
    [row] = sdk.store.jobs_by_id([hostile.id]).values()
    assert (row["status"], row["exit_code"], row["ended_at"]) == ("Error", None, "")
    sdk.cancel_job(hostile.id)
    listed = subprocess.run(
        [sys.executable, "-m", "tao_sdk.cli", "--state", str(tmp_path / "s.json"), "ls", "-a"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (listed.returncode, listed.stderr) == (0, "")
    for rank in state["ranks"]:
        process = ProcessIdentity.parse(rank["process"])
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)


REPLACED = {
    "pipes": "mkfifo job.log evidence.txt",
    "devices": "ln -s /dev/zero job.log; ln -s /dev/zero evidence.txt",
    "folders": "mkdir job.log evidence.txt",
    "sparse files": "truncate -s 4G job.log; ln -s /etc/passwd evidence.txt",
}


@pytest.mark.parametrize("replace", REPLACED.values(), ids=REPLACED.keys())
def test_a_job_that_replaces_its_own_files_hangs_no_command(tmp_path: Path, replace: str) -> None:
    """Neither its supervisor, which writes the evidence, nor a command that reads its log."""
    with LocalSDK(state_file=tmp_path / "s.json", work_dir=tmp_path / "root") as sdk:
        folder = f"{tmp_path}/root/jobs/$TAO_JOB_ID"
        results = f"mkfifo {tmp_path}/root/results/$TAO_JOB_ID/status.json"
        command = f"cd {folder} && rm job.log; {replace}; {results}; exit 3"
        job = sdk.create_job(command=command, gpu_count=0)
        assert sdk.wait(job.id, timeout=120).status == "Error"
    for words in (["status", job.id], ["logs", "--tail", "5", job.id], ["explain", job.id]):
        done = subprocess.run(
            [sys.executable, "-m", "tao_sdk.cli", "--state", str(tmp_path / "s.json"), *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode < 125, done.stderr
        assert "mistake" not in done.stderr
    assert Path("/etc/passwd").stat().st_size
