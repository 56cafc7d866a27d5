"""Clusters of Slurm that test processes share, or have for themselves."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lab import sharing, unavailable
from lab.packages import cache, find, locked, provide
from lab.slurm.cluster import USER, Cluster
from lab.slurm.variant import SlurmVariant

_PROGRAMS = (
    *("slurmctld", "slurmd", "slurmdbd", "munged", "sshd", "ssh", "mariadbd"),
    *("sqfstar", "mksquashfs", "busybox", "gcc"),
)
_PACKAGES = (
    *("slurm-wlm", "slurm-client", "slurmdbd", "libslurm-dev", "munge", "mariadb-server"),
    *("openssh-server", "openssh-client", "squashfs-tools", "busybox-static", "gcc", "libc6-dev"),
)


@contextlib.contextmanager
def shared_cluster(variant: SlurmVariant | None = None, name: str = "tests") -> Iterator[Cluster]:
    """The cluster of this kind that all test processes of this machine share."""
    _provide_programs()
    chosen = variant or SlurmVariant()
    label = f"{name}-{chosen.key}"
    with sharing.shared(__name__, label, lambda folder: _open(folder, chosen)) as cluster:
        yield cluster


@contextlib.contextmanager
def private_cluster(variant: SlurmVariant | None = None) -> Iterator[Cluster]:
    """A cluster for one test, which may do with it what it likes."""
    _provide_programs()
    chosen = variant or SlurmVariant()
    with sharing.private(__name__, lambda folder: _open(folder, chosen)) as cluster:
        yield cluster


def cluster_in(folder: Path) -> Cluster:
    """The one that is there, of whatever variant, to be ended."""
    return Cluster(folder, SlurmVariant())


def _open(folder: Path, variant: SlurmVariant) -> Cluster:
    folder.chmod(0o755)  # its user has to get in
    return Cluster(folder, variant)


def _provide_programs() -> None:
    if os.geteuid() != 0:
        unavailable("slurm", "a cluster of its own needs root", "run the tests as root")
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(probe, capture_output=True, timeout=30).returncode != 0:
        unavailable("slurm", "root may not mount here", "run the tests with CAP_SYS_ADMIN")
    provide(_PROGRAMS, _PACKAGES, "slurm")
    (cache() / "slurm").mkdir(exist_ok=True)
    with locked(cache() / "slurm" / "user.lock"):
        try:
            pwd.getpwnam(USER)
        except KeyError:
            _provide_user()


def _provide_user() -> None:
    # A password that nobody has: a locked user could not log in with a key either.
    words = ["useradd", "-m", "-s", "/bin/bash", "-p", "*", USER]
    if os.environ.get("TAO_LAB_INSTALL") != "1":
        unavailable(
            "slurm", f"there is no user {USER!r}", f"TAO_LAB_INSTALL=1, or: {shlex.join(words)}"
        )
    subprocess.run([find(words[0]), *words[1:]], check=True, timeout=60)
