"""Fixtures of tests that preempt jobs and take nodes away: a cluster where nobody else is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from common_lab import isolated
from slurm_lab import SlurmPlatformLab

from lab.slurm import Cluster, private_cluster, slurm_lab


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with private_cluster() as cluster:
        yield cluster


@pytest.fixture
def lab(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmPlatformLab]:
    with platform_lab(cluster, tmp_path, monkeypatch) as lab:
        yield lab


@contextlib.contextmanager
def platform_lab(
    cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmPlatformLab]:
    """A share of a cluster whose nodes may be taken away; they come back."""
    with slurm_lab(cluster) as slurm:
        with isolated(monkeypatch, SlurmPlatformLab(folder, slurm)) as lab:
            monkeypatch.setenv("SLURM_RETRY_SECONDS", "0")
            yield lab
        for node in slurm.nodes:
            slurm.resume(node)
