"""What is true when the cluster does not say, or says it too late; and whether there is room."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kubernetes_sdk import (
    LONG,
    asked,
    isolate,
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
    ADMIN,
    ALICE,
    CONTROL_PLANE,
    WITH_NODES,
    Cluster,
    KubernetesLab,
    Namespace,
    private_cluster,
)
from lab.kubernetes.fake_nodes import SELECTOR
from tao_sdk.errors import CapacityError, TaoError
from tao_sdk.models import Job
from tao_sdk.platforms.backend import Plan
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK

LINES = 40
TALK = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; sleep 0.5; done"


@pytest.fixture
def sdk(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(played, tmp_path, monkeypatch) as sdk:
        yield sdk


class TestVanished:
    """Lesson W12: a Job that is gone is not Pending for ever."""

    def test_deleted_with_kubectl(
        self, sdk: KubernetesSDK, played: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job, _ = started(sdk, played)
        played.kubectl("delete", "job", job_name(job), "--wait=false", "--cascade=background")
        eventually(lambda: says(job, "does not know this job"))
        assert job.status == "Running", "it may come back within the grace"
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        assert job.wait(timeout=LONG).status == "Error"
        assert says(job, "vanished")

    def test_removed_after_its_time(
        self, sdk: KubernetesSDK, played: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the real controller; of two, we had seen the end of one."""
        played.nodes.add("one")
        patch = {"spec": {"ttlSecondsAfterFinished": 3600}}
        seen, unseen = (sdk.create_job(**asked(overlay=patch)) for _ in range(2))
        for job in (seen, unseen):
            [pod] = pods_of(played, job)
            played.nodes.finish(pod)
        assert seen.wait(timeout=LONG).status == "Complete"
        for job in (seen, unseen):
            path = f"{played.jobs}/{job_name(job)}"
            eventually(lambda path=path: "completionTime" in played.api.get(path)["status"])  # type: ignore[misc]  # bound now: the loop goes on
            played.api.patch(path, {"spec": {"ttlSecondsAfterFinished": 0}})
            eventually(lambda path=path: not played.api.exists(path))  # type: ignore[misc]  # bound now: the loop goes on
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        assert unseen.wait(timeout=LONG).status == "Error"
        assert says(unseen, "the hour was over for which ended Jobs are kept")
        assert seen.refresh().status == "Complete"


