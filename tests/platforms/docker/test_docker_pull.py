"""`tao-sdk pull` of a job whose results are in an object store, from the first command on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from docker_lab import DockerLab
from test_docker_data import bucket as bucket  # a fixture

from lab.docker.python_image import python_image
from lab.s3 import Bucket
from tao_sdk.cli import exit_codes

PATIENCE = 180


def tao(
    lab: DockerLab, folder: Path, *words: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tao_sdk.cli", *words],
        cwd=folder,
        env=dict(lab.environment()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_results_that_went_to_a_store(
    lab: DockerLab, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    command = "mkdir -p /out/train; echo weights > /out/train/model.pth; echo hi > /out/notes"
    words = ["--image", python_image(lab.engine), "--output", "/out", "-c", command]
    run = tao(lab, home, "run", "-d", "-p", "docker", "--gpus", "0", "--no-watch", *words)
    job = run.stdout.strip()
    tao(lab, home, "wait", job)
    place = f"{bucket.uri}/results/{job}"
    planned = tao(lab, home, "pull", job, "here", "--dry-run")
    assert planned.stdout.splitlines() == ["out/notes", "out/train/model.pth", "tao_result.json"]
    assert not (home / "here").exists()
    told = tao(lab, home, "--json", "pull", job, "here", "--exclude", "tao_result.json").stdout
    *files, last = map(json.loads, told.splitlines())
    assert {file["path"]: file["state"] for file in files} == {
        "out/notes": "copied",
        "out/train/model.pth": "copied",
    }
    assert (last["source"], last["complete"], last["bytes"]) == (place, True, 11)
    assert (home / "here" / "out" / "train" / "model.pth").read_text() == "weights\n"
    again = tao(lab, home, "pull", job, "here")
    assert again.stdout.splitlines() == ["tao_result.json"]
    assert "2 there already" in again.stderr
    # A store that does not answer is named with what was asked of it.
    monkeypatch.setenv("S3_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TAO_TRANSFER_ATTEMPTS", "1")
    failed = tao(lab, home, "pull", job, "here", code=exit_codes.SDK_FAILED)
    assert failed.stderr.startswith(f"tao-sdk: {place}: ")
    assert "cannot reach 127.0.0.1:9" in failed.stderr
    assert "Traceback" not in failed.stderr
