"""A queue decides when a job starts: its API is real, and the test plays its controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.kubernetes import CONTROL_PLANE, KubernetesLab, Namespace, private_cluster
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK

GROUP = "kueue.x-k8s.io"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Of a cluster of its own: the API of a queueing system is a matter of the whole cluster."""
    with (
        private_cluster(CONTROL_PLANE) as cluster,
        KubernetesLab(cluster).namespace() as namespace,
    ):
        names = {"plural": "workloads", "singular": "workload", "kind": "Workload"}
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1beta1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
        }
        definition = {
            "metadata": {"name": f"workloads.{GROUP}"},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
        }
        namespace.api.create(_DEFINITIONS, {"kind": "CustomResourceDefinition", **definition})
        eventually(lambda: namespace.api.exists(f"/apis/{GROUP}"))
        yield namespace


@pytest.mark.seed("003.9")
def test_a_job_waits_for_its_queue(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig("admin")))
    monkeypatch.delenv("TAO_K8S_NAMESPACE", raising=False)
    node = namespace.nodes.add("one")
    sdk = KubernetesSDK(state_file=tmp_path / "state.json")
    job = sdk.create_job(
        image="trainer:1",
        command="true",
        gpu_count=8,
        num_nodes=1,
        env_vars={"A": "value-of-a"},
        queue="team-a",
        gang=True,
        node_selector={"kubernetes.io/hostname": node},
    )
    name = f"tao-job-{job.id}"
    made = namespace.job(name)
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"][f"{GROUP}/queue-name"] == "team-a"
    assert "tao-sdk-submitting" not in made["metadata"]["labels"]
    assert (job.refresh().status, job.refresh().message) == ("Pending", "waits in queue team-a")
    told = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
    namespace.api.create(
        f"/apis/{GROUP}/v1beta1/namespaces/{namespace.name}/workloads", workload(made, told)
    )
    eventually(lambda: told in job.refresh().message)
    assert job.status == "Pending"
    # The queue lets it go; from then on it is a job as any other.
    namespace.api.patch(f"{namespace.jobs}/{name}", {"spec": {"suspend": False}})
    [pod] = namespace.nodes.wait_for_pods(name)
    namespace.nodes.start(pod)
    eventually(lambda: job.refresh().status == "Running")
    namespace.nodes.finish(pod)
    assert job.wait(timeout=60).status == "Complete"
    sdk.close()


def workload(job: dict[str, Any], told: str) -> dict[str, Any]:
    """What Kueue makes for a Job that it has not admitted."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": told}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "Workload",
        "metadata": {"name": f"job-{job['metadata']['name']}", "ownerReferences": [owner]},
        "spec": {"queueName": "team-a"},
        "status": {"conditions": [waits]},
    }
