"""Fixtures of tests that need a cluster. Name them in a conftest: `pytest_plugins` or an import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.kubernetes import (
    CONTROL_PLANE,
    WITH_NODES,
    KubernetesLab,
    Namespace,
    shared_cluster,
)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[KubernetesLab]:
    """The cluster without real nodes that all tests share: they leave its daemons alone."""
    with shared_cluster(CONTROL_PLANE) as cluster:
        yield KubernetesLab(cluster)


@pytest.fixture
def played(control_plane: KubernetesLab) -> Iterator[Namespace]:
    """A namespace there: this test plays the nodes."""
    with control_plane.namespace() as namespace:
        yield namespace


@pytest.fixture(scope="session")
def with_nodes() -> Iterator[KubernetesLab]:
    """The cluster with real nodes that all tests share: they leave daemons and nodes alone."""
    with shared_cluster(WITH_NODES) as cluster:
        yield KubernetesLab(cluster)


@pytest.fixture
def real(with_nodes: KubernetesLab) -> Iterator[Namespace]:
    """A namespace there: pods really run."""
    with with_nodes.namespace() as namespace:
        yield namespace
