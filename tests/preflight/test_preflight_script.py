"""`check_tao_launch_preflight.py`: flags, exit codes, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from launches import CANARIES, isolate, write_data

from tao_sdk.preflight.script import check_tao_launch_preflight

V700 = (
    "--skill-bank",
    "--platform",
    "--path",
    "--json-required-field",
    "--json-sample-limit",
    "--skip-platform-access",
)
V701 = (
    "--docker-host",
    "--container-image",
    "--gpu-smoke-image",
    "--pull-smoke-image",
    "--image-supported-sm",
    "--min-gpu-memory-gb",
    "--low-vram-threshold-gb",
    "--gpu-arch-allowlist",
    "--gpu-arch",
    "--gpu-min-count",
    "--gpu-min-memory-gb",
    "--target-gpu-count",
    "--target-gpu-memory-gb",
    "--effective-batch-limit",
    "--install-missing-tools",
)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TAO_LOCAL_GPUS", "2")
    write_data(tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.seed("001.9", "004.5")
def test_every_flag_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        check_tao_launch_preflight(["--help"])
    assert ended.value.code == 0
    words = capsys.readouterr().out.replace("[", " ").replace("]", " ").split()
    assert [flag for flag in (*V700, *V701) if flag not in words] == []


def test_all_flags_together(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "aws").write_text("#!/bin/sh\n")
    (data / "aws").chmod(0o755)
    monkeypatch.setenv("PATH", str(data), prepend=":")
    code = check_tao_launch_preflight(
        [
            *("--platform", "process", "--skip-platform-access"),
            *("--path", f"train={data}/coco.json", "--path", f"{data}/media"),
            *("--json-required-field", "train=bbox", "--json-required-field", "train=id"),
            *("--json-sample-limit", "3", "--docker-host", "ssh://nobody@nowhere"),
            *("--container-image", "x/cosmos-rl:1", "--gpu-smoke-image", "y"),
            *("--pull-smoke-image", "--image-supported-sm", "sm_90,80", "--gpu-arch", "9.0"),
            *("--min-gpu-memory-gb", "40", "--gpu-min-memory-gb", "70"),
            *("--low-vram-threshold-gb", "60", "--gpu-arch-allowlist", "flash=90,100"),
            *("--gpu-min-count", "2", "--target-gpu-count", "2"),
            *("--target-gpu-memory-gb", "80", "--target-gpu-memory-gb", "80"),
            *("--effective-batch-limit", "train=10,4", "--install-missing-tools"),
        ]
    )
    said = capsys.readouterr().out
    assert code == 0, said
    assert f"aws: aws is {data}/aws\n" in said
    assert "passed   fields:train: bbox, id in 3 of 40 records\n" in said
    assert "passed   gpu.memory: 80.0 GB per GPU at least\n" in said
    assert said.splitlines()[-1].startswith("Preflight passed: ")


@pytest.mark.seed("001.9")
def test_a_failure_is_code_2_and_several_are_told_at_once(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = check_tao_launch_preflight(
        [
            *("--platform", "local", "--path", f"train={data}/coco.json"),
            *("--path", "media=/no/such/folder", "--json-required-field", "train=video_fps"),
            *("--gpu-min-count", "8"),
        ]
    )
    said = capsys.readouterr().out
    assert code == 2
    last = said.splitlines()[-1]
    assert last.startswith("Preflight failed: ")
    for name in ("gpu.count", "fields:train", "path:media"):
        assert name in last
        assert f"\n{name}:\n  " in said, "what to do about it"
    assert CANARIES["HF_TOKEN"] not in said


@pytest.mark.seed("001.9")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--platform", "mainframe"], "no platform 'mainframe'"),
        (["--platform", "local", "--path", "train="], "LABEL=PATH"),
        (["--platform", "local", "--json-required-field", "x"], "--json-required-field"),
        (["--platform", "local", "--effective-batch-limit", "x=1"], "LABEL=BATCH,SHARDS"),
        (["--platform", "local", "--target-gpu-memory-gb", "much"], "gigabytes"),
        (["--platform", "local", "--skill-bank", "/no/such/bank"], "/no/such/bank"),
    ],
)
def test_a_value_without_sense_is_code_1(
    data: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert check_tao_launch_preflight(words) == 1
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.count("\n") == 1


def test_a_wall_time_that_is_no_number_is_code_1(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_HOURS", "four")
    assert check_tao_launch_preflight(["--platform", "cluster"]) == 1
    assert "SLURM_TIME_HOURS='four'" in capsys.readouterr().err
    assert check_tao_launch_preflight(["--platform", "local"]) == 0, "no matter elsewhere"


def test_a_wrong_command_line_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--platform", "local", "--json-sample-limit", "few"]):
        with pytest.raises(SystemExit) as ended:
            check_tao_launch_preflight(words)
        assert ended.value.code == 2
