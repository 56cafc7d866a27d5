"""The Kubernetes platform passes the whole conformance suite on a real cluster, in real pods.

Its user is no administrator: she may do in her namespace what the role `edit` lets her.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from common_lab import isolated
from kubernetes_lab import KubernetesPlatformLab
from upgrade import *  # noqa: F403 - a part of the suite

from lab.kubernetes import WITH_NODES, KubernetesLab, shared_cluster
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite is its test classes
from tao_sdk.platforms.conformance import durability


@pytest.fixture(scope="session")
def cluster() -> Iterator[KubernetesLab]:
    with shared_cluster(WITH_NODES) as cluster:
        yield KubernetesLab(cluster)


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: KubernetesLab
) -> Iterator[KubernetesPlatformLab]:
    with cluster.namespace() as namespace:
        # Each job is a pod, which costs two small nodes on one machine a second or more.
        monkeypatch.setattr(durability, "MANY", 50)
        with isolated(monkeypatch, KubernetesPlatformLab(tmp_path, namespace)) as lab:
            yield lab
