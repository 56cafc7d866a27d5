"""A played workspace for these tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from common_lab import isolate
from lepton_lab import LeptonLab

from lab.lepton import LeptonServer
from tao_sdk.platforms.lepton import LeptonSDK


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LeptonServer]:
    with LeptonServer(tmp_path / "server") as server:
        yield server


@pytest.fixture
def lab(tmp_path: Path, server: LeptonServer, monkeypatch: pytest.MonkeyPatch) -> LeptonLab:
    folder = tmp_path / "lab"
    folder.mkdir()
    lab = LeptonLab(folder, server)
    isolate(monkeypatch, lab)
    return lab


@pytest.fixture
def sdk(lab: LeptonLab) -> Iterator[LeptonSDK]:
    with lab.sdk() as sdk:
        yield sdk


@pytest.fixture
def played(server: LeptonServer) -> LeptonServer:
    """Nothing runs by itself: tests say what becomes of jobs."""
    server.engine.runs = False
    return server
