"""The lab's Brev for these tests; each test has an account of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from brev_lab import BrevLab, isolate

from lab.brev import brev_cloud
from lab.docker import Engine, shared_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with shared_engine() as engine:
        yield engine


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[BrevLab]:
    with brev_cloud(engine) as cloud:
        lab = BrevLab(tmp_path, cloud)
        isolate(monkeypatch, lab)
        yield lab
