"""The whole conformance suite once more, with a Brev that is slow, drops sessions and fails now and
then, and with the older shape of its lists.

What is asked is asked again; what runs twice does no harm. No outcome may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brev_lab import BrevLab
from common_lab import isolate

from lab.brev import brev_cloud
from lab.docker import Engine
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes

# Every step starts programs that start ssh: on a busy machine that adds up.
pytestmark = pytest.mark.timeout(600)

FAULTS = {
    "slow": 0.1,
    "drop_before": 0.04,
    "drop_after": 0.04,
    "flaky": 0.04,
    "shape": "list",
}


class FaultyLab(BrevLab):
    """Questions that were asked again count."""

    round_trips = 8


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[FaultyLab]:
    with brev_cloud(engine) as cloud:
        lab = FaultyLab(tmp_path, cloud)
        isolate(monkeypatch, lab)
        cloud.faults(**FAULTS)
        yield lab
        cloud.faults()
