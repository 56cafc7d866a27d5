"""The Lepton platform passes the whole conformance suite while its server misbehaves.

It is slow, answers 429 and 503 again and again, loses answers after the deed, and its lists and
logs are behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common_lab import isolate
from lepton_lab import LeptonLab

from lab.lepton import LeptonServer
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes
from tao_sdk.platforms.conformance import durability


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeptonLab]:
    folder = tmp_path / "lab"
    folder.mkdir()
    with LeptonServer(tmp_path / "server") as server:
        faults = server.faults
        faults.latency, faults.list_lag, faults.log_lag = 0.03, 0.3, 0.3
        faults.busy, faults.broken, faults.lost = 0.15, 0.05, 0.03
        # Each of them is submitted by several requests, and each of these may be refused.
        monkeypatch.setattr(durability, "MANY", 40)
        lab = LeptonLab(folder, server)
        lab.round_trips = 40
        isolate(monkeypatch, lab)
        yield lab
