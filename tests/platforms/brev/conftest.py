"""The lab's Brev for these tests; each test has an account of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from brev_lab import BrevLab
from common_lab import isolated

from lab.brev import brev_cloud
from lab.docker import Engine
from lab.docker.fixtures import engine

__all__ = ["engine"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[BrevLab]:
    with brev_cloud(engine) as cloud, isolated(monkeypatch, BrevLab(tmp_path, cloud)) as lab:
        yield lab
