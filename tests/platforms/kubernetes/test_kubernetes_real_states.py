"""Every reason to wait and every way to end, made on a real control plane and told in plain words.

Where a node has to do something, the test plays it; what no test can play happens in real pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_sdk import (
    LONG,
    add_quota,
    asked,
    explained,
    issue_of,
    job_name,
    message_of,
    opened,
    pods_of,
    reap_until,
    says,
    started,
)

from lab.docker.images import BUSYBOX
from lab.kubernetes import (
    QUICK_TO_GIVE_UP,
    KubernetesLab,
    Namespace,
    RefusedError,
    private_cluster,
)
from lab.kubernetes.api import name_of
from tao_sdk.errors import SubmissionRejectedError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK

POLICIES = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def sdk(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(played, tmp_path, monkeypatch) as sdk:
        yield sdk


@pytest.fixture
def real_sdk(
    real: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(real, tmp_path, monkeypatch) as sdk:
        yield sdk


def patched(**pod_spec: Any) -> dict[str, Any]:
    """An overlay for the pods."""
    return {"spec": {"template": {"spec": pod_spec}}}


def waits(sdk: KubernetesSDK, job: Job, words: str, reason: str, message: str) -> None:
    """Pending, and the reason is where the seed's sample looks for it."""
    eventually(lambda: says(job, words), LONG)
    assert job.status == "Pending"
    assert message in message_of(job)
    issue = issue_of(sdk, job)
    assert issue["reason"] == reason
    assert message in issue["message"]


