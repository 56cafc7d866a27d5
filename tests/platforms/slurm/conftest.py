"""Real clusters for these tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from common_lab import isolated
from slurm_lab import SlurmPlatformLab

from lab.slurm import Cluster, LoginVariant, SlurmVariant, shared_cluster, slurm_lab
from lab.slurm.fixtures import private_slurm, shared_slurm, slurm_cluster
from tao_sdk.platforms.slurm import SlurmSDK

__all__ = ["private_slurm", "shared_slurm", "slurm_cluster"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One that soon forgets jobs that have ended."""
    with shared_cluster(SlurmVariant(keep_finished_seconds=2)) as cluster:
        yield cluster


@pytest.fixture
def way_in(request: pytest.FixtureRequest) -> LoginVariant:
    return getattr(request, "param", LoginVariant())


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, way_in: LoginVariant
) -> Iterator[SlurmPlatformLab]:
    """A share of it."""
    with (
        slurm_lab(cluster, way_in) as slurm,
        isolated(monkeypatch, SlurmPlatformLab(tmp_path, slurm)) as lab,
    ):
        yield lab


@pytest.fixture
def sdk(lab: SlurmPlatformLab) -> Iterator[SlurmSDK]:
    with lab.sdk() as sdk:
        yield sdk
