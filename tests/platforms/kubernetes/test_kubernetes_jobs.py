"""Jobs of a real control plane, whose nodes these tests play: every failure on demand."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab.kubernetes import ADMIN, Namespace
from lab.kubernetes.api import name_of
from lab.kubernetes.fake_nodes import SELECTOR
from tao_sdk import settings
from tao_sdk.errors import (
    CapacityError,
    SubmissionRejectedError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.models import Job
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import reference
from tao_sdk.platforms.kubernetes import KubernetesSDK, preflight
from tao_sdk.platforms.kubernetes.cleanup import sweep
from tao_sdk.platforms.kubernetes.submit import Submitter
from tao_sdk.platforms.whereabouts import Whereabouts

SECRET = "canary-value-77ab"  # noqa: S105 - made up
_CLUSTER = ("TAO_K8S_NAMESPACE", "TAO_K8S_CONTEXT")


@pytest.fixture
def sdk(
    played: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    for setting in settings.SETTINGS.values():
        if setting.secret or setting.name in _CLUSTER:
            for name in (setting.name, *setting.aliases):
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(played.kubeconfig()))
    with KubernetesSDK(state_file=tmp_path / "state.json") as sdk:
        yield sdk


def submit(sdk: KubernetesSDK, **keywords: Any) -> Job:
    return sdk.create_job(**{"image": "trainer:1", "command": "true", "gpu_count": 0, **keywords})


def seen(job: Job, words: str) -> bool:
    return words in job.refresh().message


def objects(namespace: Namespace, resource: str) -> list[str]:
    """Names of ours."""
    found = namespace.api.get(f"{namespace.path}/{resource}", labelSelector="tao-toolkit=true")
    return [name_of(one) for one in found["items"]]


def jobs(namespace: Namespace) -> list[str]:
    return [name_of(one) for one in namespace.api.get(namespace.jobs)["items"]]


class TestSubmitting:
    def test_the_plan_says_what_is_lost_without_a_place_for_results(
        self, sdk: KubernetesSDK, played: Namespace
    ) -> None:
        played.add_volume("results")
        asked: dict[str, Any] = {"image": "trainer:1", "command": "true", "gpu_count": 0}
        told = "\n".join(sdk.plan(**asked, ttl_seconds=60).warnings)
        assert "no writable mount at /results and no S3_BUCKET_NAME" in told
        assert "lost unless a process attends to it while its Job is kept (60 s" in told
        told = "\n".join(sdk.plan(**asked, mounts=["pvc://results:/results"]).warnings)
        assert "lost" not in told

    def test_what_a_job_owns_goes_with_it(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """Lessons W13, W15: Services and secrets accumulate."""
        job = submit(sdk, num_nodes=2, env_vars={"A": SECRET}, command="# " + "x" * 200_000)
        name = f"tao-job-{job.id}"
        owned = {
            "secrets": f"{name}-env",
            "services": name,
            "configmaps": f"{name}-command-0",
        }
        for resource, one in owned.items():
            found = played.api.get(f"{played.path}/{resource}/{one}")
            [owner] = found["metadata"]["ownerReferences"]
            assert owner["uid"] == played.job(name)["metadata"]["uid"]
        assert played.job(name)["spec"]["suspend"] is False
        assert "tao-sdk-submitting" not in played.job(name)["metadata"]["labels"]
        played.api.delete(f"{played.jobs}/{name}", propagationPolicy="Background")
        for resource, one in owned.items():
            eventually(lambda r=resource, o=one: o not in objects(played, r))  # type: ignore[misc]  # bound now: the loop goes on

    def test_a_refusal_leaves_nothing(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """Lesson W13: what was made before a refusal stays."""
        quota = {"metadata": {"name": "no-services"}, "spec": {"hard": {"services": "0"}}}
        played.api.create(f"{played.path}/resourcequotas", {"kind": "ResourceQuota", **quota})
        eventually(
            lambda: played.api.get(f"{played.path}/resourcequotas/no-services").get("status")
        )
        with pytest.raises(SubmissionRejectedError, match=r"refuses the Service .*exceeded quota"):
            submit(sdk, num_nodes=2, env_vars={"A": SECRET})
        eventually(lambda: not jobs(played))
        eventually(lambda: not objects(played, "secrets"))
        [row] = sdk.store.list_jobs()
        assert (row["status"], row["phase"]) == ("Error", "rejected")

    def test_an_invalid_job_is_refused_with_the_servers_words(self, sdk: KubernetesSDK) -> None:
        patch = {"spec": {"template": {"spec": {"dnsPolicy": "Sometimes"}}}}
        with pytest.raises(SubmissionRejectedError, match="Sometimes"):
            submit(sdk, overlay=patch)
        with pytest.raises(SubmissionRejectedError, match="noSuchField"):
            submit(sdk, overlay={"spec": {"noSuchField": 1}})

    def test_a_namespace_that_is_not_there(self, sdk: KubernetesSDK) -> None:
        with pytest.raises(SubmissionRejectedError, match="no-such-namespace"):
            submit(sdk, namespace="no-such-namespace")

    def test_a_fence_keeps_a_late_request_out_and_goes_by_itself(
        self, sdk: KubernetesSDK, played: Namespace
    ) -> None:
        plan = sdk.plan(image="trainer:1", command="true", gpu_count=0)
        told = sdk.backend.settle([JobRef(plan.identity, plan.intent)])
        assert told == {plan.job_id: None}
        with pytest.raises(SubmissionRejectedError, match="never submitted"):
            sdk.backend.submit(plan)
        assert sdk.backend.settle([JobRef(plan.identity, plan.intent)]) == {plan.job_id: None}
        # It has completed, so that the cluster removes it after its time.
        path = f"{played.jobs}/tao-job-{plan.job_id}"
        fence = eventually(
            lambda: next(
                (one for one in [played.api.get(path)] if one["status"].get("conditions")), None
            )
        )
        assert {one["type"] for one in fence["status"]["conditions"]} >= {"Complete"}
        assert played.pods() == []

    def test_a_submission_that_may_have_run_long_ago_is_not_called_never_submitted(
        self, sdk: KubernetesSDK
    ) -> None:
        plan = sdk.plan(image="trainer:1", command="true", gpu_count=0)
        old = {**plan.intent, "planned_at": "2020-01-01T00:00:00+00:00"}
        told = sdk.backend.settle([JobRef(plan.identity, old)])
        assert told[plan.job_id] is not None

    def test_what_is_half_made_and_nobodys_is_removed(
        self, sdk: KubernetesSDK, played: Namespace
    ) -> None:
        plan = sdk.plan(image="t:1", command="true", gpu_count=0, env_vars={"A": SECRET})
        made = Submitter(sdk.backend.transport)
        half = made.create_job(plan.payload.job)
        for resource, companion in plan.payload.companions:
            made.create_companion(half, resource, companion)
        sweep(sdk.backend.transport, played.name)
        assert jobs(played), "its client may be at it"
        sweep(sdk.backend.transport, played.name, timedelta(seconds=-60))
        eventually(lambda: not jobs(played) and not objects(played, "secrets"))

    @pytest.mark.seed("003.3")
    @pytest.mark.seed("003.1")
    def test_which_namespace(
        self, sdk: KubernetesSDK, played: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def namespace_of(**keywords: Any) -> str:
            made = sdk.plan(image="trainer:1", command="true", gpu_count=0, **keywords)
            return str(made.intent["namespace"])

        assert namespace_of() == played.name
        monkeypatch.setenv("TAO_K8S_NAMESPACE", "from-the-settings")
        assert namespace_of() == "from-the-settings"
        assert namespace_of(namespace="from-the-keyword") == "from-the-keyword"

    def test_plans_look_before_they_leap(self, sdk: KubernetesSDK, played: Namespace) -> None:
        asked: dict[str, Any] = {"image": "trainer:1", "command": "true", "gpu_count": 0}
        with pytest.raises(ValidationError, match="there is no data among the persistentvolumecl"):
            sdk.plan(**asked, mounts=["pvc://data:/data"])
        with pytest.raises(ValidationError, match="there is no nowhere among the configmaps"):
            sdk.plan(**asked, mounts=["configmap://nowhere:/data"])
        with pytest.raises(ValidationError, match="kubectl create secret docker-registry pull"):
            sdk.plan(**asked, image_pull_secret="pull")  # noqa: S106 - a name
        with pytest.raises(UnsupportedError, match="queue: this cluster has no Kueue"):
            sdk.plan(**asked, queue="team-a")
        with pytest.raises(UnsupportedError, match="gang: this cluster has no Kueue"):
            sdk.plan(**asked, queue="team-a", gang=True)
        played.add_volume("data")
        assert sdk.plan(**asked, mounts=["pvc://data:/data"], num_nodes=2)
        assert jobs(played) == []


class TestCapacity:
    @pytest.mark.seed("003.4")
    def test_an_administrator_is_told_what_fits(
        self, sdk: KubernetesSDK, played: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lesson W14: per node, and net of what runs."""
        played.nodes.add("small", gpus=4)
        monkeypatch.setenv("KUBECONFIG", str(played.kubeconfig(ADMIN)))
        asked: dict[str, Any] = {"image": "trainer:1", "command": "true"}
        asked["node_selector"] = {SELECTOR: played.name}
        with pytest.raises(CapacityError, match=r"small has 4"):
            sdk.plan(**asked, gpu_count=8)
        assert sdk.get_available_instances()["total_nvidia_gpus"] >= 4
        fits = sdk.plan(**asked, gpu_count=4)
        assert not any("GPU" in told for told in fits.warnings)
        assert sdk.plan(**asked, gpu_count=-1).payload.job["spec"]["template"]["spec"][
            "containers"
        ][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}

    def test_who_may_not_list_nodes_is_warned(self, sdk: KubernetesSDK) -> None:
        """Lesson W14: a refusal to list nodes is not "0 GPUs"."""
        made = sdk.plan(image="trainer:1", command="true", gpu_count=8)
        assert any("you may not list nodes" in told for told in made.warnings)
        with pytest.raises(ValidationError, match="gpu_count: -1"):
            sdk.plan(image="trainer:1", command="true", gpu_count=-1)


