"""The local platform passes the whole conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_lab import LocalLab

from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalLab]:
    for name in ("ACCESS_KEY", "SECRET_KEY", "HF_TOKEN", "NGC_KEY", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAO_LOCAL_GPUS", "1")
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    lab = LocalLab(tmp_path)
    yield lab
    lab.end_all()
