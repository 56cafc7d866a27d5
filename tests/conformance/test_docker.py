"""The Docker platform passes the whole conformance suite on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common_lab import isolated
from docker_lab import DockerLab
from upgrade import *  # noqa: F403 - a part of the suite

from lab.docker import Engine
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[DockerLab]:
    with isolated(monkeypatch, DockerLab(tmp_path, engine)) as lab:
        yield lab
