"""setup-nvidia-gpu-host.sh installs: what is missing, when told to, from known keys."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lab.gpu_host import KEYS, GpuHost

APT = "apt-get -o DPkg::Lock::Timeout=300 -y"
APT_INSTALL = f"{APT} --allow-downgrades install"
ZYPPER = "zypper --non-interactive install --auto-agree-with-licenses --oldpackage"
CURL = "curl -fsSL --proto =https,file --proto-redir =https -o W/key"
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"
TOOLKIT = "https://nvidia.github.io/libnvidia-container"
KERNEL = "6.1.0-18-default"
CUDA_KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
TOOLKIT_KEYRING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
RPM_KEYS = "/etc/pki/rpm-gpg/RPM-GPG-KEY"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
READY = ("driver", "cuda", "toolkit", "docker", "runtime")


def pinned(mark: str) -> str:
    return " ".join(f"{name}{mark}1.19.0-1" for name in PACKAGES)


def put(path: str, name: str = "text") -> str:
    return f"install -D -m 0644 W/{name} {path}"


def repo(name: str, url: str, checks: str) -> str:
    return (
        f"[{name}]\nname={name}\nbaseurl={url}\nenabled=1\n{checks}\n"
        f"gpgkey=file://{RPM_KEYS}-{name}\n"
    )


DEBIAN = [
    f"{APT} update",
    f"{APT_INSTALL} ca-certificates curl gnupg",
    f"{CURL} {CUDA}/debian12/x86_64/3bf863cc.pub",
    put(CUDA_KEYRING, "key.gpg"),
    put("/etc/apt/sources.list.d/cuda-debian12-x86_64.list"),
    f"{CURL} {TOOLKIT}/gpgkey",
    put(TOOLKIT_KEYRING, "key.gpg"),
    put("/etc/apt/sources.list.d/nvidia-container-toolkit.list"),
    f"{APT} update",
    f"{APT_INSTALL} linux-headers-{KERNEL}",
    f"{APT_INSTALL} nvidia-driver-pinning-580",
    f"{APT_INSTALL} nvidia-open-580",
    f"{APT_INSTALL} cuda-toolkit-13-0",
    f"{APT_INSTALL} {pinned('=')}",
]


def rhel(manager: str) -> list[str]:
    return [
        f"{manager} -y install ca-certificates curl gnupg2",
        f"{CURL} {CUDA}/rhel9/x86_64/D42D0685.pub",
        put(f"{RPM_KEYS}-cuda-rhel9-x86_64", "key"),
        put("/etc/yum.repos.d/cuda-rhel9.repo"),
        f"{CURL} {TOOLKIT}/gpgkey",
        put(f"{RPM_KEYS}-nvidia-container-toolkit", "key"),
        put("/etc/yum.repos.d/nvidia-container-toolkit.repo"),
        f"{manager} -y install kernel-devel-{KERNEL} kernel-headers",
        f"{manager} -y install epel-release",
        f"{manager} -y module reset nvidia-driver",
        f"{manager} -y module enable nvidia-driver:580-open",
        f"{manager} -y install nvidia-driver-cuda-580.* kmod-nvidia-open-dkms-580.*",
        f"{manager} -y install cuda-toolkit-13-0",
        f"{manager} -y install {pinned('-')}",
    ]


SUSE = [
    f"{ZYPPER} ca-certificates curl gpg2",
    f"{CURL} {CUDA}/sles15/x86_64/D42D0685.pub",
    put(f"{RPM_KEYS}-cuda-sles15-x86_64", "key"),
    put("/etc/zypp/repos.d/cuda-sles15.repo"),
    f"{CURL} {TOOLKIT}/gpgkey",
    put(f"{RPM_KEYS}-nvidia-container-toolkit", "key"),
    put("/etc/zypp/repos.d/nvidia-container-toolkit.repo"),
    f"rpm --import {RPM_KEYS}-cuda-sles15-x86_64",
    f"rpm --import {RPM_KEYS}-nvidia-container-toolkit",
    "zypper --non-interactive refresh",
    f"{ZYPPER} kernel-default-devel=6.1.0-18",
    f"{ZYPPER} nvidia-open-580",
    f"{ZYPPER} cuda-toolkit-13-0",
    f"{ZYPPER} {pinned('-')}",
]
DOCKER_CE = [
    f"{CURL} https://download.docker.com/linux/rhel/gpg",
    put(f"{RPM_KEYS}-docker-ce-stable", "key"),
    put("/etc/yum.repos.d/docker-ce.repo"),
]
CONFIGURED = ["nvidia-ctk runtime configure --runtime=docker", "service docker restart"]
LOADED = ["modprobe nvidia"]


@pytest.fixture
def host(tmp_path: Path) -> GpuHost:
    return GpuHost(tmp_path / "host")


@pytest.mark.seed("004.14")
@pytest.mark.parametrize("backend", ["docker", "kubernetes"])
@pytest.mark.parametrize(
    ("system", "manager", "common", "docker"),
    [
        ("debian", "", DEBIAN, [f"{APT_INSTALL} docker.io"]),
        ("rhel", "dnf", rhel("dnf"), [*DOCKER_CE, "dnf -y install docker-ce"]),
        ("rhel", "yum", rhel("yum"), [*DOCKER_CE, "yum -y install docker-ce"]),
        ("suse", "", SUSE, [f"{ZYPPER} docker"]),
    ],
    ids=["apt", "dnf", "yum", "zypper"],
)
def test_a_bare_host_becomes_ready(
    tmp_path: Path, system: str, manager: str, common: list[str], docker: list[str], backend: str
) -> None:
    host = GpuHost(tmp_path / "host", system)
    if manager == "yum":
        host.remove("dnf")
    outcome = host.run("--backend", backend, "--install", "--yes")
    assert outcome.code == 0, outcome
    with_docker = [*common, *docker, *CONFIGURED, *LOADED]
    assert host.record == (with_docker if backend == "docker" else [*common, *LOADED])
    checked_again = outcome.lines[outcome.lines.index("INFO: installed; checking again") + 1 :]
    assert checked_again[0] == "OK: NVIDIA driver 580.95.05"
    assert checked_again[-1] == f"INFO: ready for TAO jobs with {backend}"
    assert host.leftovers() == []


def test_the_files_of_apt(host: GpuHost) -> None:
    assert host.run("--install", "--yes", "--backend", "k8s").code == 0
    files = host.files()
    lists = {name: text for name, text in files.items() if "sources.list.d" in name}
    assert lists == {
        "/etc/apt/sources.list.d/cuda-debian12-x86_64.list": (
            f"deb [signed-by={CUDA_KEYRING}] {CUDA}/debian12/x86_64/ /\n"
        ),
        "/etc/apt/sources.list.d/nvidia-container-toolkit.list": (
            f"deb [signed-by={TOOLKIT_KEYRING}] {TOOLKIT}/stable/deb/amd64 /\n"
        ),
    }
    # The fakes of keys hold the address that they come from.
    assert files[CUDA_KEYRING] == f"{CUDA}/debian12/x86_64/3bf863cc.pub\n"
    assert files[TOOLKIT_KEYRING] == f"{TOOLKIT}/gpgkey\n"


@pytest.mark.parametrize(
    ("system", "distro", "folder"),
    [("rhel", "rhel9", "/etc/yum.repos.d"), ("suse", "sles15", "/etc/zypp/repos.d")],
)
def test_the_files_of_rpm(tmp_path: Path, system: str, distro: str, folder: str) -> None:
    host = GpuHost(tmp_path / "host", system)
    assert host.run("--install", "--yes").code == 0
    files = host.files()
    repos = {name: text for name, text in files.items() if name.endswith(".repo")}
    name = f"cuda-{distro}-x86_64"
    expected = {
        f"{folder}/cuda-{distro}.repo": repo(name, f"{CUDA}/{distro}/x86_64", "gpgcheck=1"),
        f"{folder}/nvidia-container-toolkit.repo": repo(
            "nvidia-container-toolkit",
            f"{TOOLKIT}/stable/rpm/$basearch",
            "gpgcheck=0\nrepo_gpgcheck=1",
        ),
    }
    if system == "rhel":
        expected[f"{folder}/docker-ce.repo"] = repo(
            "docker-ce-stable",
            "https://download.docker.com/linux/rhel/9/$basearch/stable",
            "gpgcheck=1",
        )
    assert repos == expected
    assert files[f"{RPM_KEYS}-{name}"] == f"{CUDA}/{distro}/x86_64/D42D0685.pub\n"


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (("driver", "cuda", "toolkit", "docker"), [*DEBIAN[:2], f"{APT} update", *CONFIGURED]),
        (("driver", "cuda", "docker"), [*DEBIAN[:2], *DEBIAN[5:9], DEBIAN[-1], *CONFIGURED]),
        (
            ("driver", "toolkit", "docker", "runtime"),
            [*DEBIAN[:5], f"{APT} update", f"{APT_INSTALL} cuda-toolkit-13-0"],
        ),
        (
            ("cuda", "toolkit", "docker", "runtime"),
            [*DEBIAN[:5], f"{APT} update", *DEBIAN[9:12], *LOADED],
        ),
    ],
    ids=["runtime", "toolkit and runtime", "cuda", "driver"],
)
def test_only_what_is_missing(host: GpuHost, there: tuple[str, ...], expected: list[str]) -> None:
    host.have(*there)
    assert host.run("--install", "--yes").code == 0
    assert host.record == expected


def test_a_ready_host_is_left_alone(host: GpuHost) -> None:
    host.have(*READY)
    before = host.files()
    assert host.run("--install").code == 0  # and nobody is asked
    assert host.record == []
    assert host.files() == before


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "no\n", "maybe\n", "Y es\n"])
def test_declined(host: GpuHost, answer: str) -> None:
    before = host.files()
    outcome = host.run("--install", answer=answer)
    assert outcome.code == 1
    assert "Go on? [y/N]" in "\n".join(outcome.lines)
    assert "INFO: - NVIDIA Container Toolkit 1.19.0-1" in outcome.lines
    assert outcome.complaint == "setup-nvidia-gpu-host.sh: declined: nothing was changed\n"
    assert host.record == []
    assert host.files() == before


@pytest.mark.parametrize("answer", ["y\n", "Y\n", "yes\n"])
def test_agreed(host: GpuHost, answer: str) -> None:
    assert host.run("--install", answer=answer).code == 0
    assert host.record[:2] == DEBIAN[:2]


@pytest.mark.parametrize("option", ["-y", "--yes"])
def test_yes_alone_installs_nothing(host: GpuHost, option: str) -> None:
    assert host.run(option).code == 1
    assert host.record == []


@pytest.mark.parametrize("sudo", [None, "exit 1"], ids=["no sudo", "sudo with a password"])
def test_neither_root_nor_sudo(host: GpuHost, sudo: str | None) -> None:
    host.be("ann")
    if sudo:
        host.program("sudo", sudo)
    outcome = host.run("--install", "--yes")
    assert outcome.code == 1
    assert outcome.complaint == (
        "setup-nvidia-gpu-host.sh: installing needs root, or sudo without a password\n"
    )
    assert host.record == []


def test_with_sudo_every_change_is_by_root(host: GpuHost) -> None:
    """The fakes that alter the machine refuse everybody else."""
    host.be("ann")
    host.have_sudo()
    outcome = host.run("--install", "--yes")
    assert outcome.code == 0
    joined = ["usermod -aG docker ann"]
    assert host.record == [*DEBIAN, f"{APT_INSTALL} docker.io", *CONFIGURED, *joined, *LOADED]
    assert "INFO: - ann joins the group docker, which is as good as being root" in outcome.lines
    assert "INFO: ann is in the group docker from the next login on" in outcome.lines


def test_who_called_sudo_joins_the_group(host: GpuHost) -> None:
    host.run("--install", "--yes", env={"SUDO_USER": "ben"})
    assert "usermod -aG docker ben" in host.record


@pytest.mark.parametrize(
    ("words", "groups"),
    [(["--skip-docker-group"], ""), (["--backend", "kubernetes"], ""), ([], "wheel docker")],
    ids=["not wanted", "not with Kubernetes", "a member already"],
)
def test_nobody_joins_the_group(host: GpuHost, words: list[str], groups: str) -> None:
    host.be("ann", groups)
    host.have_sudo()
    assert host.run("--install", "--yes", *words).code == 0
    assert [line for line in host.record if "usermod" in line] == []


def test_docker_is_not_installed_when_it_shall_not(host: GpuHost) -> None:
    host.be("ann")
    host.have_sudo()
    outcome = host.run("--install", "--yes", "--skip-docker-install")
    assert outcome.code == 1
    assert host.record == [*DEBIAN, *LOADED]
    assert outcome.lines[-2] == "MISSING: Docker: it is not installed"


def test_docker_is_not_configured_when_it_shall_not(host: GpuHost) -> None:
    outcome = host.run("--install", "--yes", "--skip-docker-config")
    assert outcome.code == 1
    assert host.record == [*DEBIAN, f"{APT_INSTALL} docker.io", *LOADED]
    assert outcome.lines[-2] == "MISSING: Docker: it has no nvidia runtime"


def test_docker_of_systemd(host: GpuHost) -> None:
    (host.root / "run/systemd/system").mkdir(parents=True)
    host.have(*READY[:4])
    assert host.run("--install", "--yes").code == 0
    assert host.record[-2:] == ["systemctl enable docker", "systemctl restart docker"]


def test_docker_that_cannot_be_restarted(host: GpuHost) -> None:
    host.have(*READY[:4])
    host.remove("service")
    outcome = host.run("--install", "--yes")
    assert outcome.code == 1
    assert any(line.startswith("WARN: Docker could not be restarted") for line in outcome.lines)


def test_a_driver_that_waits_for_a_reboot(host: GpuHost) -> None:
    host.have("cuda", "toolkit")
    host.program("nvidia-smi", "exit 9")
    host.alterer("apt-get")
    host.alterer("modprobe", "exit 1")
    outcome = host.run("--backend", "k8s", "--install", "--yes")
    assert outcome.code == 1
    assert "WARN: the driver could not be loaded: reboot" in outcome.lines
    assert outcome.lines[-1] == "INFO: not ready yet: if the driver is new, reboot and check again"


def test_what_may_fail(host: GpuHost) -> None:
    host.failing("apt-get", " linux-headers-")
    outcome = host.run("--install", "--yes")
    assert outcome.code == 0
    assert any(line.startswith("WARN: the headers of this kernel") for line in outcome.lines)


@pytest.mark.parametrize("words", [" update ", " nvidia-open-580 ", " cuda-toolkit", " docker.io "])
def test_what_may_not_fail(host: GpuHost, words: str) -> None:
    host.failing("apt-get", words)
    outcome = host.run("--install", "--yes")
    assert outcome.code == 1
    assert outcome.complaint.startswith("setup-nvidia-gpu-host.sh: failed: env DEBIAN_FRONTEND=")
    assert words.strip() in host.record[-1]  # and no step after it
    assert "INFO: installed; checking again" not in outcome.lines
    assert host.leftovers() == []


@pytest.mark.parametrize(("code", "expected"), [(102, 0), (103, 0), (106, 0), (4, 1), (104, 1)])
def test_zypper_tells_by_its_code_what_else_there_is(
    tmp_path: Path, code: int, expected: int
) -> None:
    """A reboot to come, say, or that some other repository of the host was not to be had."""
    host = GpuHost(tmp_path / "host", "suse")
    host.exiting("zypper", code)
    assert host.run("--install", "--yes").code == expected


def test_a_key_that_is_another(host: GpuHost) -> None:
    stranger = "0123456789ABCDEF0123456789ABCDEF01234567"
    host.program("gpg", f"echo pub:; echo fpr:::::::::{stranger}:")
    before = host.files()
    outcome = host.run("--install", "--yes")
    assert outcome.code == 1
    assert outcome.complaint == (
        f"setup-nvidia-gpu-host.sh: the signing key {CUDA}/debian12/x86_64/3bf863cc.pub "
        f"is {stranger}, not {KEYS['3bf863cc.pub']}\n"
    )
    assert host.files() == before
    assert host.leftovers() == []


def test_a_key_that_is_not_alone(host: GpuHost) -> None:
    """Whoever adds a key of their own to the file would be trusted as well."""
    expected = KEYS["3bf863cc.pub"]
    host.program(
        "gpg", f"for key in {expected} {'F' * 40}; do echo pub:; echo fpr:::::::::$key:; done"
    )
    before = host.files()
    assert host.run("--install", "--yes").code == 1
    assert host.files() == before


def test_a_key_that_cannot_be_fetched(host: GpuHost) -> None:
    host.program("curl", "exit 22")
    outcome = host.run("--install", "--yes")
    assert outcome.code == 1
    assert "3bf863cc.pub cannot be fetched" in outcome.complaint


@pytest.mark.parametrize("system", ["debian", "rhel", "suse"])
def test_a_dry_run_prints_and_changes_nothing(tmp_path: Path, system: str) -> None:
    host = GpuHost(tmp_path / "host", system)
    host.be("ann")  # and it needs no root
    before = host.files()
    outcome = host.run("--install", "--dry-run")
    assert outcome.code == 1
    assert host.record == []
    assert host.files() == before
    assert host.leftovers() == []
    printed = [line.removeprefix("+ ") for line in outcome.lines if line.startswith("+ ")]
    calm = "env DEBIAN_FRONTEND=noninteractive "
    dry = [" ".join(shlex.split(line.replace(calm, ""))) for line in printed]
    host.be("root")
    host.run("--install", "--yes")
    words = ("install -D", "curl")
    done = [line for line in host.record if not line.startswith(words)]
    joined = "usermod -aG docker ann"
    assert [line for line in dry if not line.startswith("write ") and line != joined] == done
    written = {line.split()[1].rstrip(":") for line in dry if line.startswith("write ")}
    assert written == {line.split()[-1] for line in host.record if line.startswith("install -D")}
