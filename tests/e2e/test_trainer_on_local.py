"""The demo trainer as jobs of the local platform: what a user does from day one."""

from __future__ import annotations

import re
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tao_sdk import Job, LocalSDK
from tao_sdk.platforms.conformance import eventually

pytest.importorskip("numpy")

TRAINER = Path(__file__).resolve().parents[2] / "examples" / "tiny_trainer"
SMALL = ("dataset.num_samples=500", "dataset.image_size=8", "dataset.batch_size=32")
LONG = 90


@pytest.fixture
def sdk(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalSDK]:
    # Ports are of the machine: test processes that run at the same time share their leases.
    leases = tmp_path_factory.getbasetemp().parent / "leases"
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(leases))
    for name in ("WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TAO_GRACE_SECONDS", "30")
    sdk = LocalSDK(
        poll_interval=0.05,
        epoch_milestone_interval=2,
        state_file=tmp_path / "state.json",
        work_dir=tmp_path / "jobs",
    )
    yield sdk
    for job in sdk.list_jobs():
        sdk.cancel_job(job.id)
    sdk.close()


def training(*settings: str) -> dict[str, Any]:
    """The keywords of `create_job` that train on a small set of data."""
    words = [sys.executable, str(TRAINER), "train", *SMALL, *settings]
    return {
        "command": shlex.join(words),
        "gpu_count": 0,
        "network_arch": "tiny",
        "action": "train",
    }


def complete(sdk: LocalSDK, job: Job) -> list[str]:
    """Insist on success; the names of the checkpoints, oldest first."""
    status = job.wait(timeout=LONG)
    assert status.status == "Complete", sdk.get_job_logs(job.id)
    return [Path(path).name for path in sdk.get_checkpoints(job.id)]


def last_weights(sdk: LocalSDK, job: Job) -> bytes:
    return Path(sdk.get_checkpoints(job.id)[-1]).read_bytes()


def test_training_leaves_its_checkpoints(sdk: LocalSDK) -> None:
    job = sdk.create_job(**training("train.num_epochs=3"))
    assert complete(sdk, job) == [f"model_epoch_{epoch:03}.safetensors" for epoch in (1, 2, 3)]
    assert all(path.startswith(f"{job.results_dir}/train/") for path in sdk.get_checkpoints(job.id))
    assert "Epoch 3/3: " in sdk.get_job_logs(job.id)


def test_hooks_get_every_milestone_and_then_the_end(sdk: LocalSDK) -> None:
    seen: list[tuple[int, int] | str] = []
    over = threading.Event()

    def completed(job: Job) -> None:
        seen.append(job.status)
        over.set()

    hooks = {
        "on_epoch_milestone": lambda _job, epoch, total: seen.append((epoch, total)),
        "on_complete": completed,
    }
    sdk.create_job(**training("train.num_epochs=6"), hooks=hooks)
    assert over.wait(LONG)
    assert seen == [(2, 6), (4, 6), (6, 6), "Complete"]


def test_a_canceled_training_goes_on_to_the_same_weights(sdk: LocalSDK) -> None:
    """SIGTERM, a checkpoint in the middle of an epoch, a new job: no byte is different."""
    first = sdk.create_job(**training("train.num_epochs=1000", "train.epoch_seconds=0.4"))
    eventually(lambda: "Epoch 1/1000" in sdk.get_job_logs(first.id))
    assert first.cancel()
    assert first.status == "Canceled"
    saved = sdk.get_checkpoints(first.id)[-1]
    position = re.search(r"model_epoch_(\d+)_step_\d+\.safetensors$", saved)
    assert position, f"{saved} was not saved on the way out"

    until = f"train.num_epochs={int(position[1]) + 1}"
    resume = f"train.resume_training_checkpoint_path={saved}"
    resumed, straight = sdk.create_jobs(
        [{**training(until, resume), "parent_job_id": first.id}, training(until)]
    )
    assert complete(sdk, resumed)[-1] == complete(sdk, straight)[-1]
    assert "Resuming after" in sdk.get_job_logs(resumed.id)
    assert last_weights(sdk, resumed) == last_weights(sdk, straight)


def test_two_nodes_train_one_model(sdk: LocalSDK) -> None:
    together = sdk.create_job(**training("train.num_nodes=2", "train.num_epochs=2"), num_nodes=2)
    assert complete(sdk, together) == [f"model_epoch_00{epoch}.safetensors" for epoch in (1, 2)]
    log = sdk.get_job_logs(together.id)
    assert "Rank 0 of 2" in log
    assert "Rank 1 of 2" in log
    digests = re.findall(r"weights have sha256 (\w+)", log)
    assert len(digests) == 2
    assert len(set(digests)) == 1, "both ranks hold the same weights"


def test_jobs_of_two_nodes_at_the_same_moment_do_not_meet(sdk: LocalSDK) -> None:
    jobs = sdk.create_jobs([{**training("train.num_epochs=1"), "num_nodes": 2}] * 3)
    statuses = sdk.wait_all([job.id for job in jobs], timeout=LONG)
    assert {status.status for status in statuses.values()} == {"Complete"}


def test_the_rank_that_failed_is_named(sdk: LocalSDK) -> None:
    job = sdk.create_job(
        **training("train.fail_at_epoch=2", "train.fail_with=exit:9", "train.fail_rank=1"),
        num_nodes=2,
    )
    assert job.wait(timeout=LONG).status == "Error"
    analysis = job.explain()
    assert analysis is not None
    assert (analysis["rank"], analysis["exit_code"]) == (1, 9)
    assert analysis["cause"].startswith("rank 1: ")
    [culprit] = [
        event["message"]
        for event in analysis["job_failure_by_node_event"]
        if "collateral" not in event["message"]
    ]
    assert culprit == "rank 1 ended with exit code 9"
