"""A machine of fakes for the script that prepares GPU hosts.

It has a PATH of its own and a root folder of its own. Programs that alter a machine are written
down, do to the fakes what they would do to a machine, and refuse whoever is not root.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tao_sdk.skills.layout import PACKAGED_BANK

SCRIPT = (
    PACKAGED_BANK / "skills/platform/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"
)
SYSTEMS = {
    "debian": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian 12"\n',
    "rhel": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nPRETTY_NAME="Rocky 9"\n',
    "suse": 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\nPRETTY_NAME="SLES 15"\n',
}
KEYS = {
    "3bf863cc.pub": "EB693B3035CD5710E231E123A4B469963BF863CC",
    "D42D0685.pub": "610C7B14E068A878070DA4E99CD0A493D42D0685",
    "libnvidia-container/gpgkey": "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
    "linux/rhel/gpg": "060A61C51B558A7F742B77AAC52FEB6B621E9F35",
}
NVCC = 'echo "Cuda compilation tools, release {}, V{}.48"'
_REAL = (
    "awk",
    "bash",
    "cat",
    "cp",
    "dirname",
    "env",
    "grep",
    "head",
    "mkdir",
    "mktemp",
    "rm",
    "true",
)
_RECORD = 'echo "${{0##*/}} $*" >>"{folder}/record"\n'
_ROOT_ONLY = '[ "$(id -u)" = 0 ] || [ -n "${AS_ROOT:-}" ] || exit 98\n'
_INSTALLER = """\
case " $* " in
  *" nvidia-open-"* | *" nvidia-driver-cuda"*) cp "{spare}/nvidia-smi" "{bin}" ;;
  *" cuda-toolkit-13-0 "*) mkdir -p "{cuda}"; cp "{spare}/nvcc" "{cuda}" ;;
  *" nvidia-container-toolkit"[-=]*)
    cp "{spare}/nvidia-ctk" "{bin}"
    echo 1.19.0 >"{state}/toolkit"
    ;;
  *" docker"*) cp "{spare}/docker" "{bin}" ;;
