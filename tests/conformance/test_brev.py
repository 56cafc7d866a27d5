"""The Brev platform passes the whole conformance suite: real ssh, real Docker, a cloud of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brev_lab import BrevLab
from common_lab import isolated
from upgrade import *  # noqa: F403 - a part of the suite

from lab.brev import brev_cloud
from lab.docker import Engine
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes

# Every step starts programs that start ssh: on a busy machine that adds up.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[BrevLab]:
    with brev_cloud(engine) as cloud, isolated(monkeypatch, BrevLab(tmp_path, cloud)) as lab:
        yield lab
