"""Jobs of the local platform when other programs lock or delete the files of the leases."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tao_sdk import LocalSDK
from tao_sdk.cli import main
from tao_sdk.errors import CapacityError, SubmissionRejectedError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.gpus.leases import GpuLeases


@pytest.fixture
def lease_folder(sdk: LocalSDK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAO_LOCAL_GPUS", "2")
    folder = tmp_path / "leases"
    GpuLeases(folder).free(["any"])
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_while_the_common_lock_is_held_jobs_wait_and_can_be_cancelled(
    sdk: LocalSDK, lease_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with locked(lease_folder / "leases.lock"):
        waiting = sdk.create_job(command="true", gpu_count=1)
        other = sdk.create_job(command="true", gpu_count=1)
        named = f"leases.lock is locked by process {os.getpid()} "
        eventually(lambda: named in waiting.refresh().message)
        assert waiting.refresh().status == "Pending"
        with pytest.raises(SubmissionRejectedError, match=named):
            sdk.create_job(command="true", gpu_count=1, when_busy="refuse")
        other.cancel()
        assert other.wait(timeout=30).status == "Canceled"
        assert main(["doctor"]) == 1
        assert named in capfd.readouterr().out
    assert waiting.wait(timeout=30).status == "Complete"


def test_the_process_that_holds_a_gpu_without_a_lease_is_named(
    sdk: LocalSDK, lease_folder: Path
) -> None:
    with locked(lease_folder / "gpu-pretended-0.lock"):
        with pytest.raises(CapacityError, match=f"process {os.getpid()} .* holds it"):
            sdk.create_job(command="true", gpu_count=2, when_busy="refuse")
        waiting = sdk.create_job(command="true", gpu_count=2)
        eventually(lambda: f"process {os.getpid()} " in waiting.refresh().message)
    assert waiting.wait(timeout=30).status == "Complete"


def test_a_running_job_takes_back_what_was_deleted(sdk: LocalSDK, lease_folder: Path) -> None:
    job = sdk.create_job(command="echo up; sleep 600", gpu_count=1)
    eventually(lambda: list(job.logs()) == ["up"])
    shutil.rmtree(lease_folder)
    eventually((lease_folder / "gpu-pretended-0.lock").exists)
    eventually(lambda: GpuLeases(lease_folder).free(["pretended-0"]) == [])
    other = sdk.create_job(command="echo $CUDA_VISIBLE_DEVICES", gpu_count=1)
    other.wait(timeout=30)
    assert list(other.logs()) == ["1"]


def test_a_gpu_that_another_job_got_meanwhile_is_named(sdk: LocalSDK, lease_folder: Path) -> None:
    job = sdk.create_job(command="echo up; sleep 600", gpu_count=1)
    eventually(lambda: list(job.logs()) == ["up"])
    away = lease_folder.with_name("away")
    with locked(lease_folder / "leases.lock"):
        shutil.copytree(lease_folder, away)  # unlocked copies, as if all files were made anew
        taken = GpuLeases(away).try_take(["pretended-0"], 1, None)
        lease_folder.rename(lease_folder.with_name("deleted"))
        away.rename(lease_folder)
    assert taken is not None
    eventually(lambda: "both jobs use them" in job.refresh().message)
    assert job.refresh().status == "Running"
