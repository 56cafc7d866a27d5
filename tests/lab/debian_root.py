"""A small Debian of its own: the machine's base packages, copied, and repositories made here.

`apt` and `dpkg` in it are real and know what is installed there. It is entered without a network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab import unavailable

LAB = "debian"
_SEEDS = ("apt", "ca-certificates", "curl", "gnupg", "mawk")
_MERGED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_FOLDERS = ("dev", "etc/apt/sources.list.d", "proc", "run", "srv", "tmp", "var/cache/apt/archives")
_STATE = ("var/lib/apt/lists", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log/apt")
_COPIED = (
    "etc/group",
    "etc/ld.so.cache",
    "etc/nsswitch.conf",
    "etc/passwd",
    "etc/ssl/certs",
)
_DEVICES = {"null": 3, "zero": 5, "random": 8, "urandom": 9}


def require_debian() -> None:
    """Skip where no such root can be made."""
    help_text = "run the tests as root on Debian 12 with apt, curl and gnupg"
    if os.geteuid() != 0:
        unavailable(LAB, "a root of its own needs root", help_text)
    for name in ("dpkg-deb", "apt-get", "curl", "gpg", "unshare"):
        if shutil.which(name) is None:
            unavailable(LAB, f"{name} is not installed", help_text)
    if "VERSION_CODENAME=bookworm" not in Path("/etc/os-release").read_text():
        unavailable(LAB, "this is not Debian 12", help_text)
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    if subprocess.run(probe, capture_output=True, timeout=30).returncode != 0:
        unavailable(LAB, "root may not unshare here", "run the tests with CAP_SYS_ADMIN")


class DebianRoot:
    """A folder to change root into."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        for name in (*_FOLDERS, *_STATE):
            (folder / name).mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        # Where /bin is a link to /usr/bin, it is one in the copy.
        for name in _MERGED:
            if Path("/", name).is_symlink():
                (folder / "usr" / name).mkdir(parents=True)
                (folder / name).symlink_to(f"usr/{name}")
        packages = _base_packages()
        _copy(_files_of(packages), folder)
        _copy((f"/{name}" for name in _COPIED), folder, deep=True)
        _copy(_records_of(packages), folder)
        (folder / "usr/bin/awk").symlink_to("mawk")  # an alternative: of no package
        (folder / "var/lib/dpkg/status").write_text(_said("dpkg-query", "--status", *packages))
        for name, minor in _DEVICES.items():
            os.mknod(folder / "dev" / name, 0o020666, os.makedev(1, minor))
            (folder / "dev" / name).chmod(0o666)  # whatever the umask

    def run(
        self, *words: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A program in there, without a network and among processes of its own."""
        inside = ["unshare", "--net", "--mount", "--pid", "--fork", "chroot", str(self.path)]
        place = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            [*inside, *words],
            env={**place, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )


class SigningKey:
    """A key of OpenPGP, in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(mode=0o700)
        self._gpg = ["gpg", "--homedir", str(folder), "--batch", "--yes"]
        words = ["--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never"]
        _said(*self._gpg, *words)
        listed = _said(*self._gpg, "--list-keys", "--with-colons")
        self.fingerprint = next(
            line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:")
        )

    def sign(self, path: Path, signed: Path) -> None:
        _said(*self._gpg, "--clear-sign", "--output", str(signed), str(path))
        signed.chmod(0o644)  # apt reads as a user of its own

    def export(self, path: Path) -> None:
        _said(*self._gpg, "--armor", "--output", str(path), "--export", self.fingerprint)
        path.chmod(0o644)

    def stop(self) -> None:
        """End the agent that signing has started."""
        _said("gpgconf", *self._gpg[1:3], "--kill", "all")


def make_package(
    folder: Path, name: str, version: str, files: Mapping[str, str], depends: str = ""
) -> None:
    """A package of a few programs."""
    tree = folder / f"{name}.tree"
    fields = {
        "Package": name,
        "Version": version,
        "Architecture": "all",
        "Maintainer": "Lab <lab@example.org>",
        "Description": "a stand-in",
        **({"Depends": depends} if depends else {}),
    }
    (tree / "DEBIAN").mkdir(parents=True)
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    (tree / "DEBIAN/control").write_text(text)
    for path, content in files.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(0o755)
    _said(
        "dpkg-deb",
        "--root-owner-group",
        "--build",
        str(tree),
        str(folder / f"{name}_{version}.deb"),
    )
    shutil.rmtree(tree)


def make_repository(folder: Path, key: SigningKey) -> None:
    """The index of the packages in a folder, signed, with the key beside it."""
    stanzas = []
    for path in sorted(folder.glob("*.deb")):
        content = path.read_bytes()
        stanzas.append(
            _said("dpkg-deb", "--field", str(path)).rstrip("\n")
            + f"\nFilename: ./{path.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    index = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(index)
    release = folder / "Release"
    release.write_text(
        "Origin: Lab\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
    )
    key.sign(release, folder / "InRelease")
    key.export(folder / "key.asc")


def _base_packages() -> list[str]:
    listed = _said("dpkg-query", "--show", "--showformat", "${Essential} ${Package}\n")
    essential = [line.split()[1] for line in listed.splitlines() if line.startswith("yes ")]
    unwanted = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    options = ["--recurse", "--installed", *(f"--no-{name}" for name in unwanted)]
    needed = _said("apt-cache", "depends", *options, *essential, *_SEEDS)
    names = {line for line in needed.splitlines() if line[0] not in " <"}
    installed = _said("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n")
    present = {line.split()[0] for line in installed.splitlines() if line.endswith(" installed")}
    return sorted(names & present)


def _files_of(packages: list[str]) -> list[str]:
    listed = _said("dpkg-query", "--listfiles", *packages).splitlines()
    return list(dict.fromkeys(path for path in listed if path.startswith("/")))


def _records_of(packages: list[str]) -> list[str]:
    info = Path("/var/lib/dpkg/info")
    names = set(packages)
    found = [path for path in info.iterdir() if path.name.split(":")[0].rsplit(".", 1)[0] in names]
    return [str(path) for path in [*found, info / "format"]]


def _copy(paths: Iterable[str], folder: Path, *, deep: bool = False) -> None:
    """Files with their modes; those that the machine has left out (manuals) are passed over."""
    listed = "".join(f".{path}\0" for path in paths if os.path.lexists(path) and path != "/.")
    recursion = "--recursion" if deep else "--no-recursion"
    pack = subprocess.run(
        ["tar", "-C", "/", recursion, "--null", "-T", "-", "-c"],
        input=listed.encode(),
        capture_output=True,
        timeout=120,
    )
    assert pack.returncode == 0, pack.stderr.decode()
    unpack = ["tar", "-C", str(folder), "--keep-directory-symlink", "-x"]
    subprocess.run(unpack, input=pack.stdout, check=True, timeout=120)


def _said(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