esac
"""
_RESTART = """\
[ ! -e "{state}/configured" ] || echo '{{"nvidia":{{}},"runc":{{}}}}' >"{state}/runtimes"
"""


@dataclass(frozen=True)
class Outcome:
    """What a run of the script came to."""

    code: int
    lines: list[str]
    complaint: str


class GpuHost:
    """Nothing of NVIDIA is there, nor Docker, until `have` or an installation brings it."""

    def __init__(self, folder: Path, system: str = "debian") -> None:
        self._folder = folder
        self.root, self._bin = folder / "root", folder / "bin"
        self._spare, self._state = folder / "spare", folder / "state"
        self._cuda = self.root / "usr/local/cuda-13.0/bin"
        for made in (self.root / "etc", self._bin, self._spare, self._state, folder / "tmp"):
            made.mkdir(parents=True)
        self.set_system(SYSTEMS.get(system, system))
        self.environment = {
            "PATH": str(self._bin),
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "TAO_GPU_HOST_ROOT": str(self.root),
        }
        for name in _REAL:
            (self._bin / name).symlink_to(shutil.which(name) or name)
        self.be("root")
        self.program("uname", '[ "$1" = -m ] && echo x86_64 || echo 6.1.0-18-default')
        self._alterers(system)
        self._keys()
        self._spares()

    def _alterers(self, system: str) -> None:
        """The programs that change a machine."""
        managers = {"debian": ("apt-get",), "rhel": ("dnf", "yum"), "suse": ("zypper",)}
        for name in managers.get(system, ("apt-get", "dnf", "yum", "zypper")):
            # dpkg would ask questions otherwise
            calm = '[ "$DEBIAN_FRONTEND" = noninteractive ] || exit 97\n' * (name == "apt-get")
            self.alterer(name, calm + self._installer())
        known = f"{self._state}/toolkit"
        if system == "debian":
            self.program("dpkg-query", f'[ -e {known} ] && echo "installed $(cat {known})-1"')
        else:
            self.program(
                "rpm", f'[ "$1" != -q ] || exec cat {known} 2>/dev/null\n{self._recorded()}'
            )
        for name in ("modprobe", "usermod"):
            self.alterer(name)
        for name in ("systemctl", "service"):
            self.alterer(name, _RESTART.format(state=self._state))
        self.alterer("install", f'exec {shutil.which("install")} "$@"')

    def _keys(self) -> None:
        """A key is a file with the address that it is of."""
        self.program("curl", self._recorded() + 'echo "${!#}" >"${*: -2:1}"')
        cases = "".join(f"*{name}) echo fpr:::::::::{key}: ;;\n" for name, key in KEYS.items())
        self.program(
            "gpg",
            'case "$*" in *--dearmor*) cp "${!#}" "${*: -2:1}"; exit ;; esac\n'
            f'echo pub:\ncase $(cat "${{!#}}") in\n{cases}esac\n'
            "echo sub:\necho fpr:::::::::0000000000000000000000000000000000000000:\n",
        )

    def _spares(self) -> None:
        """What an installation brings."""
        self._write(self._spare / "nvidia-smi", "echo 580.95.05; echo 580.95.05")
        self._write(self._spare / "nvcc", NVCC.format("13.0", "13.0"))
        self._write(
            self._spare / "nvidia-ctk",
            'case "$*" in *--version*) echo "NVIDIA Container Toolkit CLI version 1.19.0";;\n*)'
            + self._recorded()
            + _ROOT_ONLY
            + f'echo >"{self._state}/configured" ;;\nesac',
        )
        self._write(
            self._spare / "docker",
            f'cat "{self._state}/runtimes" 2>/dev/null || echo \'{{"runc":{{}}}}\'',
        )

    def program(self, name: str, body: str) -> None:
        """A program of this machine."""
        (self._bin / name).unlink(missing_ok=True)
        self._write(self._bin / name, body)

    def alterer(self, name: str, body: str = "") -> None:
        """One that needs root, and is written down."""
        self.program(name, self._recorded() + _ROOT_ONLY + body)

    def failing(self, name: str, words: str) -> None:
        """A package manager that cannot install one thing."""
        unable = f'case " $* " in *"{words}"*) exit 100 ;; esac\n'
        self.alterer(name, unable + self._installer())

    def exiting(self, name: str, code: int) -> None:
        """A package manager that does its work, and ends with this code."""
        self.alterer(name, self._installer() + f"exit {code}")

    def _installer(self) -> str:
        return _INSTALLER.format(
            spare=self._spare, bin=self._bin, cuda=self._cuda, state=self._state
        )

    def remove(self, *names: str) -> None:
        for name in names:
            (self._bin / name).unlink()

    def set_system(self, release: str) -> None:
        (self.root / "etc/os-release").write_text(release)

    def be(self, user: str, groups: str = "") -> None:
        """Who runs the script."""
        number = 0 if user == "root" else 1000
        self.program(
            "id",
            f'case $1 in -u) echo {number};; -un) echo {user};; -nG) echo "{user} {groups}";; esac',
        )

    def have_sudo(self) -> None:
        self.program("sudo", '[ "$1" = -n ] || exit 96\nshift\nAS_ROOT=1 exec "$@"')

    def have(self, *names: str) -> None:
        """driver, cuda, toolkit, docker, runtime: there before the script looks."""
        for name in names:
            if name == "driver":
                shutil.copy(self._spare / "nvidia-smi", self._bin)
            elif name == "cuda":
                self.have_cuda("13.0")
            elif name == "toolkit":
                shutil.copy(self._spare / "nvidia-ctk", self._bin)
                (self._state / "toolkit").write_text("1.19.0\n")
            elif name == "docker":
                shutil.copy(self._spare / "docker", self._bin)
            elif name == "runtime":
                (self._state / "runtimes").write_text('{"nvidia":{},"runc":{}}\n')

    def have_cuda(self, release: str, folder: str = "usr/local/cuda-13.0") -> None:
        place = self.root / folder / "bin"
        place.mkdir(parents=True)
        self._write(place / "nvcc", NVCC.format(release, release))

    def run(self, *words: str, answer: str = "", env: Mapping[str, str] | None = None) -> Outcome:
        """The script, with these options."""
        return self._bash([str(SCRIPT), *words], answer, env, self._folder)

    def shell(self, text: str, folder: Path, env: Mapping[str, str] | None = None) -> Outcome:
        """Commands of a shell, in a folder."""
        return self._bash(["-c", text], "", env, folder)

    def _bash(
        self, words: list[str], answer: str, env: Mapping[str, str] | None, folder: Path
    ) -> Outcome:
        done = subprocess.run(
            [str(self._bin / "bash"), *words],
            env={**self.environment, **(env or {})},
            input=answer,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        said = done.stdout.replace(str(self.root), "")
        return Outcome(done.returncode, said.splitlines(), done.stderr)

    @property
    def record(self) -> list[str]:
        """What was done to the machine, in order; `W` is the script's own temporary folder."""
        path = self._folder / "record"
        if not path.exists():
            return []
        words = path.read_text().replace(str(self.root), "").split("\n")[:-1]
        temporary = str(self._folder / "tmp") + "/tmp."
        return [
            " ".join(_short(word, temporary) for word in line.split(" ")).strip() for line in words
        ]

    def files(self) -> dict[str, str]:
        """Every file below the root."""
        return {
            "/" + path.relative_to(self.root).as_posix(): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in (self._folder / "tmp").iterdir())

    def _recorded(self) -> str:
        return _RECORD.format(folder=self._folder)

    def _write(self, path: Path, body: str) -> None:
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)


def _short(word: str, temporary: str) -> str:
    return f"W/{Path(word).name}" if word.startswith(temporary) else word
