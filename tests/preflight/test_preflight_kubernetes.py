"""Preflight of a real Kubernetes control plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from launches import Broken, Launch, assert_names_it, assert_passes, broken, isolate

from lab.kubernetes import ADMIN, Namespace
from lab.kubernetes.fake_nodes import SELECTOR

H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/cuda.driver-version.major": "580",
}
TOO_MANY = 4096


class ClusterLaunch(Launch):
    """One namespace of the cluster."""

    namespace: Namespace

    def as_user(self, kubeconfig: Path) -> None:
        self.set("KUBECONFIG", str(kubeconfig))


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, played: Namespace) -> ClusterLaunch:
    isolate(monkeypatch, tmp_path)
    launch = ClusterLaunch(monkeypatch, tmp_path, platform="k8s", gpu_count=4)
    launch.namespace = played
    launch.as_user(played.kubeconfig())
    return launch


@pytest.mark.seed("001.11", "003.10")
def test_all_is_well_for_a_user_of_the_namespace(launch: ClusterLaunch) -> None:
    found = assert_passes(launch.run())
    assert found["kubernetes.access"].message.startswith("Kubernetes v1.")
    assert launch.namespace.name in found["kubernetes.permissions"].message
    assert "you may not list nodes" in found["kubernetes.gpus"].message


@pytest.mark.seed("001.11", "003.10")
def test_all_is_well_for_an_administrator(launch: ClusterLaunch) -> None:
    launch.namespace.nodes.add("big", gpus=8, labels=H100)
    launch.namespace.add_volume("data")
    launch.as_user(launch.namespace.kubeconfig(ADMIN))
    launch.path("train", "pvc://data/train")
    launch.ask(confirmed_mounts=True)
    found = assert_passes(launch.run())
    assert found["kubernetes.claim:data"].status == "passed"
    assert found["kubernetes.gpus"].status == "passed"
    assert found["path:train"].status == "warning", "taken on somebody's word"
    made = launch.namespace.api.get(launch.namespace.jobs)["items"]
    assert (made, launch.namespace.pods()) == ([], [])


@pytest.mark.seed("003.10")
def test_the_check_of_nodes_can_be_left_to_others(launch: ClusterLaunch) -> None:
    launch.namespace.nodes.add("old", gpus=8, labels={**H100, **_driver("535")})
    launch.as_user(launch.namespace.kubeconfig(ADMIN))
    found = assert_passes(launch.run())["kubernetes.node_runtime"]
    assert found.status == "warning"
    assert f"{launch.namespace.name}-old (535)" in found.message
    assert "--backend kubernetes --check-only" in found.remedy
    launch.set("TAO_K8S_SKIP_NODE_RUNTIME_CHECK", "1")
    assert assert_passes(launch.run())["kubernetes.node_runtime"].status == "skipped"


def _driver(major: str) -> dict[str, str]:
    return {"nvidia.com/cuda.driver-version.major": major}


def _forbidden(launch: ClusterLaunch) -> None:
    launch.as_user(launch.namespace.service_account("looker", "view"))


def _of_administrator(then: Callable[[ClusterLaunch], object]) -> Callable[[ClusterLaunch], None]:
    def change(launch: ClusterLaunch) -> None:
        launch.namespace.nodes.add("one", gpus=8, labels=H100)
        launch.as_user(launch.namespace.kubeconfig(ADMIN))
        then(launch)

    return change


def _away(launch: ClusterLaunch) -> None:
    text = launch.namespace.kubeconfig().read_text()
    cluster = launch.namespace.cluster.endpoints
    (launch.folder / "kubeconfig").write_text(text.replace(f":{cluster.api}", ":1"))
    launch.as_user(launch.folder / "kubeconfig")


def _claim(launch: ClusterLaunch) -> None:
    launch.path("train", "pvc://nowhere/train")
    launch.ask(confirmed_mounts=True)


@pytest.mark.seed("001.9", "001.11", "003.10")
@broken(
    Broken(
        "no kubeconfig",
        lambda it: it.set("KUBECONFIG", "/no/such/file"),
        "kubernetes.access",
        "set KUBECONFIG",
    ),
    Broken(
        "no such context",
        lambda it: it.set("TAO_K8S_CONTEXT", "moon"),
        "kubernetes.access",
        "moon",
    ),
    Broken("API server away", _away, "kubernetes.access", "kubectl get nodes"),
    Broken(
        "no such namespace",
        _of_administrator(lambda it: it.set("TAO_K8S_NAMESPACE", "no-such-namespace")),
        "kubernetes.namespace",
        "kubectl create namespace no-such-namespace",
    ),
    Broken("no right to make jobs", _forbidden, "kubernetes.permissions", "create jobs in"),
    Broken(
        "more GPUs than a node has",
        _of_administrator(lambda it: it.ask(gpu_count=TOO_MANY)),
        "kubernetes.gpus",
        f"{TOO_MANY} GPUs on one node",
    ),
    Broken(
        "more nodes than there are",
        _of_administrator(lambda it: it.ask(gpu_count=8, num_nodes=TOO_MANY)),
        "kubernetes.gpus",
        "the nodes that fit are too few",
    ),
    Broken("claim missing", _claim, "kubernetes.claim:nowhere", "create it first"),
    Broken(
        "mounted path without proof",
        lambda it: it.path("train", "/mnt/data/train"),
        "path:train",
        "--confirm-mounts",
    ),
    Broken(
        "volume without proof",
        lambda it: (it.namespace.add_volume("data"), it.path("train", "pvc://data/train")),
        "path:train",
        "is a mounted path",
    ),
)
def test_the_one_thing_broken_is_named(launch: ClusterLaunch, variant: Broken) -> None:
    assert_names_it(launch, variant)


def test_gpu_nodes_that_keep_others_away_are_open_to_the_job(launch: ClusterLaunch) -> None:
    """Providers taint them; jobs with GPUs tolerate that."""
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    launch.namespace.nodes.add("kept", labels=H100, taints=[taint])
    launch.as_user(launch.namespace.kubeconfig(ADMIN))
    launch.ask(options={"node_selector": {SELECTOR: launch.namespace.name}})
    assert assert_passes(launch.run())["kubernetes.gpus"].status == "passed"
    launch.ask(options={"node_selector": {SELECTOR: "nobody"}})
    [found] = launch.run().failures
    assert found.name == "kubernetes.gpus"
    assert f"has not the label {SELECTOR}=nobody" in found.message


def test_the_namespace_of_the_job_is_what_is_looked_at(launch: ClusterLaunch) -> None:
    launch.set("TAO_K8S_NAMESPACE", "no-such-namespace")
    launch.ask(options={"namespace": launch.namespace.name})
    found = assert_passes(launch.run())
    assert launch.namespace.name in found["kubernetes.namespace"].message
