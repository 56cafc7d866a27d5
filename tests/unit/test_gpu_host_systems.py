"""setup-nvidia-gpu-host.sh by distribution, and with versions and mirrors of yours."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_gpu_host_install import CUDA, CUDA_KEYRING, DEBIAN, TOOLKIT_KEYRING

from lab.gpu_host import GpuHost


@pytest.fixture
def host(tmp_path: Path) -> GpuHost:
    return GpuHost(tmp_path / "host")


def release(**fields: str) -> str:
    return "".join(f'{name}="{value}"\n' for name, value in fields.items())


SYSTEMS = {
    "ubuntu2204": [release(ID="ubuntu", ID_LIKE="debian", VERSION_CODENAME="jammy")],
    "ubuntu2404": [
        release(ID="ubuntu", ID_LIKE="debian", VERSION_CODENAME="noble"),
        release(
            ID="linuxmint",
            ID_LIKE="ubuntu debian",
            VERSION_CODENAME="wilma",
            UBUNTU_CODENAME="noble",
        ),
    ],
    "debian12": [
        release(ID="debian", VERSION_CODENAME="bookworm"),
        release(
            ID="linuxmint", ID_LIKE="debian", VERSION_CODENAME="faye", DEBIAN_CODENAME="bookworm"
        ),
    ],
    "rhel8": [release(ID="almalinux", ID_LIKE="rhel centos fedora", VERSION_ID="8.10")],
    "rhel9": [
        release(ID="rhel", ID_LIKE="fedora", VERSION_ID="9.6"),
        release(ID="centos", ID_LIKE="rhel fedora", VERSION_ID="9"),
        release(ID="ol", ID_LIKE="fedora", VERSION_ID="9.5"),
    ],
    "amzn2023": [release(ID="amzn", ID_LIKE="fedora", VERSION_ID="2023")],
    "fedora42": [release(ID="fedora", VERSION_ID="42")],
    "sles15": [release(ID="sles", ID_LIKE="suse", VERSION_ID="15.6")],
    "opensuse15": [release(ID="opensuse-leap", ID_LIKE="suse opensuse", VERSION_ID="15.6")],
}
UNKNOWN = [
    "",
    release(ID="arch"),
    release(ID="debian", VERSION_CODENAME="trixie"),
    release(ID="ubuntu", ID_LIKE="debian", VERSION_CODENAME="focal"),
    release(ID="rhel", ID_LIKE="fedora", VERSION_ID="10.0"),
    release(ID="fedora", VERSION_ID="8"),
    release(ID="amzn", ID_LIKE="centos rhel fedora", VERSION_ID="2"),
    release(ID="opensuse-tumbleweed", ID_LIKE="opensuse suse", VERSION_ID="20261101"),
]


@pytest.mark.parametrize(
    ("distro", "text"), [(distro, text) for distro, texts in SYSTEMS.items() for text in texts]
)
def test_known_systems(tmp_path: Path, distro: str, text: str) -> None:
    host = GpuHost(tmp_path / "host", text)
    said = "\n".join(host.run("--install", "--dry-run").lines)
    assert f"{CUDA}/{distro}/x86_64\n" in said
    host.program("uname", '[ "$1" = -m ] && echo aarch64 || echo 6.1.0')
    said = "\n".join(host.run("--install", "--dry-run").lines)
    assert f"{CUDA}/{distro}/sbsa\n" in said


@pytest.mark.parametrize("text", UNKNOWN)
def test_unknown_systems_get_steps_to_do_by_hand(tmp_path: Path, text: str) -> None:
    host = GpuHost(tmp_path / "host", text)
    outcome = host.run("--install", "--yes")
    assert outcome.code == 1
    steps = [
        line for line in outcome.lines if line.startswith(("  1. ", "  2. ", "  3. ", "  4. "))
    ]
    assert [line[5:].split(" ")[0] for line in steps] == ["NVIDIA", "CUDA", "NVIDIA", "Docker,"]
    assert "is not one of the systems that are known here" in outcome.complaint
    assert host.record == []


def test_an_unknown_processor(host: GpuHost) -> None:
    host.program("uname", "echo ppc64le")
    assert host.run("--install", "--yes").code == 1
    assert host.record == []


def test_an_unknown_release_that_lacks_only_the_toolkit(tmp_path: Path) -> None:
    """The toolkit is the same for all releases of a family."""
    host = GpuHost(tmp_path / "host", "debian")
    host.set_system(release(ID="debian", VERSION_CODENAME="trixie"))
    host.have("driver", "cuda", "docker", "runtime")
    assert host.run("--install", "--yes").code == 0
    assert host.record == [*DEBIAN[:2], *DEBIAN[5:9], DEBIAN[-1]]


def test_releases_without_streams(tmp_path: Path) -> None:
    host = GpuHost(tmp_path / "host", "rhel")
    host.set_system(release(ID="fedora", VERSION_ID="42"))
    assert host.run("--install", "--yes").code == 0
    assert "dnf -y install nvidia-driver-cuda-580.* kmod-nvidia-open-dkms-580.*" in host.record
    assert "dnf -y install docker" in host.record
    assert [line for line in host.record if "module" in line or "epel" in line] == []


@pytest.mark.parametrize(
    ("system", "variables", "expected"),
    [
        (
            "debian",
            {
                "NVIDIA_DRIVER_BRANCH": "570",
                "NVIDIA_CUDA_PACKAGE": "cuda-compiler-13-0",
                "NVIDIA_CONTAINER_TOOLKIT_VERSION": "1.18.2-1",
                "DOCKER_PACKAGE_DEBIAN": "docker-ce",
            },
            [
                "install nvidia-driver-pinning-570",
                "install nvidia-open-570",
                "install cuda-compiler-13-0",
                "install nvidia-container-toolkit=1.18.2-1",
                "install docker-ce",
            ],
        ),
        (
            "debian",
            {"NVIDIA_DRIVER_PACKAGE_DEBIAN": "cuda-drivers-580"},
            ["install cuda-drivers-580"],
        ),
        (
            "rhel",
            {
                "NVIDIA_DRIVER_BRANCH": "570",
                "NVIDIA_DRIVER_PACKAGE_RHEL": "nvidia-driver",
                "NVIDIA_DRIVER_KMOD_RHEL": "kmod-nvidia-latest-dkms",
                "DOCKER_PACKAGE": "moby-engine",
            },
            [
                "module enable nvidia-driver:570-open",
                "install nvidia-driver kmod-nvidia-latest-dkms",
                "install moby-engine",
            ],
        ),
        (
            "suse",
            {"NVIDIA_DRIVER_PACKAGE_SUSE": "cuda-drivers-580", "DOCKER_PACKAGE": "moby"},
            ["--oldpackage cuda-drivers-580", "--oldpackage moby"],
        ),
    ],
)
def test_other_packages_by_the_environment(
    tmp_path: Path, system: str, variables: dict[str, str], expected: list[str]
) -> None:
    host = GpuHost(tmp_path / "host", system)
    said = host.run("--install", "--dry-run", env=variables).lines
    assert [words for words in expected if not any(words in line for line in said)] == []
    if "DOCKER_PACKAGE" in variables:  # then it is not docker.com's
        assert [line for line in said if "docker-ce" in line] == []


def test_mirrors(host: GpuHost) -> None:
    key = "0123456789ABCDEF0123456789ABCDEF01234567"
    variables = {
        "NVIDIA_CUDA_REPO_URL": "https://mirror.example/cuda",
        "NVIDIA_CUDA_KEY_FINGERPRINT": key,
        "NVIDIA_CONTAINER_TOOLKIT_REPO_URL": "file:///srv/toolkit",
        "NVIDIA_CONTAINER_TOOLKIT_KEY_URL": "file:///srv/toolkit/key.asc",
        "NVIDIA_CONTAINER_TOOLKIT_KEY_FINGERPRINT": key,
    }
    host.set_system(release(ID="debian", VERSION_CODENAME="trixie"))  # known by the mirror only
    host.program(
        "gpg",
        'case "$*" in *--dearmor*) cp "${!#}" "${*: -2:1}"; exit ;; esac\n'
        f"echo pub:; echo fpr:::::::::{key}:",
    )
    assert host.run("--install", "--yes", env=variables).code == 0
    assert [line.split()[-1] for line in host.record if line.startswith("curl")] == [
        "https://mirror.example/cuda/3bf863cc.pub",
        "file:///srv/toolkit/key.asc",
    ]
    lists = {name: text for name, text in host.files().items() if "sources.list.d" in name}
    assert lists == {
        "/etc/apt/sources.list.d/cuda-mirror-x86_64.list": (
            f"deb [signed-by={CUDA_KEYRING}] https://mirror.example/cuda/ /\n"
        ),
        "/etc/apt/sources.list.d/nvidia-container-toolkit.list": (
            f"deb [signed-by={TOOLKIT_KEYRING}] file:///srv/toolkit /\n"
        ),
    }
