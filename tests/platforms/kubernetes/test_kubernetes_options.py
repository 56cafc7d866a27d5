"""Keywords are checked before anything exists, and say where and what instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes_objects import objects, request

from tao_sdk.errors import CredentialError, ValidationError
from tao_sdk.platforms.kubernetes import KubernetesSDK, overlay
from tao_sdk.platforms.kubernetes.plan import check_claim, refuse_impossible


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"namespace": "Not_A_Namespace"}, "namespace: "),
        ({"image_pull_secret": ["a", "B!"]}, r"image_pull_secret\[1\]"),
        ({"node_selector": {"gpu type": "h100"}}, "node_selector: 'gpu type'"),
        ({"node_selector": {"gpu-type": "a b"}}, "node_selector.gpu-type"),
        ({"labels": {"tao-sdk-job-id": "x"}}, "labels.tao-sdk-job-id: it is the SDK's own"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "x"}}, "use queue="),
        ({"tolerations": [{"operator": "Maybe"}]}, r"tolerations\[0\].operator"),
        ({"tolerations": ["gpu"]}, r"tolerations\[0\]"),
        ({"resources": {"memory": "lots"}}, "resources.memory"),
        ({"resources": {"nvidia.com/gpu": 1}}, "gpu_count="),
        ({"resources": {"gpus": 1}}, "resources.gpus"),
        ({"shm_size": "16 GB"}, "shm_size"),
        ({"retries": -1}, "retries"),
        ({"node_retries": True}, "node_retries"),
        ({"ttl_seconds": -1}, "ttl_seconds"),
        ({"run_as_user": "root"}, "run_as_user"),
        ({"fs_group": 1 << 31}, "fs_group"),
        ({"env_from": ["volume://a"]}, r"env_from\[0\]: 'volume://a' is not secret://name"),
        ({"active_deadline_seconds": 0}, "active_deadline_seconds"),
        ({"host_network": "yes"}, "host_network"),
        ({"mounts": ["s3://bucket:/data"]}, r"mounts\[0\]: s3://bucket cannot be mounted"),
        ({"mounts": ["./data:/data"]}, r"mounts\[0\]: ./data is a relative"),
        ({"mounts": ["pvc://data"]}, "must be an absolute path in the container"),
        ({"mounts": ["pvc://a:/data", "pvc://b:/data"]}, "/data is the target of more than one"),
        ({"mounts": ["pvc://a/../b:/data"]}, r"has '\.\.' in it"),
        ({"mounts": ["hostpath://data:/data"]}, "three slashes"),
        ({"mounts": ["nfs://server:/data"]}, "nfs://server/export"),
        ({"mounts": ["configmap://a/b:/data"]}, "has no folders"),
    ],
)
def test_what_cannot_be_right_is_refused(keywords: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        request(**keywords)


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"image": ""}, "image: "),
        ({"image": "bad image"}, "image: 'bad image'"),
        (
            {"env_vars": {f"BIG{number}": "x" * 100_000 for number in range(11)}},
            "do not fit into a Secret",
        ),
        ({"gang": True}, "gang: .*queue="),
        ({"retries": 1, "node_retries": 1}, "node_retries: .*leave one out"),
        ({"restricted": True, "run_as_user": 0}, "run_as_user: .*does not allow root"),
    ],
)
def test_what_no_cluster_could_run_is_refused(keywords: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        refuse_impossible(request(**keywords))


@pytest.mark.seed("003.1")
@pytest.mark.seed("003.8")
def test_credentials_are_asked_for_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson F14: not when an SDK is made; and then it is said what to do."""
    for name in ("KUBECONFIG", "TAO_K8S_CONTEXT", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    sdk = KubernetesSDK(state_file=tmp_path / "state.json")
    assert any(option.name == "node_selector" for option in sdk.options)
    assert sdk.list_jobs() == []
    with pytest.raises(CredentialError, match="KUBECONFIG"):
        sdk.create_job(image="trainer:1", command="true")
    assert sdk.list_jobs() == []


class TestOverlay:
    @pytest.mark.parametrize(
        ("patch", "path"),
        [
            ({"metadata": {"name": "x"}}, "overlay.metadata.name"),
            ({"metadata": {"labels": {"tao-sdk-token": "x"}}}, "overlay.metadata.labels.tao-sdk"),
            ({"metadata": {"labels": None}}, "overlay.metadata.labels"),
            ({"spec": {"backoffLimit": 3}}, "overlay.spec.backoffLimit: .*retries="),
            ({"spec": {"suspend": True}}, "overlay.spec.suspend"),
            ({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}, "restartPolicy"),
            ({"spec": {"template": {"spec": {"containers": []}}}}, "spec.containers"),
            ({"spec": None}, "overlay.spec"),
            ({"status": {"active": 1}}, "overlay.status"),
        ],
    )
    def test_what_the_sdk_relies_on_is_refused(self, patch: Any, path: str) -> None:
        with pytest.raises(ValidationError, match=path):
            request(overlay=patch)

    @pytest.mark.parametrize("key", ["image", "command", "args", "envFrom"])
    def test_the_container_stays_ours(self, key: str) -> None:
        container = {"name": "tao", key: ["x"]}
        with pytest.raises(ValidationError, match=rf"containers\[tao\].{key}"):
            request(overlay={"spec": {"template": {"spec": {"containers": [container]}}}})

    def test_variables_of_the_sdk_stay_as_they_are(self) -> None:
        container = {"name": "tao", "env": [{"name": "TAO_JOB_ID", "value": "x"}]}
        with pytest.raises(ValidationError, match=r"env\[TAO_JOB_ID\]"):
            request(overlay={"spec": {"template": {"spec": {"containers": [container]}}}})

    def test_it_is_merged_into_the_job(self) -> None:
        patch = {
            "metadata": {"labels": {"cost": "42"}},
            "spec": {
                "ttlSecondsAfterFinished": 60,
                "template": {
                    "spec": {
                        "runtimeClassName": "nvidia",
                        "containers": [
                            {"name": "tao", "securityContext": {"runAsUser": 1000}},
                            {"name": "sidecar", "image": "logger:1"},
                        ],
                        "volumes": [{"name": "scratch", "emptyDir": {}}],
                    }
                },
            },
        }
        made = objects(overlay=patch).job
        spec = made["spec"]["template"]["spec"]
        assert made["spec"]["ttlSecondsAfterFinished"] == 60
        assert made["metadata"]["labels"]["cost"] == "42"
        assert made["metadata"]["labels"]["tao-toolkit"] == "true"
        assert spec["runtimeClassName"] == "nvidia"
        assert [one["name"] for one in spec["containers"]] == ["tao", "sidecar"]
        assert spec["containers"][0]["image"] == "busybox:1"
        assert spec["containers"][0]["securityContext"] == {"runAsUser": 1000}
        assert {"name": "scratch", "emptyDir": {}} in spec["volumes"]
        assert any(one["name"] == "tao-shm" for one in spec["volumes"])

    def test_none_removes(self) -> None:
        assert overlay.merge({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == {"a": {"c": 2}}


def claim(*modes: str, phase: str = "Bound") -> dict[str, Any]:
    return {
        "metadata": {"name": "data"},
        "spec": {"accessModes": list(modes)},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("found", "nodes", "writes", "told"),
    [
        (claim("ReadWriteOnce"), 2, True, "one node only"),
        (claim("ReadWriteOncePod"), 2, False, "one node only"),
        (claim("ReadOnlyMany"), 1, True, "is read-only"),
        (claim("ReadWriteMany", phase="Lost"), 1, True, "lost its volume"),
    ],
)
def test_claims_that_the_pods_could_not_mount(
    found: Any, nodes: int, writes: bool, told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        check_claim("mounts[0]", found, nodes, writes=writes)


def test_claims_that_fit() -> None:
    check_claim("mounts[0]", claim("ReadWriteOnce"), 1, writes=True)
    check_claim("mounts[0]", claim("ReadWriteMany"), 4, writes=True)
    check_claim("mounts[0]", claim("ReadOnlyMany"), 4, writes=False)
    check_claim("mounts[0]", claim("ReadWriteOnce", phase="Pending"), 1, writes=True)