class TestMadeAnew:
    """A Job of the same name is another Job, whoever made it, labels and all."""

    @pytest.fixture
    def job(self, sdk: KubernetesSDK, played: Namespace) -> Job:
        """A job that ran, whose Job somebody deleted and made again from what they had saved."""
        job, _ = started(sdk, played)
        path = f"{played.jobs}/{job_name(job)}"
        saved = played.job(job_name(job))
        played.kubectl("delete", "job", job_name(job), "--wait=false", "--cascade=background")
        reap_until(played, lambda: not played.api.exists(path) and not played.pods(job_name(job)))
        theirs = ("controller-uid", "job-name")
        for labels in (
            saved["metadata"]["labels"],
            saved["spec"]["template"]["metadata"]["labels"],
        ):
            for name in [name for name in labels if name.endswith(theirs)]:
                del labels[name]
        del saved["spec"]["selector"]
        kept = {name: saved["metadata"][name] for name in ("name", "labels")}
        played.api.create(played.jobs, {**saved, "metadata": kept, "status": {}})
        played.nodes.start(*pods_of(played, job))
        eventually(lambda: played.job(job_name(job))["status"].get("ready"))
        return job

    def test_it_is_not_taken_for_ours(
        self, sdk: KubernetesSDK, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        eventually(lambda: says(job, "does not know this job"))
        assert sdk.get_job_replicas(job.id) == []
        assert sdk.get_job_logs(job.id) == ""
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        assert job.wait(timeout=LONG).status == "Error"
        assert says(job, "vanished")

    def test_it_is_not_stopped_with_ours(
        self, sdk: KubernetesSDK, played: Namespace, job: Job
    ) -> None:
        assert sdk.cancel_job(job.id)
        assert job.refresh().status == "Canceled"
        assert sdk.delete_job_artifacts(job.id)
        assert "deletionTimestamp" not in played.job(job_name(job))["metadata"]


class TestNotTold:
    """Lesson W12: whoever may not know, or cannot ask, keeps what was known and says so."""

    def test_an_account_that_was_deleted(
        self, played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """401."""
        robot = played.service_account("robot")
        isolate(monkeypatch, robot)
        with KubernetesSDK(state_file=tmp_path / "state.json") as sdk:
            job, _ = started(sdk, played)
            played.api.delete(f"{played.path}/serviceaccounts/robot")
            eventually(lambda: says(job, "does not accept the credential"), LONG)
            assert job.status == "Running"
            assert "cannot reach" in message_of(job)

    def test_a_right_that_was_lost_while_somebody_waits(
        self, sdk: KubernetesSDK, played: Namespace
    ) -> None:
        """403, and back: who waits is told the end all the same."""
        job, pod = started(sdk, played)
        # Once the Job itself counts its pod nobody has to list pods, so both rights go at once.
        eventually(lambda: played.job(job_name(job))["status"].get("ready"))
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(job.wait, timeout=LONG)
            roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{played.name}/rolebindings"
            played.api.delete(f"{roles}/edit-{ALICE}")
            eventually(lambda: "cannot list resource" in sdk.get_job_status(job.id).message)
            assert sdk.get_job_status(job.id).status == "Running"
            played.nodes.finish(pod)
            played.bind_role("edit", {"kind": "User", "name": ALICE})
            assert waiting.result(timeout=LONG).status == "Complete"


class Submitter(threading.Thread):
    """Submits one job after the other, but not many, for as long as its `with` lasts."""

    def __init__(self, sdk: KubernetesSDK) -> None:
        super().__init__()
        self._sdk = sdk
        self._over = threading.Event()
        self.made: list[Job] = []
        self.refused: list[TaoError] = []

    def __enter__(self) -> Submitter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(LONG)

    def run(self) -> None:
        # Each becomes a pod that really runs: at full speed they would be hundreds.
        while not self._over.wait(0.5):
            try:
                self.made.append(self._sdk.create_job(**quick()))
            except TaoError as error:
                self.refused.append(error)


@contextlib.contextmanager
def api_server_away(cluster: Cluster) -> Iterator[None]:
    """It is back afterwards, also for a test that failed: others wait for it in threads."""
    cluster.stop_apiserver()
    try:
        yield
    finally:
        cluster.start_apiserver()


def quick() -> dict[str, Any]:
    """A job that needs a Secret, so that its submission has three steps."""
    return {"image": BUSYBOX, "command": "true", "gpu_count": 0, "env_vars": {"A": "b"}}


@pytest.mark.timeout(420)
def test_the_api_server_restarts_in_the_middle_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson W12: submitting, watching, waiting and reading logs, in real pods: nothing is lost,
    nothing is told that is not so.
    """
    with (
        private_cluster(WITH_NODES) as cluster,
        KubernetesLab(cluster).namespace() as namespace,
        opened(namespace, tmp_path, monkeypatch) as sdk,
        ThreadPoolExecutor() as threads,
    ):
        job = sdk.create_job(image=BUSYBOX, command=TALK, gpu_count=0)
        waiting = threads.submit(sdk.wait, job.id, timeout=300)
        following = threads.submit(lambda: list(sdk.stream_logs(job.id)))
        eventually(lambda: "line 2\n" in sdk.get_job_logs(job.id), LONG)
        with Submitter(sdk) as submitter:
            eventually(lambda: len(submitter.made) >= 3, LONG)
            with api_server_away(cluster):
                eventually(lambda: "cannot reach" in sdk.get_job_status(job.id).message, LONG)
                assert sdk.get_job_status(job.id).status == "Running"
                eventually(lambda: submitter.refused, LONG)
            made = len(submitter.made)
            eventually(lambda: len(submitter.made) > made, LONG)
        assert waiting.result(timeout=300).status == "Complete"
        expected = [f"line {number}" for number in range(1, LINES + 1)]
        assert following.result(timeout=LONG) == expected
        assert sdk.get_job_logs(job.id).splitlines() == expected
        check_submissions(sdk, namespace, {one.id for one in submitter.made} | {job.id})


def check_submissions(sdk: KubernetesSDK, namespace: Namespace, returned: set[str]) -> None:
    """Every job of the store is in the cluster or was never submitted; no other job is there."""
    sdk.reconcile()
    rows = {row["job_id"]: row for row in sdk.store.list_jobs()}
    states = sdk.wait_all(list(rows), timeout=300)
    rows = {row["job_id"]: row for row in sdk.store.list_jobs()}
    submitted = {job_id for job_id, row in rows.items() if row["phase"] == "submitted"}
    assert returned <= submitted
    assert {states[job_id].status for job_id in submitted} == {"Complete"}
    assert {states[job_id].status for job_id in set(rows) - submitted} <= {"Error"}
    found = namespace.api.get(namespace.jobs, labelSelector="tao-toolkit=true")["items"]
    assert {one["metadata"]["labels"]["tao-sdk-job-id"] for one in found} == submitted


def planned(
    namespace: Namespace, folder: Path, monkeypatch: pytest.MonkeyPatch, **keywords: Any
) -> Plan:
    """What an administrator is told who looks for the first time; on nodes of this test only."""
    selector = {SELECTOR: namespace.name, **keywords.pop("node_selector", {})}
    with opened(namespace, folder, monkeypatch, ADMIN) as sdk:
        return sdk.plan(**asked(node_selector=selector, **keywords))


def about_gpus(plan: Plan) -> list[str]:
    return [told for told in plan.warnings if "GPU" in told]


@pytest.mark.seed("003.4")
class TestCapacity:
    """Lesson W14: what fits is judged per node, on nodes that may be used."""

    def test_eight_small_nodes_are_no_big_one(
        self, played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(8):
            played.nodes.add(f"small{number}", gpus=1)
        with pytest.raises(CapacityError, match=r"no node is big enough: 8 GPUs on one node"):
            planned(played, tmp_path, monkeypatch, gpu_count=8)
        fits = planned(played, tmp_path, monkeypatch, gpu_count=1, num_nodes=8)
        assert about_gpus(fits) == []
        with pytest.raises(CapacityError, match=r"1 GPU on one node, 9 times"):
            planned(played, tmp_path, monkeypatch, gpu_count=1, num_nodes=9)

    def test_gpus_in_use_are_left_to_the_scheduler(
        self,
        sdk: KubernetesSDK,
        played: Namespace,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A job that must wait is accepted, and its status says for what. Pods are not listed."""
        started(sdk, played, gpu_count=6)
        node_selector = {SELECTOR: played.name}
        with opened(played, tmp_path, monkeypatch, ADMIN) as admin:
            plan = admin.plan(**asked(gpu_count=4, node_selector=node_selector))
            assert not any("/pods" in call for call in admin.backend.transport.calls)
            assert about_gpus(plan) == []
            job = admin.submit(plan)
            eventually(lambda: "Insufficient nvidia.com/gpu" in job.refresh().message, LONG)
            assert job.status == "Pending"

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ({"unschedulable": True}, "has 8 but is cordoned"),
            (
                {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]},
                "has 8 but has the taint team:NoSchedule",
            ),
        ],
        ids=["cordoned", "tainted"],
    )
    def test_nodes_that_may_not_be_used(
        self,
        played: Namespace,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        spec: dict[str, Any],
        words: str,
    ) -> None:
        node = played.nodes.add("big", gpus=8)
        played.api.patch(f"/api/v1/nodes/{node}", {"spec": spec})
        with pytest.raises(CapacityError, match=words):
            planned(played, tmp_path, monkeypatch, gpu_count=1)
        if "taints" in spec:
            tolerant = [{"key": "team", "operator": "Exists"}]
            assert planned(played, tmp_path, monkeypatch, gpu_count=1, tolerations=tolerant)

    def test_labels(
        self, played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        played.nodes.add("a100", gpus=8, labels={"gpu-type": "a100"})
        wanted = {"gpu-type": "h100"}
        with pytest.raises(CapacityError, match="has not the label gpu-type=h100"):
            planned(played, tmp_path, monkeypatch, gpu_count=1, node_selector=wanted)

    def test_who_may_not_list_nodes_is_warned_and_goes_on(
        self, sdk: KubernetesSDK, played: Namespace
    ) -> None:
        plan = sdk.plan(**asked(gpu_count=8))
        [told] = about_gpus(plan)
        assert "you may not list nodes" in told
        job = sdk.submit(plan)
        eventually(lambda: says(job, "no node can take it now"))

    @pytest.mark.seed("003.8")
    def test_a_cluster_without_gpus(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        words = "No nvidia.com/gpu resources allocatable on the cluster"
        with (
            private_cluster(CONTROL_PLANE) as cluster,
            KubernetesLab(cluster).namespace() as namespace,
        ):
            with pytest.raises(CapacityError, match=words):
                planned(namespace, tmp_path, monkeypatch, gpu_count=1)
            namespace.nodes.add("cpu", gpus=0)
            with pytest.raises(CapacityError, match=words):
                planned(namespace, tmp_path, monkeypatch, gpu_count=1)
            assert planned(namespace, tmp_path, monkeypatch, gpu_count=0)
            # An autoscaler may add what is not there.
            status = {"kind": "ConfigMap", "metadata": {"name": "cluster-autoscaler-status"}}
            cluster.admin.create("/api/v1/namespaces/kube-system/configmaps", status)
            [told] = about_gpus(planned(namespace, tmp_path, monkeypatch, gpu_count=1))
            assert "adds nodes by itself" in told
