"""The failures that the seed documents name, each with its cause and what to do about it.

The evidence is that of the corpus. What a platform itself has to notice (a kubeconfig that does
not work, a conversion that takes too long) is not here: that is proven with the platform.
"""

from __future__ import annotations

import pytest
from failure_corpus import read_cases

from tao_sdk.failures import explain

CASES = {case.name: case.evidence for case in read_cases()}

IMAGE_PULL_DENIED = ("image/kubelet_401", "the registry refused the image", "NGC_KEY for nvcr.io")
IMAGE_PULL_BACK_OFF = ("image/back_off_alone", "could not be pulled", "pull it by hand")
NO_FREE_GPUS = ("scheduler/unschedulable", "Insufficient nvidia.com/gpu", "ask for fewer")


def expect(case: str, cause: str, fix: str) -> None:
    found = explain(CASES[case])
    assert cause in found["cause"]
    assert fix in found["suggestion"]


@pytest.mark.seed("000.23")
@pytest.mark.parametrize(
    ("case", "cause", "fix"),
    [
        IMAGE_PULL_DENIED,
        IMAGE_PULL_BACK_OFF,
        ("image/kubelet_404", "no such image: nvcr.io/", "check registry, name and tag"),
        NO_FREE_GPUS,
        ("image/claim_missing", "tao-data", "correct the mount"),
        ("hub/real_s3_nocred", "no S3 credentials are set", "AWS_ACCESS_KEY_ID"),
        ("hub/ngc_key", "NGC refused access", "NGC_KEY"),
        ("hub/real_hf_gated401", "is gated", "HF_TOKEN"),
    ],
)
def test_image_pulls_waiting_for_ever_and_missing_credentials(
    case: str, cause: str, fix: str
) -> None:
    expect(case, cause, fix)


@pytest.mark.seed("002.17")
@pytest.mark.parametrize(
    ("case", "cause", "fix"),
    [
        ("hub/ssh_key", "SSH could not log in", "pass a token or a key"),
        ("image/no_pyxis", "Pyxis is not installed", "ask the administrators for Pyxis"),
        ("scheduler/node_fail", "the node failed or was lost", "run again on another node"),
        ("gpu/xid_79", "has fallen off the bus", "run again on another node"),
    ],
)
def test_slurm_login_pyxis_and_bad_nodes(case: str, cause: str, fix: str) -> None:
    expect(case, cause, fix)


@pytest.mark.seed("003.8")
@pytest.mark.parametrize(
    ("case", "cause", "fix"),
    [
        IMAGE_PULL_DENIED,
        IMAGE_PULL_BACK_OFF,
        NO_FREE_GPUS,
        ("image/secret_missing", "is not in the cluster: tao-job-env", "create it in the job's"),
        ("memory/kubernetes_oomkilled", "the memory limit was reached", "ask for more memory"),
    ],
)
def test_kubernetes_pulls_pending_pods_and_memory(case: str, cause: str, fix: str) -> None:
    expect(case, cause, fix)


@pytest.mark.seed("004.12")
@pytest.mark.parametrize(
    ("case", "cause", "fix"),
    [
        ("image/daemon_down", "the Docker daemon does not answer", "correct DOCKER_HOST"),
        ("gpu/no_toolkit", "container toolkit is missing", "install or repair nvidia-container"),
        ("image/docker_unauthorised", "the registry refused the image", "docker login"),
        ("image/entrypoint_missing", "could not be started: no tao in the image", "entrypoint"),
        ("image/bind_source", "not there: /data/coco", "correct the mount"),
    ],
)
def test_docker_daemon_gpus_login_start_and_paths(case: str, cause: str, fix: str) -> None:
    expect(case, cause, fix)
