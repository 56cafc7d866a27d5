"""The commands of the seed documents that name setup-nvidia-gpu-host.sh, as they stand there.

They run after `tao-sdk bank install`, on a machine of fakes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tao_sdk
from lab.gpu_host import GpuHost

KUBERNETES = r"""
# 0. GPU node host runtime.
# Run this on each self-managed GPU worker node or in the node image build.
# Set TAO_K8S_SKIP_NODE_RUNTIME_CHECK=1 only when using managed GPU nodes whose
# driver/toolkit lifecycle is owned by the cloud provider or GPU Operator policy.
if [ "${TAO_K8S_SKIP_NODE_RUNTIME_CHECK:-0}" != "1" ]; then
TAO_SKILL_BANK_ROOT="${TAO_SKILL_BANK_ROOT:-$PWD}"
SETUP_SCRIPT="${TAO_SKILL_BANK_ROOT}/skills/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"
[ -x "$SETUP_SCRIPT" ] || SETUP_SCRIPT="${TAO_SKILL_BANK_ROOT}/platform/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"
bash "$SETUP_SCRIPT" --backend kubernetes --check-only || {
echo "MISSING: TAO Kubernetes GPU node runtime is not ready."
echo "For self-managed GPU nodes, run after user approval:"
echo " bash \"$SETUP_SCRIPT\" --backend kubernetes --install --yes"
echo "For managed clusters, verify the node image/GPU Operator policy installs driver 580 and toolkit 1.19.0, then set TAO_K8S_SKIP_NODE_RUNTIME_CHECK=1."
exit 1
}
fi
# 1. SDK + kubernetes extra installed.
# nvidia-tao-sdk is on public PyPI; pin lives in versions.yaml (wheels.tao_sdk_kubernetes).
PIN=$("${TAO_SKILL_BANK_PATH:?}/scripts/resolve_versions_key.py" wheels.tao_sdk_kubernetes)
python -c "import tao_sdk" 2>/dev/null || {
echo "MISSING: nvidia-tao-sdk not installed. Run:"
echo " pip install \"$PIN\""
exit 1
}
python -c "import kubernetes" 2>/dev/null || {
echo "MISSING: kubernetes extra not installed. Run:"
echo " pip install \"$PIN\""
exit 1
}
# 2. Cluster reachable (kubeconfig OR in-cluster service account)
python -c "from kubernetes import config; config.load_kube_config()" 2>/dev/null || \
python -c "from kubernetes import config; config.load_incluster_config()" 2>/dev/null || {
echo "MISSING: no kubeconfig at ~/.kube/config and not running in a pod."
echo "Configure kubectl (e.g., 'aws eks update-kubeconfig --name my-cluster') or set \$KUBECONFIG."
exit 1
}
# 3. NVIDIA GPU Operator present (soft check — warn if kubectl available, don't fail)
if command -v kubectl >/dev/null 2>&1; then
gpu=$(kubectl get nodes -o jsonpath='{range .items[*]}{.status.allocatable.nvidia\.com/gpu}{"\n"}{end}' 2>/dev/null | grep -v '^$' | head -1)
if [ -z "$gpu" ] || [ "$gpu" = "0" ]; then
echo "WARN: no nvidia.com/gpu allocatable on this cluster."
echo "Install the NVIDIA GPU Operator before submitting GPU jobs:"
echo " https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html"
fi
fi
"""  # noqa: E501 - as it stands there
DOCKER = r"""
# Host GPU runtime: NVIDIA driver 580, CUDA 13.0, NVIDIA Container Toolkit 1.19.0.
TAO_SKILL_BANK_ROOT="${TAO_SKILL_BANK_ROOT:-$PWD}"
SETUP_SCRIPT="${TAO_SKILL_BANK_ROOT}/skills/platform/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"
bash "$SETUP_SCRIPT" --backend docker --check-only || {
echo "MISSING: TAO GPU host runtime is not ready."
echo "After user approval, run:"
echo " bash \"$SETUP_SCRIPT\" --backend docker --install --yes"
exit 1
}
# Mode 1 — direct docker (no Python). All you need is docker + the GPU runtime.
docker info >/dev/null 2>&1 || { echo "MISSING: docker daemon not reachable. Start Docker."; exit 1; }
docker run --rm --runtime=nvidia --gpus all ubuntu nvidia-smi >/dev/null 2>&1 || {
echo "MISSING: NVIDIA Container Toolkit not installed/configured. See:"
echo " bash \"$SETUP_SCRIPT\" --backend docker --install --yes"
exit 1
}
# Mode 2 — TAO SDK wrapper. Adds Job handles, S3 I/O wrapping, ActionWorkflow.
# Skip this block if Mode 1 is sufficient for the user's request.
# When Mode 2 is in scope, read `tao-skill-bank:tao-run-platform` for the DockerSDK
# kwarg contract, build_entrypoint, and monitoring patterns.
# nvidia-tao-sdk is on public PyPI; pin lives in versions.yaml (wheels.tao_sdk_docker).
PIN=$("${TAO_SKILL_BANK_PATH:?}/scripts/resolve_versions_key.py" wheels.tao_sdk_docker)
python -c "import tao_sdk" 2>/dev/null || python -m pip install "$PIN"
python -c "import docker" 2>/dev/null || python -m pip install "$PIN"
python -c "import tao_sdk, docker"
# DockerSDK attaches every job container to ${DOCKER_NETWORK:-tao_default}.
# Create the network if it is missing; the operation is local and idempotent.
DOCKER_NETWORK_NAME="${DOCKER_NETWORK:-tao_default}"
docker network inspect "$DOCKER_NETWORK_NAME" >/dev/null 2>&1 || \
docker network create "$DOCKER_NETWORK_NAME" >/dev/null
"""  # noqa: E501 - as it stands there
INSTALL_ON_A_NODE = (
    "bash skills/platform/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh "
    "--backend kubernetes --install --yes"
)
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
clusters: [{name: lab, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: lab, user: {}}]
"""
READY = ("driver", "cuda", "toolkit", "docker", "runtime")


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    folder = tmp_path / "bank"
    words = [sys.executable, "-m", "tao_sdk.cli", "bank", "install", str(folder)]
    subprocess.run(words, check=True, capture_output=True, timeout=60, env=os.environ)
    return folder


