"""A private local platform for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tao_sdk import LocalSDK


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSDK]:
    for name in ("ACCESS_KEY", "SECRET_KEY", "TAO_LOCAL_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state-dir"))
    sdk = LocalSDK(state_file=tmp_path / "state.json", work_dir=tmp_path / "root")
    yield sdk
    for job in sdk.list_jobs():
        sdk.cancel_job(job.id)
    sdk.close()
