"""The local platform passes the whole conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common_lab import isolated
from local_lab import LocalLab
from upgrade import *  # noqa: F403 - a part of the suite

from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalLab]:
    with isolated(monkeypatch, LocalLab(tmp_path)) as lab:
        yield lab
