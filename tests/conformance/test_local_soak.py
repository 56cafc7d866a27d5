"""The full count of kill -9 at random moments of a submission (`make soak`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from common_lab import isolated
from local_lab import LocalLab

from tao_sdk.platforms.conformance.crashes import kill_at_random


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["wal", "network"])
def test_two_hundred_random_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", mode)
    with isolated(monkeypatch, LocalLab(tmp_path)) as lab:
        outcome = kill_at_random(lab, times=200, seed=200)
    print(f"kill -9 at 200 random moments, {mode} store: {outcome}")
    assert outcome["jobs run"] > 0
    assert outcome["jobs never submitted"] > 0
