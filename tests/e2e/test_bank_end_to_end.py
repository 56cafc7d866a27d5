"""From the packaged bank to results, offline: the demo trainer is trained, evaluated, exported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tao_sdk import Job, LocalSDK
from tao_sdk.script_runner import build_entrypoint
from tao_sdk.skills import action
from tao_sdk.skills.layout import PACKAGED_BANK

pytest.importorskip("numpy")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = {"dataset.num_samples": 500, "dataset.image_size": 8}


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSDK]:
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    for name in ("S3_BUCKET_NAME", "WORLD_SIZE", "NODE_RANK", "TAO_RESULTS_ROOT"):
        monkeypatch.delenv(name, raising=False)
    sdk = LocalSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "jobs")
    yield sdk
    for job in sdk.list_jobs():
        sdk.cancel_job(job.id)
    sdk.close()


def run(sdk: LocalSDK, name: str, **how: Any) -> Job:
    """An action of the demo trainer as a job; insists on success."""
    overrides = {**SMALL, **how.pop("overrides", {})}
    made = action("tiny-trainer", name, bank=PACKAGED_BANK, overrides=overrides, **how)
    assert made.missing == []
    job = sdk.create_job(
        image=made.image,
        command=build_entrypoint(**made.entrypoint_arguments())["command"],
        gpu_count=0,
        network_arch=made.network_arch,
        action=made.name,
        env_vars={
            "PYTHONPATH": str(EXAMPLES),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    assert job.wait(timeout=90).status == "Complete", sdk.get_job_logs(job.id)
    return job


def results(job: Job) -> Path:
    return Path(job.results_dir)


def test_train_evaluate_export(sdk: LocalSDK) -> None:
    trained = run(sdk, "train", overrides={"num_epochs": 2, "learning_rate": 0.1}, gpu_count=0)
    checkpoints = sorted(results(trained).rglob("model_epoch_*.safetensors"))
    assert [path.name for path in checkpoints] == [
        "model_epoch_001.safetensors",
        "model_epoch_002.safetensors",
    ]
    parent = str(checkpoints[-1])
    evaluated = run(sdk, "evaluate", parent=parent)
    metrics = json.loads(next(results(evaluated).rglob("metrics.json")).read_text())
    assert metrics["accuracy"] > 0.2
    exported = run(sdk, "export", parent=parent)
    assert list(results(exported).rglob("model.safetensors"))


def test_data_below_a_root_and_a_resumed_training(sdk: LocalSDK) -> None:
    data = next(results(run(sdk, "dataset")).rglob("images.npz")).parent
    roots = {"train_datasets": f"file://{data}"}
    first = run(sdk, "train", dataset_roots=roots, overrides={"num_epochs": 1})
    checkpoint = next(results(first).rglob("model_epoch_001.safetensors"))
    second = run(
        sdk, "train", dataset_roots=roots, overrides={"num_epochs": 2}, resume=str(checkpoint)
    )
    names = {path.name for path in results(second).rglob("model_epoch_*.safetensors")}
    assert names == {"model_epoch_002.safetensors"}
