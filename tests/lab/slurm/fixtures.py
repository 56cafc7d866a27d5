"""Fixtures of tests that need a cluster. Name them in a conftest: `pytest_plugins` or an import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.slurm import Cluster, SlurmLab, private_cluster, shared_cluster, slurm_lab


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """The cluster that all tests share: they leave nodes and daemons alone."""
    with shared_cluster() as cluster:
        yield cluster


@pytest.fixture
def shared_slurm(slurm_cluster: Cluster) -> Iterator[SlurmLab]:
    """A share of that cluster."""
    with slurm_lab(slurm_cluster) as lab:
        yield lab


@pytest.fixture
def private_slurm() -> Iterator[SlurmLab]:
    """A cluster of its own: this test may stop daemons, take nodes away, preempt."""
    with private_cluster() as cluster, slurm_lab(cluster) as lab:
        yield lab