class TestWaiting:
    @pytest.mark.seed("003.5")
    @pytest.mark.seed("003.8")
    def test_no_node_fits(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """Lessons W9, W11: Pending, with the scheduler's words."""
        played.nodes.add("small", gpus=1)
        job = submit(sdk, gpu_count=8)
        eventually(lambda: seen(job, "Insufficient nvidia.com/gpu"))
        assert job.status == "Pending"
        [replica] = sdk.get_job_replicas(job.id)
        issue = replica["status"]["readiness_issue"]
        assert issue["reason"] == "Unschedulable"
        assert "nodes are available" in issue["message"]

    @pytest.mark.seed("003.8")
    @pytest.mark.parametrize(
        ("reason", "message", "err_class"),
        [
            ("ImagePullBackOff", 'Back-off pulling image "trainer:1"', "ERR_IMAGE"),
            ("CreateContainerConfigError", 'secret "x" not found', "ERR_CREDENTIAL"),
        ],
    )
    def test_a_container_that_does_not_start(
        self, sdk: KubernetesSDK, played: Namespace, reason: str, message: str, err_class: str
    ) -> None:
        """Lessons W9, W10: not Running, and explained before it ends."""
        played.nodes.add("one")
        job = submit(sdk)
        [pod] = played.nodes.wait_for_pods(f"tao-job-{job.id}")
        assert sdk.get_failure_analysis(job.id) is None
        played.nodes.hold(pod, reason, message)
        eventually(lambda: seen(job, message))
        assert job.status == "Pending"
        analysis = sdk.get_failure_analysis(job.id)
        assert analysis is not None
        assert analysis["err_class"] == err_class

    def test_quota(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """A quota refuses pods, not Jobs."""
        hard = {"requests.nvidia.com/gpu": "1"}
        quota = {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
        played.api.create(f"{played.path}/resourcequotas", {"kind": "ResourceQuota", **quota})
        eventually(lambda: played.api.get(f"{played.path}/resourcequotas/gpus").get("status"))
        job = submit(sdk, gpu_count=8)
        eventually(lambda: seen(job, "exceeded quota"))
        assert job.status == "Pending"
        [replica] = sdk.get_job_replicas(job.id)
        assert replica["status"]["readiness_issue"]["reason"] == "FailedCreate"
        analysis = sdk.get_failure_analysis(job.id)
        assert analysis is not None
        assert analysis["err_class"] == "ERR_CAPACITY"

    def test_policy(self, sdk: KubernetesSDK, played: Namespace) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        played.api.patch(played.path, {"metadata": {"labels": labels}})
        job = submit(sdk)
        eventually(lambda: seen(job, "violates PodSecurity"))
        assert job.status == "Pending"

    def test_suspended_by_somebody(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.nodes.add("one")
        job = submit(sdk)
        path = f"{played.jobs}/tao-job-{job.id}"
        played.api.patch(path, {"spec": {"suspend": True}})
        eventually(lambda: job.refresh().status == "Paused")
        assert seen(job, "kubectl patch job")
        played.api.patch(path, {"spec": {"suspend": False}})
        eventually(lambda: job.refresh().status == "Pending")


class TestTruth:
    def test_running_is_seen_by_the_pods(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.nodes.add("one")
        job = submit(sdk)
        [pod] = played.nodes.wait_for_pods(f"tao-job-{job.id}")
        assert job.refresh().status == "Pending"
        played.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        played.nodes.finish(pod)
        assert job.wait(timeout=60).status == "Complete"

    def test_a_job_that_somebody_deleted(
        self, sdk: KubernetesSDK, played: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lessons W12, F11: a deleted Job is Pending for ever."""
        job = submit(sdk)
        played.api.delete(f"{played.jobs}/tao-job-{job.id}", propagationPolicy="Background")
        eventually(lambda: seen(job, "does not know this job"))
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        assert job.wait(timeout=60).status == "Error"
        assert seen(job, "its Job is not in the cluster any more")

    def test_a_job_whose_namespace_is_gone_ends(
        self, sdk: KubernetesSDK, played: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lesson W12: the namespace was deleted, and the job was Pending for ever."""
        monkeypatch.setenv("KUBECONFIG", str(played.kubeconfig(ADMIN)))
        name = f"{played.name}-gone"
        played.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        claim = {
            "metadata": {"name": "results"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        played.api.create(f"/api/v1/namespaces/{name}/persistentvolumeclaims", claim)
        job = submit(sdk, namespace=name, mounts=["pvc://results:/results"])
        played.api.delete(f"/api/v1/namespaces/{name}")
        eventually(lambda: not played.api.exists(f"/api/v1/namespaces/{name}"))
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        assert job.wait(timeout=60).status == "Error"
        assert seen(job, "its Job is not in the cluster any more")

    def test_a_right_that_was_taken_away(self, sdk: KubernetesSDK, played: Namespace) -> None:
        """Lesson W12: 403 is not Pending."""
        played.nodes.add("one")
        job = submit(sdk)
        [pod] = played.nodes.wait_for_pods(f"tao-job-{job.id}")
        played.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{played.name}/rolebindings"
        played.api.delete(f"{bindings}/edit-alice")
        eventually(lambda: seen(job, "cannot list resource"))
        assert job.status == "Running"
        assert seen(job, "cannot reach")

    def test_another_cluster_is_not_asked_about_jobs(self, sdk: KubernetesSDK) -> None:
        job = submit(sdk)
        native = reference(sdk, job.id)
        elsewhere = native._replace(
            identity=JobIdentity("00000000-gone", "x"),
            native={**native.native, "server": "https://another.example:6443", "cluster": ""},
        )
        seen = sdk.backend.observe([elsewhere])
        [judged] = Whereabouts(sdk.backend).check([elsewhere], seen).values()
        assert "another cluster (https://another.example:6443" in judged.unreachable

    def test_many_running_jobs_take_one_call(
        self, sdk: KubernetesSDK, played: Namespace, tmp_path: Path
    ) -> None:
        """Lesson 6.4: three calls for each job."""
        played.nodes.add("one")
        many = [submit(sdk) for _ in range(25)]
        for job in many:
            [pod] = played.nodes.wait_for_pods(f"tao-job-{job.id}")
            played.nodes.start(pod)
        ids = [job.id for job in many]

        def all_ready_in_one_call() -> bool:
            # By a client that knows nothing yet. A Job says late how many of its pods are ready.
            with KubernetesSDK(state_file=tmp_path / "state.json") as another:
                states = {status.status for status in another.get_statuses(ids).values()}
                return states == {"Running"} and len(another.backend.transport.calls) == 1

        eventually(all_ready_in_one_call)

    def test_who_waits_does_not_ask(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.nodes.add("one")
        job = submit(sdk)
        [pod] = played.nodes.wait_for_pods(f"tao-job-{job.id}")
        played.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        with contextlib.closing(sdk.backend.backoff([job.id])) as pauses:
            pauses.pause(0.01)
            calls = sdk.backend.transport.calls
            before = len(calls)
            played.nodes.finish(pod)
            looks = 0
            while not sdk.look([job.id])[job.id].terminal:
                pauses.pause(60)
                looks += 1
        # Its end is three changes: of the pod's count, of what is to become of it, and the end.
        assert looks <= 5
        assert len(calls) - before <= 2 * (looks + 1) + 2


class TestEnds:
    @pytest.mark.seed("003.5")
    @pytest.mark.seed("003.8")
    def test_out_of_memory(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job = self._ended(sdk, played, 137, "OOMKilled")
        assert job.status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["err_class"] == "ERR_OOM"
        [event] = analysis["job_failure_by_node_event"]
        assert event["node_event_name"] == "OOMKilled"

    def test_evicted(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job = self._ended(
            sdk, played, 137, pod_reason="Evicted", message="The node was low on resource: memory."
        )
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["err_class"], analysis["retriable"]) == ("ERR_INFRA", True)

    def test_preempted(self, sdk: KubernetesSDK, played: Namespace) -> None:
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "preempting to accommodate a higher priority pod",
        }
        job = self._ended(sdk, played, 143, conditions=[target])
        analysis = job.explain()
        assert analysis is not None
        assert analysis["err_class"] == "ERR_PREEMPTED"

    def test_deadline_of_a_job_that_never_ran(self, sdk: KubernetesSDK, played: Namespace) -> None:
        job = submit(sdk, active_deadline_seconds=1)
        eventually(lambda: played.nodes.reap() or job.refresh().status == "Error")
        assert seen(job, "active longer than specified deadline")
        analysis = job.explain()
        assert analysis is not None
        assert analysis["err_class"] == "ERR_TIMEOUT"

    @pytest.mark.seed("003.6")
    def test_cancelling_waits_for_the_pods(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.nodes.add("one")
        job = submit(sdk, env_vars={"A": SECRET})
        [pod] = played.nodes.wait_for_pods(f"tao-job-{job.id}")
        played.nodes.start(pod)
        eventually(lambda: job.refresh().status == "Running")
        found: list[bool] = []
        canceller = threading.Thread(target=lambda: found.append(job.cancel()))
        canceller.start()
        eventually(lambda: seen(job, "being stopped"))
        assert job.status == "Running", "its pod is still there"
        eventually(lambda: played.nodes.reap() or not canceller.is_alive())
        assert found == [True]
        assert job.refresh().status == "Canceled"
        assert jobs(played) == []
        eventually(lambda: not objects(played, "secrets"))

    def _ended(self, sdk: KubernetesSDK, played: Namespace, *how: Any, **more: Any) -> Job:
        played.nodes.add("one")
        job = submit(sdk)
        [pod] = played.nodes.wait_for_pods(f"tao-job-{job.id}")
        played.nodes.finish(pod, *how, **more)
        job.wait(timeout=60)
        return job


class TestPreflight:
    @pytest.mark.seed("003.10")
    def test_rights(self, sdk: KubernetesSDK, played: Namespace) -> None:
        api = sdk.backend.transport
        assert all(found.ok for found in preflight.permissions(api, played.name))
        refused = [found for found in preflight.permissions(api, "kube-system") if not found.ok]
        assert any("create jobs in kube-system" in found.what for found in refused)
        assert any("submit jobs" in found.detail for found in refused)

    def test_claims(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.add_volume("data")
        api = sdk.backend.transport
        there, missing = preflight.claims(api, played.name, ["data", "nowhere"])
        assert there.ok
        assert (missing.ok, missing.detail) == (False, "it does not exist; create it first")

    def test_namespace_and_gpus(
        self, sdk: KubernetesSDK, played: Namespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", str(played.kubeconfig(ADMIN)))
        api = sdk.backend.transport
        assert preflight.namespace(api, played.name).ok
        assert not preflight.namespace(api, "no-such-namespace").ok