@pytest.fixture
def host(tmp_path: Path, bank: Path) -> GpuHost:
    host = GpuHost(tmp_path / "host")
    source = Path(tao_sdk.__file__).parents[1]
    host.program("python", f'PYTHONPATH="{source}" exec "{sys.executable}" "$@"')
    host.environment["TAO_SKILL_BANK_PATH"] = str(bank)
    return host


def with_cluster(host: GpuHost, folder: Path) -> None:
    (folder / "kubeconfig").write_text(KUBECONFIG)
    host.environment["KUBECONFIG"] = str(folder / "kubeconfig")


@pytest.mark.seed("003.10")
@pytest.mark.parametrize("place", ["root", "here"])
def test_a_ready_node(host: GpuHost, bank: Path, tmp_path: Path, place: str) -> None:
    host.have("driver", "cuda", "toolkit")
    with_cluster(host, tmp_path)
    named = {"TAO_SKILL_BANK_ROOT": str(bank)} if place == "root" else {}
    outcome = host.shell(KUBERNETES, tmp_path if named else bank, named)
    assert outcome.code == 0, outcome
    assert outcome.lines == [
        "OK: NVIDIA driver 580.95.05",
        "OK: CUDA 13.0 in /usr/local/cuda-13.0",
        "OK: NVIDIA Container Toolkit 1.19.0",
        "WARN: there is no kubectl: whether the cluster offers nvidia.com/gpu is not known",
        "INFO: ready for TAO jobs with kubernetes",
    ]


