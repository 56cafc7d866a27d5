"""The Docker platform passes the whole conformance suite on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_lab import DockerLab, isolate

from lab.docker import Engine, shared_engine
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes


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
