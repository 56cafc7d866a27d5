"""setup-nvidia-gpu-host.sh in a Debian of its own, with real apt, dpkg, gpg and curl.

What it installs are stand-ins from signed repositories in files; there is no network.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.debian_root import (
    DebianRoot,
    SigningKey,
    make_package,
    make_repository,
    require_debian,
)
from lab.gpu_host import SCRIPT

SH = "#!/bin/sh\n"
NVIDIA_SMI = f"{SH}echo 580.95.05\n"
NVCC = f'{SH}echo "Cuda compilation tools, release 13.0, V13.0.48"\n'
# Docker knows of its configuration what it read when it was started.
DOCKER = f"{SH}cat /run/docker-runtimes 2>/dev/null || echo '{{\"runc\":{{}}}}'\n"
DOCKER_SERVICE = f"{SH}cp /etc/docker/daemon.json /run/docker-runtimes\n"
NVIDIA_CTK = f"""{SH}
[ "$*" = "runtime configure --runtime=docker" ] || exit 1
mkdir -p /etc/docker
echo '{{"runtimes": {{"nvidia": {{}}}}}}' > /etc/docker/daemon.json
"""
TOOLKIT = (
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)


class Site:
    """The repositories, as they are named inside of the root."""

    def __init__(self, root: DebianRoot, keys: Path) -> None:
        self.key, self.other = SigningKey(keys / "a", "Lab"), SigningKey(keys / "b", "Stranger")
        for name in ("debian", "cuda", "toolkit"):
            (root.path / "srv" / name).mkdir()
        self._debian(root.path / "srv/debian")
        cuda = root.path / "srv/cuda"
        make_package(cuda, "nvidia-driver-pinning-580", "580", {})
        make_package(cuda, "nvidia-open-580", "580.95.05-1", {"usr/bin/nvidia-smi": NVIDIA_SMI})
        make_package(cuda, "cuda-toolkit-13-0", "13.0.2-1", {"usr/local/cuda-13.0/bin/nvcc": NVCC})
        make_repository(cuda, self.key)
        self._toolkit(root.path / "srv/toolkit")
        self.key.export(root.path / "srv/debian.asc")
        (root.path / "etc/apt/sources.list").write_text(
            "deb [signed-by=/srv/debian.asc] file:///srv/debian /\n"
        )
        self.variables = {
            "NVIDIA_CUDA_REPO_URL": "file:///srv/cuda",
            "NVIDIA_CUDA_KEY_URL": "file:///srv/cuda/key.asc",
            "NVIDIA_CUDA_KEY_FINGERPRINT": self.key.fingerprint,
            "NVIDIA_CONTAINER_TOOLKIT_REPO_URL": "file:///srv/toolkit",
            "NVIDIA_CONTAINER_TOOLKIT_KEY_URL": "file:///srv/toolkit/key.asc",
            "NVIDIA_CONTAINER_TOOLKIT_KEY_FINGERPRINT": self.key.fingerprint,
        }

    def _debian(self, folder: Path) -> None:
        files = {"usr/bin/docker": DOCKER, "etc/init.d/docker": DOCKER_SERVICE}
        make_package(folder, "docker.io", "20.10.24", files)
        headers = f"linux-headers-{platform.release()}"
        if re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", headers):
            make_package(folder, headers, "1", {})
        make_repository(folder, self.key)

    def _toolkit(self, folder: Path) -> None:
        """In the wanted version, and in one that apt would rather have."""
        for version in ("1.19.0-1", "1.20.0-1"):
            make_package(
                folder,
                "nvidia-container-toolkit",
                version,
                {"usr/bin/nvidia-ctk": NVIDIA_CTK},
                depends=", ".join(f"{name} (= {version})" for name in TOOLKIT),
            )
            for name in TOOLKIT:
                make_package(folder, name, version, {})
        make_repository(folder, self.key)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[DebianRoot]:
    require_debian()
    root = DebianRoot(tmp_path / "root")
    shutil.copytree(SCRIPT.parent, root.path / "opt/scripts")
    yield root
    shutil.rmtree(root.path)


@pytest.fixture
def site(root: DebianRoot, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "keys").mkdir()
    site = Site(root, tmp_path / "keys")
    yield site
    site.key.stop()
    site.other.stop()


@pytest.mark.seed("004.14")
def test_a_bare_debian_becomes_ready(root: DebianRoot, site: Site) -> None:
    script = f"/opt/scripts/{SCRIPT.name}"
    sources = root.path / "etc/apt/sources.list.d"

    looked = root.run("bash", script, "--check-only")
    assert looked.returncode == 1, looked
    assert looked.stdout.splitlines()[:4] == [
        "MISSING: NVIDIA driver 580: there is no nvidia-smi",
        "MISSING: CUDA 13.0: there is no /usr/local/cuda-13.0/bin/nvcc",
        "MISSING: NVIDIA Container Toolkit 1.19.0: it is not installed",
        "MISSING: Docker: it is not installed",
    ]

    declined = root.run("bash", script, "--install", env=site.variables)
    assert declined.returncode == 1
    assert "declined" in declined.stderr
    assert list(sources.iterdir()) == []

    # Whose key is not the expected one is not trusted ...
    wrong = {**site.variables, "NVIDIA_CUDA_KEY_FINGERPRINT": site.other.fingerprint}
    refused = root.run("bash", script, "--install", "--yes", env=wrong)
    assert refused.returncode == 1
    assert f"is {site.key.fingerprint}, not {site.other.fingerprint}" in refused.stderr
    assert list(sources.iterdir()) == []

    # ... nor is a repository that is signed by somebody else than its key says.
    site.other.sign(root.path / "srv/toolkit/Release", root.path / "srv/toolkit/InRelease")
    tampered = root.run("bash", script, "--install", "--yes", env=site.variables)
    assert tampered.returncode == 1
    assert "NO_PUBKEY" in tampered.stderr
    assert not (root.path / "usr/bin/nvidia-smi").exists()
    site.key.sign(root.path / "srv/toolkit/Release", root.path / "srv/toolkit/InRelease")

    installed = root.run("bash", script, "--install", "--yes", env=site.variables)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert installed.stdout.splitlines()[-5:] == [
        "OK: NVIDIA driver 580.95.05",
        "OK: CUDA 13.0 in /usr/local/cuda-13.0",
        "OK: NVIDIA Container Toolkit 1.19.0",
        "OK: Docker has the nvidia runtime",
        "INFO: ready for TAO jobs with docker",
    ]
    assert sorted(path.name for path in sources.iterdir()) == [
        "cuda-debian12-x86_64.list",
        "nvidia-container-toolkit.list",
    ]

    again = root.run("bash", script, "--backend", "docker", "--check-only")
    assert again.returncode == 0

    # An upgrade takes the host away from the version that is wanted; installing brings it back.
    words = ("apt-get", "-y", "install", "nvidia-container-toolkit")
    assert root.run(*words).returncode == 0
    newer = root.run("bash", script)
    assert newer.returncode == 1
    assert newer.stdout.splitlines()[2].endswith("1.19.0: this host has 1.20.0")
    assert root.run("bash", script, "--install", "--yes", env=site.variables).returncode == 0
    # A package that was removed is still known to dpkg.
    assert root.run("dpkg", "--remove", "nvidia-container-toolkit").returncode == 0
    assert root.run("bash", script).returncode == 1
