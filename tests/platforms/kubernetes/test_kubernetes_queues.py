"""Queues that decide when a job starts, all pods or none, and pods that are tried again.

The test plays Kueue: it has its API and does what Kueue does to Jobs, on a real control plane.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_sdk import (
    LONG,
    asked,
    explained,
    issue_of,
    job_name,
    message_of,
    opened,
    pods_of,
    reap_until,
    says,
)

from lab.docker.images import BUSYBOX
from lab.kubernetes import (
    CONTROL_PLANE,
    KubernetesLab,
    Namespace,
    Object,
    RefusedError,
    private_cluster,
)
from lab.kubernetes.api import name_of
from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK
from tao_sdk.platforms.kubernetes.pods import rank_of

GROUP = "kueue.x-k8s.io"
QUEUE = f"{GROUP}/queue-name"
CROWDED = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"


class Kueue:
    """What Kueue shows of itself, and its decisions."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._api = namespace.api
        self._workloads = f"/apis/{GROUP}/v1beta1/namespaces/{namespace.name}/workloads"

    @staticmethod
    def install(lab: KubernetesLab) -> None:
        """Its API, and the right of users of a namespace to look at workloads."""
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1beta1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
            "subresources": {"status": {}},
        }
        names = {"plural": "workloads", "singular": "workload", "kind": "Workload"}
        spec = {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"workloads.{GROUP}"},
            "spec": spec,
        }
        api = lab.cluster.admin
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        mark = "rbac.authorization.k8s.io/aggregate-to-edit"
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "kueue-workload-viewer", "labels": {mark: "true"}},
            "rules": [{"apiGroups": [GROUP], "resources": ["workloads"], "verbs": ["get", "list"]}],
        }
        api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        eventually(lambda: is_served(lab, f"/apis/{GROUP}/v1beta1/workloads"), LONG)

    def hold(self, job: Job, why: str) -> None:
        """Take note of a Job of a queue, and leave it where it is."""
        held = self._wait_for(job)
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name_of(held),
            "uid": held["metadata"]["uid"],
        }
        name = f"job-{name_of(held)}"
        workload = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {}}
        kind = {"apiVersion": f"{GROUP}/v1beta1", "kind": "Workload"}
        self._api.create(self._workloads, {**kind, **workload})
        waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": why}
        waits["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        status = {"status": {"conditions": [waits]}}
        self._api.patch(f"{self._workloads}/{name}/status", status)

    def admit(self, job: Job) -> None:
        """Let a Job start, all of it."""
        path = f"{self._namespace.jobs}/{name_of(self._wait_for(job))}"
        self._api.patch(path, {"spec": {"suspend": False}})

    def _wait_for(self, job: Job) -> Object:
        """It cares for suspended Jobs with the label of a queue."""
        found = eventually(lambda: self._namespace.job(job_name(job)))
        assert found["metadata"]["labels"][QUEUE] == "team"
        assert found["spec"]["suspend"] is True
        return found


def is_served(lab: KubernetesLab, path: str) -> bool:
    """A new API is not there, or not ready, for a moment."""
    try:
        return lab.cluster.admin.exists(path)
    except RefusedError as refused:
        if refused.code != 429:
            raise
        return False


@pytest.fixture(scope="module")
def with_kueue() -> Iterator[KubernetesLab]:
    """Of these tests alone: what the cluster offers, all its users see."""
    with private_cluster(CONTROL_PLANE) as cluster:
        lab = KubernetesLab(cluster)
        Kueue.install(lab)
        yield lab


@pytest.fixture
def team(with_kueue: KubernetesLab) -> Iterator[Namespace]:
    with with_kueue.namespace() as namespace:
        namespace.nodes.add("one")
        yield namespace


@pytest.fixture
def sdk(
    team: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(team, tmp_path, monkeypatch) as sdk:
        yield sdk


@pytest.mark.seed("003.9")
class TestQueue:
    @pytest.mark.parametrize("env", [{}, {"TOKEN": "a-secret"}], ids=["job alone", "with secret"])
    def test_it_waits_until_the_queue_lets_it_go(
        self, sdk: KubernetesSDK, team: Namespace, env: dict[str, str]
    ) -> None:
        """Pending, not Paused: nobody has to do anything."""
        kueue = Kueue(team)
        job = sdk.create_job(**asked(queue="team", gpu_count=8, env_vars=env))
        assert says(job, "waits in queue team")
        assert job.status == "Pending"
        kueue.hold(job, CROWDED)
        eventually(lambda: says(job, CROWDED), LONG)
        assert job.status == "Pending"
        assert issue_of(sdk, job)["reason"] == "Queued"
        assert team.pods(job_name(job)) == []
        kueue.admit(job)
        [pod] = pods_of(team, job)
        eventually(lambda: not says(job, "waits in queue"))
        team.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        team.nodes.finish(pod)
        assert job.wait(timeout=LONG).status == "Complete"

    def test_the_queue_takes_it_back(self, sdk: KubernetesSDK, team: Namespace) -> None:
        """Kueue suspends what it preempts: it waits again, and starts again."""
        kueue = Kueue(team)
        job = sdk.create_job(**asked(queue="team"))
        kueue.admit(job)
        [pod] = pods_of(team, job)
        team.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        team.api.patch(f"{team.jobs}/{job_name(job)}", {"spec": {"suspend": True}})
        eventually(lambda: says(job, "waits in queue team"))
        assert job.status == "Pending"
        reap_until(team, lambda: not team.pods(job_name(job)))
        kueue.admit(job)
        [again] = pods_of(team, job)
        team.nodes.finish(again)
        assert job.wait(timeout=LONG).status == "Complete"

    def test_all_pods_or_none(self, sdk: KubernetesSDK, team: Namespace) -> None:
        job = sdk.create_job(**asked(queue="team", gang=True, num_nodes=3))
        assert says(job, "waits in queue team")
        assert team.pods(job_name(job)) == [], "none starts before all may"
        Kueue(team).admit(job)
        for pod in pods_of(team, job, 3):
            team.nodes.finish(pod)
        assert job.wait(timeout=LONG).status == "Complete"

    def test_cancelled_in_the_queue(self, sdk: KubernetesSDK, team: Namespace) -> None:
        job = sdk.create_job(**asked(queue="team", env_vars={"TOKEN": "a-secret"}))
        assert job.cancel()
        assert job.status == "Canceled"
        assert not team.api.exists(f"{team.jobs}/{job_name(job)}")

    def test_a_gang_needs_a_queue(self, sdk: KubernetesSDK) -> None:
        with pytest.raises(ValidationError, match=r"gang: .*name its queue \(queue=\)"):
            sdk.plan(**asked(gang=True, num_nodes=2))


@pytest.mark.seed("003.9")
def test_without_kueue_nobody_would_let_it_start(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(played, tmp_path, monkeypatch) as sdk:
        with pytest.raises(UnsupportedError, match=r"gang: this cluster has no Kueue .*install it"):
            sdk.create_job(**asked(queue="team", gang=True, num_nodes=2))
        with pytest.raises(UnsupportedError, match=r"queue: this cluster has no Kueue"):
            sdk.create_job(**asked(queue="team"))
        assert sdk.list_jobs() == []


def next_pod(namespace: Namespace, job: Job, rank: int) -> Object:
    """The pod of a rank that is about to start, when it is there."""

    def found() -> Object | None:
        waiting = [
            pod
            for pod in namespace.pods(job_name(job))
            if rank_of(pod) == rank
            and pod["spec"].get("nodeName")
            and pod["status"]["phase"] == "Pending"
        ]
        return waiting[0] if waiting else None

    pod = eventually(found, LONG)
    assert pod is not None
    return pod


@pytest.mark.seed("003.9")
class TestRetries:
    def test_each_pod_has_attempts_of_its_own(
        self, played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rank 1 fails twice, which is once too often; that it was disrupted before does not count,
        nor that rank 0 failed first: that was once.
        """
        played.nodes.add("one")
        with opened(played, tmp_path, monkeypatch) as sdk:
            job = sdk.create_job(**asked(num_nodes=2, retries=1))
            spec = played.job(job_name(job))["spec"]
            assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (1, 0)
            [rule] = spec["podFailurePolicy"]["rules"]
            assert (rule["action"], rule["onPodConditions"][0]["type"]) == (
                "Ignore",
                "DisruptionTarget",
            )
            first, second = pods_of(played, job, 2)
            played.nodes.finish(first, 5)
            taken = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": "preempting to accommodate a higher priority pod",
            }
            played.nodes.finish(second, 143, conditions=[taken])
            played.nodes.finish(next_pod(played, job, 1), 3)
            played.nodes.start(next_pod(played, job, 0))
            played.nodes.finish(next_pod(played, job, 1), 3)
            reap_until(played, lambda: job.refresh().status == "Error")
            assert message_of(job) == "rank 1 ended with exit code 3"
            assert explained(job)["rank"] == 1

    def test_a_second_attempt_for_real(
        self, real: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rank 1 fails once; rank 0 is not disturbed by that."""
        folder = real.add_volume("shared")
        script = (
            'echo "rank $NODE_RANK, attempt $TAO_ATTEMPT" >> /shared/starts; '
            '[ "$NODE_RANK" = 1 ] && [ "$TAO_ATTEMPT" = 1 ] && exit 3; '
            "until grep -q 'rank 1, attempt 2' /shared/starts; do sleep 0.2; done"
        )
        with opened(real, tmp_path, monkeypatch) as sdk:
            job = sdk.create_job(
                image=BUSYBOX,
                command=script,
                gpu_count=0,
                num_nodes=2,
                retries=1,
                mounts=["pvc://shared:/shared"],
            )
            assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
        assert sorted((folder / "starts").read_text().splitlines()) == [
            "rank 0, attempt 1",
            "rank 1, attempt 1",
            "rank 1, attempt 2",
        ]
