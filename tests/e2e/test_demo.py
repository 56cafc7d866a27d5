"""`examples/demo.py` as `make demo` runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tao_sdk

pytest.importorskip("numpy")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_demo(examples: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAO_")}
    return subprocess.run(
        [sys.executable, str(examples / "demo.py")],
        cwd=folder,
        env={
            **kept,
            "PYTHONPATH": str(Path(tao_sdk.__file__).parents[1]),
            "TAO_SDK_STATE_DIR": str(folder / "state"),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_four_acts(tmp_path: Path) -> None:
    done = run_demo(EXAMPLES, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    acts = done.stdout.split("\n\n")
    assert len(acts) == 5
    train, evaluate, broken, resumed, end = acts
    assert "100%  epoch 5/5" in train
    assert "5 checkpoints, the last is model_epoch_005.safetensors" in train
    assert "Evaluation of 800 images: accuracy=0.9" in evaluate
    assert "out of memory" in broken
    assert "[ERR_OOM]" in broken
    assert "suggestion  reduce the batch size" in broken
    assert "Canceled during epoch 3; it saved model_epoch_002_step_" in resumed
    assert "epoch 1/5" not in resumed.partition("Canceled")[2], "it went on, not began again"
    assert done.stdout.count("Complete: completed") == 3
    assert end.rstrip().endswith(f"--state {tmp_path}/.demo/state.json ls")
    assert max(map(len, done.stdout.splitlines()[:-2])) <= 80
    assert {path.name for path in tmp_path.iterdir()} == {".demo"}, "everything is below .demo"


def test_it_ends_with_the_exit_code_of_a_failed_training(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(EXAMPLES, examples, ignore=shutil.ignore_patterns("__pycache__"))
    spec = examples / "tiny_trainer" / "specs" / "train.yaml"
    failing = spec.read_text().replace("fail_at_epoch: null", "fail_at_epoch: 2")
    spec.write_text(failing.replace("fail_with: exception", "fail_with: exit:7"))
    done = run_demo(examples, tmp_path)
    assert done.returncode == 7, done.stdout + done.stderr
    assert "Error: ended with exit code 7" in done.stdout
    assert "exit code 7" in done.stderr
    assert "Evaluate" not in done.stdout
