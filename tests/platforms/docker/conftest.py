"""A real engine for these tests; each test has a share of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from docker_lab import DockerLab, isolate

from lab.docker import Engine, shared_engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with shared_engine() as engine:
        yield engine


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[DockerLab]:
    lab = DockerLab(tmp_path, engine)
    isolate(monkeypatch, lab)
    yield lab
    lab.end_all()