@pytest.mark.seed("003.10")
@pytest.mark.parametrize("probe", ["skills", "platform"])
def test_a_node_that_is_not_ready(host: GpuHost, bank: Path, tmp_path: Path, probe: str) -> None:
    """Both places where the seed looks for the script have it; what it then says can be run."""
    if probe == "platform":
        shutil.rmtree(bank / "skills/tao-setup-nvidia-gpu-host")
    with_cluster(host, tmp_path)
    outcome = host.shell(KUBERNETES, bank)
    assert outcome.code == 1
    script = f"{bank}/{probe}/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"
    command = f'bash "{script}" --backend kubernetes --install --yes'
    assert outcome.lines[5:8] == [
        "MISSING: TAO Kubernetes GPU node runtime is not ready.",
        "For self-managed GPU nodes, run after user approval:",
        f" {command}",
    ]
    assert host.record == []
    assert host.shell(command, tmp_path).code == 0
    assert host.shell(KUBERNETES, bank).code == 0


@pytest.mark.seed("003.10")
@pytest.mark.parametrize("value", ["1", "0", "", "yes"])
def test_the_node_check_is_skipped_by_1_only(
    host: GpuHost, bank: Path, tmp_path: Path, value: str
) -> None:
    with_cluster(host, tmp_path)
    outcome = host.shell(KUBERNETES, bank, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": value})
    if value == "1":
        assert (outcome.code, outcome.lines) == (0, [])
    else:
        assert outcome.code == 1
        assert outcome.lines[0].startswith("MISSING: NVIDIA driver 580")


@pytest.mark.seed("003.10")
@pytest.mark.parametrize("gpus", ["8", "0", ""])
def test_a_cluster_without_gpus_is_warned_about(
    host: GpuHost, bank: Path, tmp_path: Path, gpus: str
) -> None:
    with_cluster(host, tmp_path)
    host.program("kubectl", f"echo {gpus}")
    outcome = host.shell(KUBERNETES, bank, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": "1"})
    assert outcome.code == 0
    warned = "WARN: no nvidia.com/gpu allocatable on this cluster."
    assert outcome.lines[:1] == ([] if gpus == "8" else [warned])


@pytest.mark.seed("003.10")
def test_no_cluster_at_all(host: GpuHost, bank: Path) -> None:
    outcome = host.shell(KUBERNETES, bank, {"TAO_K8S_SKIP_NODE_RUNTIME_CHECK": "1"})
    assert outcome.code == 1
    assert outcome.lines[0] == "MISSING: no kubeconfig at ~/.kube/config and not running in a pod."


@pytest.mark.seed("003.10")
def test_a_node_is_prepared(host: GpuHost, bank: Path) -> None:
    outcome = host.shell(INSTALL_ON_A_NODE, bank)
    assert outcome.code == 0
    assert outcome.lines[-1] == "INFO: ready for TAO jobs with kubernetes"


@pytest.mark.seed("004.14")
def test_a_docker_host(host: GpuHost, bank: Path, tmp_path: Path) -> None:
    """Not ready; installed by the command that the block prints; then the whole block passes."""
    named = {"TAO_SKILL_BANK_ROOT": str(bank)}
    outcome = host.shell(DOCKER, tmp_path, named)
    assert outcome.code == 1
    script = "skills/platform/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"
    command = f'bash "{bank}/{script}" --backend docker --install --yes'
    assert outcome.lines[-3:] == [
        "MISSING: TAO GPU host runtime is not ready.",
        "After user approval, run:",
        f" {command}",
    ]
    assert host.record == []
    assert host.shell(command, tmp_path).code == 0
    outcome = host.shell(DOCKER, tmp_path, named)
    assert outcome.code == 0, outcome
    assert outcome.lines[-1] == "INFO: ready for TAO jobs with docker"


@pytest.mark.seed("004.14")
def test_a_docker_host_from_within_the_bank(host: GpuHost, bank: Path) -> None:
    host.have(*READY)
    assert host.shell(DOCKER, bank).code == 0


def test_an_installed_bank_may_be_moved(host: GpuHost, bank: Path, tmp_path: Path) -> None:
    moved = bank.rename(tmp_path / "moved")
    for folder in ("skills", "platform", "skills/platform"):
        script = moved / folder / "tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"
        assert os.access(script, os.X_OK)
        assert host.shell(f'"{script}" --help', tmp_path).code == 0
