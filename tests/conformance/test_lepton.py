"""The Lepton platform passes the whole conformance suite on a played workspace that runs jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common_lab import isolate
from lepton_lab import LeptonLab
from upgrade import *  # noqa: F403 - a part of the suite

from lab.lepton import LeptonServer
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeptonLab]:
    folder = tmp_path / "lab"
    folder.mkdir()
    with LeptonServer(tmp_path / "server") as server:
        lab = LeptonLab(folder, server)
        isolate(monkeypatch, lab)
        yield lab
