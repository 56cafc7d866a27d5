"""The SLURM platform passes the whole conformance suite on a real cluster, over real ssh.

This cluster has accounting, and its jobs run in containers by Pyxis.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common_lab import isolated
from slurm_lab import SlurmPlatformLab
from upgrade import *  # noqa: F403 - a part of the suite

from lab.slurm import Cluster, SlurmVariant, shared_cluster, slurm_lab
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with shared_cluster(SlurmVariant(keep_finished_seconds=2)) as cluster:
        yield cluster


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> Iterator[SlurmPlatformLab]:
    with (
        slurm_lab(cluster) as slurm,
        isolated(
            monkeypatch, SlurmPlatformLab(tmp_path, slurm, image=str(slurm.images["python"]))
        ) as lab,
    ):
        yield lab
