"""Settings of pods that a cluster enforces: users, environments, retries after node failures."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_sdk import LONG, asked, explained, job_name, message_of, opened, pods_of, reap_until

from lab.docker.images import BUSYBOX
from lab.kubernetes import Namespace, Object
from tao_sdk.errors import ValidationError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK

TAKEN = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


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


def complete(sdk: KubernetesSDK, job: Job) -> list[str]:
    """Insist on success; the log."""
    assert job.wait(timeout=LONG).status == "Complete", list(job.logs())
    return list(job.logs())


def test_a_namespace_that_allows_no_root(real_sdk: KubernetesSDK, real: Namespace) -> None:
    """Neither the job nor the Job that looks at its volume is refused."""
    real.api.patch(
        real.path, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    folder = real.add_volume("data")
    folder.chmod(0o777)
    job = real_sdk.create_job(
        image=BUSYBOX,
        command="id -u; id -G; touch /results/mine",
        gpu_count=0,
        restricted=True,
        run_as_user=1000,
        run_as_group=1001,
        fs_group=1002,
        mounts=["pvc://data:/results"],
    )
    assert complete(real_sdk, job) == ["1000", "1001 1002"]
    assert "mine" in real_sdk.list_path("pvc://data")


def test_environment_from_existing_objects(real_sdk: KubernetesSDK, real: Namespace) -> None:
    word = base64.b64encode(b"of-a-secret").decode()
    secret = {"kind": "Secret", "metadata": {"name": "tokens"}, "data": {"TOKEN": word, "A": word}}
    real.api.create(f"{real.path}/secrets", secret)
    values = {"kind": "ConfigMap", "metadata": {"name": "defaults"}, "data": {"B": "of-a-map"}}
    real.api.create(f"{real.path}/configmaps", values)
    job = real_sdk.create_job(
        image=BUSYBOX,
        command='echo "$A $B"; echo "log has $TOKEN" >&2; exit 3',
        gpu_count=0,
        env_from=["tokens", "configmap://defaults"],
        env_vars={"A": "mine"},
    )
    assert job.wait(timeout=LONG).status == "Error"
    assert "mine of-a-map" in list(job.logs()), "the order of stdout and stderr is the node's"
    told = str(explained(job))
    assert "log has" in told
    assert "of-a-secret" not in told, "values of existing Secrets are left out too"


def test_what_is_not_there_is_refused(sdk: KubernetesSDK) -> None:
    with pytest.raises(ValidationError, match=r"env_from\[0\]: there is no absent among the sec"):
        sdk.plan(**asked(env_from=["absent"]))
    with pytest.raises(ValidationError, match=r"env_from\[0\]: there is no absent among the conf"):
        sdk.plan(**asked(env_from=["configmap://absent"]))


def test_a_token_only_if_it_is_asked_for(real_sdk: KubernetesSDK) -> None:
    look = "ls /var/run/secrets/kubernetes.io/serviceaccount/token || echo none"
    common = {"image": BUSYBOX, "command": f"{look} 2>&1", "gpu_count": 0}
    assert complete(real_sdk, real_sdk.create_job(**common))[-1] == "none"
    asked_for = real_sdk.create_job(**common, service_account_token=True)
    assert complete(real_sdk, asked_for)[-1].endswith("/token")


def next_pod(namespace: Namespace, job: Job, before: Object) -> Object:
    def found() -> Object | None:
        return next(
            (
                pod
                for pod in namespace.pods(job_name(job))
                if pod["metadata"]["uid"] != before["metadata"]["uid"]
                and pod["spec"].get("nodeName")
            ),
            None,
        )

    pod = eventually(found, LONG)
    assert pod is not None
    return pod


class TestNodeRetries:
    def test_a_failed_node_is_another_attempt(self, sdk: KubernetesSDK, played: Namespace) -> None:
        played.nodes.add("one")
        job = sdk.create_job(**asked(node_retries=1))
        [first] = pods_of(played, job)
        played.nodes.finish(first, 143, conditions=[TAKEN])
        second = next_pod(played, job, first)
        [attempt] = [
            one for one in second["spec"]["containers"][0]["env"] if one["name"] == "TAO_FAILURES"
        ]
        assert "job-index-failure-count" in str(attempt)
        assert job.refresh().status != "Error"
        played.nodes.finish(second)
        assert job.wait(timeout=LONG).status == "Complete"

    def test_a_program_that_fails_is_not_tried_again(
        self, sdk: KubernetesSDK, played: Namespace
    ) -> None:
        played.nodes.add("one")
        job = sdk.create_job(**asked(node_retries=5))
        [pod] = pods_of(played, job)
        played.nodes.finish(pod, 3)
        reap_until(played, lambda: job.refresh().status == "Error")
        assert message_of(job) == "ended with exit code 3"
        assert len(played.pods(job_name(job))) == 1