@pytest.mark.seed("003.5", "003.8")
class TestWaiting:
    """Lessons W9, W11: a job whose pods do not run is not Running, and says what it waits for."""

    @pytest.mark.parametrize(
        ("reason", "message", "words", "err_class"),
        [
            ("ErrImagePull", "not found", "the image cannot be pulled", "ERR_IMAGE"),
            ("ImagePullBackOff", "Back-off pulling", "the image cannot be pulled", "ERR_IMAGE"),
            ("ErrImageNeverPull", "is not present", "must not be pulled", "ERR_IMAGE"),
            ("InvalidImageName", "couldn't parse", "name of the image is invalid", "ERR_IMAGE"),
            (
                "CreateContainerConfigError",
                'secret "token" not found',
                "a Secret or ConfigMap that it needs does not exist",
                "ERR_CREDENTIAL",
            ),
            ("CreateContainerError", "context deadline", "cannot be created", "ERR_IMAGE"),
        ],
    )
    def test_a_container_that_does_not_start(
        self,
        sdk: KubernetesSDK,
        played: Namespace,
        reason: str,
        message: str,
        words: str,
        err_class: str,
    ) -> None:
        """Lessons W9, W10: explained although no container has ended."""
        played.nodes.add("one")
        job = sdk.create_job(**asked())
        [pod] = pods_of(played, job)
        played.nodes.hold(pod, reason, message)
        waits(sdk, job, words, reason, message)
        analysis = sdk.get_failure_analysis(job.id)
        assert analysis is not None
        assert analysis["err_class"] == err_class
        assert any(message in quote for quote in analysis["evidence"])

    def test_too_few_gpus(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.nodes.add("small", gpus=1)
        job = sdk.create_job(**asked(gpu_count=8))
        waits(sdk, job, "no node can take it now", "Unschedulable", "Insufficient nvidia.com/gpu")

    def test_no_node_with_these_labels(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.nodes.add("one")
        job = sdk.create_job(**asked(node_selector={"gpu-type": "h100"}))
        words = "didn't match Pod's node affinity/selector"
        waits(sdk, job, "no node can take it now", "Unschedulable", words)
        played.nodes.add("right", labels={"gpu-type": "h100"})
        pods_of(played, job)
        eventually(lambda: says(job, "its container is being created"))
        assert job.status == "Pending"

    def test_a_taint(self, sdk: KubernetesSDK, played: Namespace) -> None:
        node = played.nodes.add("one")
        taint = {"key": "team", "value": "other", "effect": "NoSchedule"}
        played.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
        job = sdk.create_job(**asked())
        waits(sdk, job, "no node can take it now", "Unschedulable", "untolerated taint")
        tolerant = sdk.create_job(**asked(tolerations=[{"key": "team", "operator": "Exists"}]))
        assert pods_of(played, tolerant)

    def test_a_claim_that_gets_no_volume(self, sdk: KubernetesSDK, played: Namespace) -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "nobody-makes-these",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
        played.api.create(f"{played.path}/persistentvolumeclaims", claim)
        played.nodes.add("one")
        job = sdk.create_job(**asked(mounts=["pvc://data:/data"]))
        words = "unbound immediate PersistentVolumeClaims"
        waits(sdk, job, "no node can take it now", "Unschedulable", words)

    def test_a_quota_on_gpus(self, sdk: KubernetesSDK, played: Namespace) -> None:
        add_quota(played, requests_nvidia_com__gpu="1")
        job = sdk.create_job(**asked(gpu_count=8))
        waits(sdk, job, "its pod is refused", "FailedCreate", "exceeded quota")

    def test_what_the_namespace_does_not_allow(self, sdk: KubernetesSDK, played: Namespace) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        played.api.patch(played.path, {"metadata": {"labels": labels}})
        job = sdk.create_job(**asked())
        waits(sdk, job, "its pod is refused", "FailedCreate", "violates PodSecurity")

    def test_one_of_several_pods(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """The job is as far as its last pod, which is named."""
        played.nodes.add("one", gpus=8)
        job = sdk.create_job(**asked(gpu_count=8, num_nodes=2))
        [first] = pods_of(played, job)
        played.nodes.start(first)
        eventually(lambda: says(job, "1 of 2 pods wait; rank "))
        assert job.status == "Pending"
        assert "Insufficient nvidia.com/gpu" in message_of(job)
        phases = [one["status"]["phase"] for one in sdk.get_job_replicas(job.id)]
        assert sorted(phases) == ["Pending", "Running"]

    def test_suspended_while_it_runs(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job, _ = started(sdk, played)
        path = f"{played.jobs}/{job_name(job)}"
        played.api.patch(path, {"spec": {"suspend": True}})
        eventually(lambda: job.refresh().status == "Paused")
        assert "suspended" in message_of(job)
        reap_until(played, lambda: not played.pods(job_name(job)))
        assert job.refresh().status == "Paused"
        played.api.patch(path, {"spec": {"suspend": False}})
        [again] = pods_of(played, job)
        played.nodes.finish(again)
        assert job.wait(timeout=LONG).status == "Complete"


@pytest.mark.seed("003.5", "003.8")
class TestWaitingForReal:
    """Lessons W9, W10: the same in the words of a real node."""

    def test_an_image_that_is_nowhere(self, real_sdk: KubernetesSDK, real: Namespace) -> None:
        job = real_sdk.create_job(image=f"{real.registry}/no/such:1", command="true", gpu_count=0)
        eventually(lambda: says(job, "the image cannot be pulled"), LONG)
        assert job.status == "Pending"
        assert issue_of(real_sdk, job)["reason"] in ("ErrImagePull", "ImagePullBackOff")
        analysis = explained(job)
        assert analysis["err_class"] in ("ERR_IMAGE", "ERR_CREDENTIAL")
        assert job.cancel()

    def test_an_image_that_must_not_be_pulled(
        self, real_sdk: KubernetesSDK, real: Namespace
    ) -> None:
        job = real_sdk.create_job(
            image="no/such:1", command="true", gpu_count=0, image_pull_policy="Never"
        )
        waits(real_sdk, job, "must not be pulled", "ErrImageNeverPull", "no/such:1")
        assert explained(job)["err_class"] == "ERR_IMAGE"

    def test_a_secret_that_is_not_there(self, real_sdk: KubernetesSDK) -> None:
        key = {"secretKeyRef": {"name": "absent", "key": "token"}}
        container = {"name": "tao", "env": [{"name": "TOKEN", "valueFrom": key}]}
        job = real_sdk.create_job(
            image=BUSYBOX, command="true", gpu_count=0, overlay=patched(containers=[container])
        )
        waits(
            real_sdk,
            job,
            "a Secret or ConfigMap that it needs does not exist",
            "CreateContainerConfigError",
            'secret "absent" not found',
        )

    def test_a_volume_that_cannot_be_mounted(self, real_sdk: KubernetesSDK) -> None:
        """Only an event tells of it."""
        volume = {"name": "more", "secret": {"secretName": "absent"}}
        container = {"name": "tao", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}
        job = real_sdk.create_job(
            image=BUSYBOX,
            command="true",
            gpu_count=0,
            overlay=patched(volumes=[volume], containers=[container]),
        )
        words = "a volume cannot be mounted"
        waits(real_sdk, job, words, "FailedMount", 'secret "absent" not found')


def ended(sdk: KubernetesSDK, namespace: Namespace, *how: Any, **more: Any) -> Job:
    """A job whose pod has ended in a certain way."""
    job, pod = started(sdk, namespace)
    namespace.nodes.finish(pod, *how, **more)
    assert job.wait(timeout=LONG).status == "Error"
    return job


def disruption(reason: str, message: str) -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}


@pytest.mark.seed("003.5", "003.8")
class TestEnds:
    """Every end has its cause, and the class that decides about another attempt."""

    def test_out_of_memory(self, sdk: KubernetesSDK, played: Namespace) -> None:
        analysis = explained(ended(sdk, played, 137, "OOMKilled"))
        assert (analysis["err_class"], analysis["exit_code"]) == ("ERR_OOM", 137)
        assert analysis["retriable"] is False
        assert analysis["job_failure_by_node_event"][0]["node_event_name"] == "OOMKilled"

    def test_out_of_memory_in_a_child(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """The launcher outlives the process that was killed, and ends with a code of its own."""
        analysis = explained(ended(sdk, played, 1, "OOMKilled"))
        assert (analysis["err_class"], analysis["exit_code"]) == ("ERR_OOM", 1)

    def test_killed_with_memory_to_spare(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """137 is a signal. That it was for memory, Kubernetes would say."""
        analysis = explained(ended(sdk, played, 137))
        assert analysis["err_class"] == "ERR_UNKNOWN"
        assert "no memory limit reached" in analysis["cause"]

    def test_an_ordinary_failure(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job = ended(sdk, played, 3)
        assert says(job, "ended with exit code 3")
        assert (explained(job)["err_class"], explained(job)["exit_code"]) == ("ERR_PROGRAM", 3)

    def test_evicted_by_its_node(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job, pod = started(sdk, played)
        message = "The node was low on resource: memory. Container tao was using 3Gi."
        path = f"{played.path}/pods/{name_of(pod)}/status"
        played.api.patch(path, {"status": {"message": message}})
        played.nodes.finish(pod, 137, pod_reason="Evicted")
        assert job.wait(timeout=LONG).status == "Error"
        analysis = explained(job)
        assert (analysis["err_class"], analysis["retriable"]) == ("ERR_INFRA", True)
        assert "low on memory" in analysis["cause"]

    def test_evicted_before_it_began(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """Such a pod has no container that could have ended."""
        played.nodes.add("one")
        job = sdk.create_job(**asked())
        [pod] = pods_of(played, job)
        status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on disk"}
        played.api.patch(f"{played.path}/pods/{name_of(pod)}/status", {"status": status})
        assert job.wait(timeout=LONG).status == "Error"
        assert says(job, "Evicted")
        assert explained(job)["err_class"] == "ERR_INFRA"

    def test_its_node_was_lost(self, sdk: KubernetesSDK, played: Namespace) -> None:
        words = "Taint manager: deleting due to NoExecute taint"
        lost = disruption("DeletionByTaintManager", words)
        analysis = explained(ended(sdk, played, 137, conditions=[lost]))
        assert (analysis["err_class"], analysis["retriable"]) == ("ERR_INFRA", True)
        assert "node" in analysis["cause"]

    def test_its_node_was_removed(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """The real collector of orphaned pods finds it."""
        job, pod = started(sdk, played)
        played.api.delete(f"/api/v1/nodes/{pod['spec']['nodeName']}")
        lost = disruption("DeletionByPodGC", "PodGC: node no longer exists")
        played.nodes.finish(pod, 137, conditions=[lost])
        assert job.wait(timeout=LONG).status == "Error"
        assert (explained(job)["err_class"], explained(job)["retriable"]) == ("ERR_INFRA", True)

    def test_preempted_by_the_scheduler(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """A more important pod needs its GPUs: the real scheduler takes them."""
        name = f"urgent-{played.name}"
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        body = {"kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
        played.api.create(classes, body)
        try:
            job, _ = started(sdk, played, gpu_count=8)
            urgent = sdk.create_job(**asked(gpu_count=8, priority_class=name))
            reap_until(played, lambda: job.refresh().status == "Error")
            assert pods_of(played, urgent)
        finally:
            played.api.delete(f"{classes}/{name}")
        analysis = explained(job)
        assert (analysis["err_class"], analysis["retriable"]) == ("ERR_PREEMPTED", True)

    def test_its_time_was_over(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job, _ = started(sdk, played, active_deadline_seconds=3)
        reap_until(played, lambda: job.refresh().status == "Error")
        assert says(job, "DeadlineExceeded")
        assert explained(job)["err_class"] == "ERR_TIMEOUT"

    def test_its_pod_was_deleted(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job, pod = started(sdk, played)
        played.kubectl("delete", "pod", name_of(pod), "--wait=false")
        reap_until(played, lambda: job.refresh().status == "Error")
        assert message_of(job)
        assert explained(job)["err_class"] in ("ERR_UNKNOWN", "ERR_INFRA")

    def test_the_first_rank_to_fail_is_named(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """Those that were stopped because of it are not to blame."""
        played.nodes.add("one")
        job = sdk.create_job(**asked(num_nodes=3))
        pods = pods_of(played, job, 3)
        for pod in pods:
            played.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        played.nodes.finish(pods[1], 7)
        reap_until(played, lambda: job.refresh().status == "Error")
        assert says(job, "rank 1 ended with exit code 7")
        analysis = explained(job)
        assert (analysis["rank"], analysis["exit_code"]) == (1, 7)
        assert analysis["node"] == pods[1]["spec"]["nodeName"]


class TestRefused:
    """A submission that the cluster refuses is an error at once, in the cluster's words."""

    def test_a_quota_on_jobs(self, sdk: KubernetesSDK, played: Namespace) -> None:
        add_quota(played, count__jobs_batch="0")
        with pytest.raises(SubmissionRejectedError, match="exceeded quota"):
            sdk.create_job(**asked())
        [row] = sdk.store.list_jobs()
        analysis = sdk.get_failure_analysis(row["job_id"])
        assert analysis is not None
        assert analysis["err_class"] == "ERR_CAPACITY"

    def test_a_policy(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """Of the API server itself, as webhooks would have it."""
        denies(played, "jobs", "batch", "no jobs on Fridays")
        try:
            eventually(lambda: _is_refused(sdk, "no jobs on Fridays"))
        finally:
            lift(played)
        row = next(row for row in sdk.store.list_jobs() if row["status"] == "Error")
        analysis = sdk.get_failure_analysis(row["job_id"])
        assert analysis is not None
        assert analysis["err_class"] == "ERR_CREDENTIAL"
        assert "no jobs on Fridays" in analysis["cause"]

    def test_a_policy_about_pods(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """The Job is taken, its pods are not: it waits, and says why."""
        denies(played, "pods", "", "no pods on Fridays")
        try:
            eventually(lambda: _is_in_force(played))
            job = sdk.create_job(**asked())
            eventually(lambda: says(job, "no pods on Fridays"), LONG)
            assert job.status == "Pending"
            assert issue_of(sdk, job)["reason"] == "FailedCreate"
        finally:
            lift(played)

    def test_no_right(self, played: Namespace, tmp_path: Path, monkeypatch: Any) -> None:
        played.service_account("guest", role="view")
        with opened(played, tmp_path, monkeypatch) as sdk:
            monkeypatch.setenv("KUBECONFIG", str(played.service_account("guest", role="")))
            with pytest.raises(SubmissionRejectedError, match='cannot create resource "jobs"'):
                sdk.create_job(**asked())
            [row] = sdk.store.list_jobs()
            analysis = sdk.get_failure_analysis(row["job_id"])
            assert analysis is not None
            assert analysis["err_class"] == "ERR_CREDENTIAL"


def _is_refused(sdk: KubernetesSDK, words: str) -> bool:
    """A policy takes a moment until the server knows it."""
    try:
        sdk.create_job(**asked())
    except SubmissionRejectedError as error:
        return words in str(error)
    return False


def _is_in_force(namespace: Namespace) -> bool:
    """Is a pod refused by now?"""
    container = {"name": "main", "image": "no/such:1"}
    pod = {"metadata": {"generateName": "probe-"}, "spec": {"containers": [container]}}
    try:
        namespace.api.create(f"{namespace.path}/pods", {"kind": "Pod", **pod})
    except RefusedError as refused:
        return "on Fridays" in str(refused)
    return False


def denies(namespace: Namespace, resource: str, group: str, message: str) -> None:
    """Let the API server refuse whatever of a kind is made in a namespace."""
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}},
            "resourceRules": [{**rule, "resources": [resource]}],
        },
        "validations": [{"expression": "false", "message": message}],
    }
    metadata = {"metadata": {"name": namespace.name}}
    policy = {"kind": "ValidatingAdmissionPolicy", **metadata, "spec": spec}
    namespace.api.create(f"{POLICIES}/validatingadmissionpolicies", policy)
    bound = {"policyName": namespace.name, "validationActions": ["Deny"]}
    binding = {"kind": "ValidatingAdmissionPolicyBinding", **metadata, "spec": bound}
    namespace.api.create(f"{POLICIES}/validatingadmissionpolicybindings", binding)


def lift(namespace: Namespace) -> None:
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        namespace.api.delete(f"{POLICIES}/{kind}/{namespace.name}")


class TestEndsForReal:
    """The same as real nodes tell it."""

    @pytest.mark.seed("003.5", "003.8")
    def test_out_of_memory(self, real_sdk: KubernetesSDK) -> None:
        job = real_sdk.create_job(
            image=BUSYBOX,
            command="tail /dev/zero",
            gpu_count=0,
            resources={"memory": "24Mi"},
        )
        assert job.wait(timeout=LONG).status == "Error"
        analysis = explained(job)
        assert analysis["err_class"] == "ERR_OOM"
        assert analysis["job_failure_by_node_event"][0]["node_event_name"] == "OOMKilled"

    def test_a_folder_that_is_a_file(self, real_sdk: KubernetesSDK) -> None:
        """StartError, exit code 128: the container was made, and nothing in it could run."""
        job = real_sdk.create_job(image=BUSYBOX, command="true", gpu_count=0, cwd="/bin/busybox")
        assert job.wait(timeout=LONG).status == "Error"
        assert says(job, "StartError")
        analysis = explained(job)
        assert (analysis["err_class"], analysis["exit_code"]) == ("ERR_IMAGE", 128)
        assert "/bin/busybox" in "".join(analysis["evidence"])

    def test_an_image_that_never_came(self, real_sdk: KubernetesSDK, real: Namespace) -> None:
        """Lesson W10: an end without any container is explained, too."""
        job = real_sdk.create_job(
            image=f"{real.registry}/no/such:1",
            command="true",
            gpu_count=0,
            active_deadline_seconds=15,
        )
        eventually(lambda: says(job, "the image cannot be pulled"), LONG)
        assert job.wait(timeout=LONG).status == "Error"
        analysis = explained(job)
        assert analysis["err_class"] in ("ERR_IMAGE", "ERR_CREDENTIAL"), analysis

    def test_evicted_for_what_it_wrote(self, real_sdk: KubernetesSDK) -> None:
        job = real_sdk.create_job(
            image=BUSYBOX,
            command="head -c 33554432 /dev/zero > /tmp/big; while :; do sleep 1; done",
            gpu_count=0,
            resources={"ephemeral_storage": "4Mi"},
        )
        assert job.wait(timeout=170).status == "Error"
        assert explained(job)["err_class"] == "ERR_CAPACITY"

    def test_the_first_rank_to_fail_is_named(self, real_sdk: KubernetesSDK) -> None:
        job = real_sdk.create_job(
            image=BUSYBOX,
            command='[ "$NODE_RANK" = 0 ] || { echo cannot go on >&2; exit 5; }; sleep 600',
            gpu_count=0,
            num_nodes=2,
        )
        assert job.wait(timeout=LONG).status == "Error"
        assert says(job, "rank 1 ended with exit code 5")
        analysis = explained(job)
        assert (analysis["rank"], analysis["exit_code"]) == (1, 5)
        assert any("cannot go on" in quote for quote in analysis["evidence"])


@pytest.mark.timeout(420)
def test_a_node_loses_its_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can say what became of a pod on a node that is gone, until the node is given up."""
    with (
        private_cluster(QUICK_TO_GIVE_UP) as cluster,
        KubernetesLab(cluster).namespace() as namespace,
        opened(namespace, tmp_path, monkeypatch) as sdk,
    ):
        job = sdk.create_job(
            image=BUSYBOX, command="echo begun; while :; do sleep 1; done", gpu_count=0
        )
        eventually(lambda: "begun" in sdk.get_job_logs(job.id), LONG)
        [pod] = namespace.pods(job_name(job))
        node = pod["spec"]["nodeName"]
        cluster.kill_node(node)
        eventually(lambda: not cluster.is_ready(node), LONG)
        assert job.refresh().status in ("Pending", "Running"), "nothing has ended yet"
        gone = "deletionTimestamp"
        eventually(lambda: gone in namespace.pods(job_name(job))[0]["metadata"], LONG)
        assert job.refresh().status in ("Pending", "Running")
        namespace.kubectl("delete", "node", node)
        assert job.wait(timeout=LONG).status == "Error"
        analysis = explained(job)
        assert (analysis["err_class"], analysis["retriable"]) == ("ERR_INFRA", True), analysis
