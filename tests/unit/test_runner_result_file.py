"""The rich result record: read by whoever reads the shim's."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.result_record import ResultRecord, shim_argv
from tao_sdk.runner.deliver import DeliveryResult
from tao_sdk.runner.process import Outcome
from tao_sdk.runner.report import Reporter, moment
from tao_sdk.runner.result_file import build_record, publish_record, record_name, save_record


def record(**changes: Any) -> dict[str, Any]:
    basis = {"job_id": "j1", "rank": 0, "attempt": 1, "exit_code": 0, "started_at": moment()}
    return build_record(**{**basis, **changes})


def test_the_sdk_accepts_it_and_people_find_more_in_it(tmp_path: Path) -> None:
    staged = Reporter(io.StringIO()).stage("staging", bytes_total=7, files_total=1)
    staged.add(7)
    staged.file_done()
    full = record(
        rank=2,
        attempt=4,
        exit_code=74,
        outcome=Outcome(0, 0, moment(), moment()),
        staged=staged,
        delivered=DeliveryResult(3, 99, [("/out/a", "refused")], [("/out/b", "broken")]),
        resumed_from="/out/epoch_3.pth",
        warnings=["odd"],
        seconds={"staging": 1.23456},
    )
    save_record(full, str(tmp_path / "deep" / "j1"), {})
    [path] = (tmp_path / "deep" / "j1").iterdir()
    assert path.name == record_name(2) == "tao_result.2.json"
    parsed = ResultRecord.parse(path.read_text(), "j1")
    assert parsed is not None
    assert (parsed.exit_code, parsed.rank, parsed.attempt) == (74, 2, 4)
    assert parsed.host == os.uname().nodename
    assert parsed.started_at <= parsed.ended_at
    data = json.loads(path.read_text())
    assert data["command"]["exit_code"] == 0
    assert data["staged"] == {"files": 1, "bytes": 7}
    assert data["delivered"]["failed"] == [{"path": "/out/a", "reason": "refused"}]
    assert data["delivered"]["skipped"] == [{"path": "/out/b", "reason": "broken"}]
    assert (data["resumed_from"], data["warnings"]) == ("/out/epoch_3.pth", ["odd"])
    assert data["seconds"] == {"staging": 1.235}


def test_a_command_that_never_started_has_a_record_too() -> None:
    parsed = ResultRecord.parse(json.dumps(record(exit_code=143, error="stopped by SIGTERM")), "j1")
    assert parsed is not None
    assert parsed.exit_code == 143


def test_it_stays_small() -> None:
    failed = [(f"/out/{number}", "refused") for number in range(100_000)]
    full = record(delivered=DeliveryResult(0, 0, failed, []), warnings=["odd"] * 100_000)
    assert full["delivered"]["failed_count"] == 100_000
    assert len(json.dumps(full)) < 50_000


def test_it_replaces_an_earlier_one_whole(tmp_path: Path) -> None:
    for attempt in (1, 2):
        save_record(record(attempt=attempt), str(tmp_path), {})
    [path] = tmp_path.iterdir()
    assert json.loads(path.read_text())["attempt"] == 2


def test_it_goes_to_the_remote_destination() -> None:
    objects: dict[str, bytes] = {}
    publish_record(record(rank=1), "s3://bucket/results/j1/", objects.__setitem__)
    [(uri, data)] = objects.items()
    assert uri == "s3://bucket/results/j1/tao_result.1.json"
    assert json.loads(data)["rank"] == 1


RUNNER = """
import os, sys
from tao_sdk.runner.result_file import build_record, save_record
code, real_code = map(int, sys.argv[1:])
record = build_record(job_id="j1", rank=0, attempt=1, exit_code=code, started_at="", error="word")
save_record(record, os.path.join(os.environ["TAO_RESULTS_ROOT"], "j1"), os.environ)
sys.exit(real_code)
"""


@pytest.mark.parametrize("shell", [["dash"], ["bash"], ["busybox", "sh"]], ids=" ".join)
@pytest.mark.parametrize(("code", "real_code", "kept"), [(0, 0, True), (3, 3, True), (0, 9, False)])
def test_the_shim_keeps_it_if_it_tells_the_truth(
    tmp_path: Path, shell: list[str], code: int, real_code: int, kept: bool
) -> None:
    if not shutil.which(shell[0]):
        pytest.skip(f"{shell[0]} is not installed: apt-get install {shell[0]}")
    _, *words = shim_argv([sys.executable, "-c", RUNNER, str(code), str(real_code)])
    env = {**os.environ, "TAO_RESULTS_ROOT": str(tmp_path), "TAO_JOB_ID": "j1"}
    ended = subprocess.run([*shell, *words], env=env, check=False, timeout=60)
    assert ended.returncode == real_code
    [path] = (tmp_path / "j1").iterdir()
    data = json.loads(path.read_text())
    assert data["exit_code"] == real_code
    assert ("error" in data) == kept
