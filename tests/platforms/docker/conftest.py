"""A real engine for these tests; each test has a share of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from common_lab import isolate, isolated
from docker_lab import DockerLab

from lab.docker import Engine, private_engine
from lab.docker.fixtures import engine

__all__ = ["engine"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[DockerLab]:
    with isolated(monkeypatch, DockerLab(tmp_path, engine)) as lab:
        yield lab


@pytest.fixture
def lonely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerLab]:
    """A lab whose engine no other test uses: all its containers are known."""
    with private_engine() as engine:
        lab = DockerLab(tmp_path, engine)
        isolate(monkeypatch, lab)
        yield lab
        lab.proxy.close()
