"""Who uses a cluster: the first starts it, the last one ends it; if all were killed, a guard does.

`python -m lab.kubernetes.sharing FOLDER` is that guard. Users hold a shared lock on a file of the
folder that says where the cluster is; the kernel drops the lock with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lab import unavailable
from lab.docker.packages import cache, locked, provide
from lab.kubernetes import cgroups, images, node, programs
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.variant import CONTROL_PLANE, KubeVariant

_PROGRAMS = ("containerd", "runc", "iptables", "ip", "busybox", "nsenter", str(node.CNI / "bridge"))
_PACKAGES = (
    *("containerd", "runc", "iptables", "iproute2", "busybox-static", "util-linux"),
    "containernetworking-plugins",
)
_TESTS = Path(__file__).parents[2]


class _Place:
    """The folder through which test processes agree on a cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start_lock = folder / "start.lock"
        self._record = folder / "cluster"

    def open_users(self) -> int:
        return os.open(self.folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def found(self) -> Path:
        """Where the cluster is."""
        return Path(self._record.read_text())

    def holds(self, cluster: Path) -> bool:
        return self._record.exists() and self.found() == cluster

    def new(self) -> Path:
        """A folder for a new cluster."""
        # Not in /tmp, which pods may be given: what a job is not given it must not find.
        folder = Path(tempfile.mkdtemp(prefix="tao-kube-", dir="/var/tmp"))
        self._record.write_text(str(folder))
        return folder

    def end(self) -> None:
        """End the cluster, or what is left of one whose users were killed."""
        if self._record.exists():
            Cluster(self.found(), CONTROL_PLANE).down()
            self._record.unlink()


@contextlib.contextmanager
def shared_cluster(variant: KubeVariant = CONTROL_PLANE, name: str = "tests") -> Iterator[Cluster]:
    """The cluster of this kind that all test processes of this machine share."""
    _provide_programs(variant)
    folder = cache() / "kubernetes" / f"{name}-{variant.key}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _used(_Place(folder), variant) as cluster:
        yield cluster


@contextlib.contextmanager
def private_cluster(variant: KubeVariant = CONTROL_PLANE) -> Iterator[Cluster]:
    """A cluster for one test, which may do with it what it likes."""
    _provide_programs(variant)
    folder = Path(tempfile.mkdtemp(prefix="tao-kube-private-"))
    try:
        with _used(_Place(folder), variant, "remove") as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _used(place: _Place, variant: KubeVariant, *guard: str) -> Iterator[Cluster]:
    """Be a user of the cluster."""
    users = place.open_users()
    try:
        with locked(place.start_lock):
            is_first = _is_unused(users)
            fcntl.flock(users, fcntl.LOCK_SH)
            if is_first:
                place.end()
                cluster = Cluster(place.new(), variant)
                _start_guard(place, *guard)
                cluster.up()
        yield Cluster(place.found(), variant)
    finally:
        with locked(place.start_lock):
            if _is_unused(users):
                place.end()
            os.close(users)  # still under the lock: the next may be the last


def _is_unused(users: int) -> bool:
    """Does nobody else use the cluster? Changes our own lock."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _provide_programs(variant: KubeVariant) -> None:
    if variant.nodes:
        _provide_for_nodes()
    programs.provide(nodes=bool(variant.nodes))


def _provide_for_nodes() -> None:
    if os.geteuid() != 0:
        unavailable("kubernetes", "real nodes need root", "run the tests as root")
    probe = ["unshare", "--mount", "--net", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(probe, capture_output=True, timeout=30).returncode != 0:
        unavailable("kubernetes", "root may not mount here", "run the tests with CAP_SYS_ADMIN")
    if not cgroups.available():
        reason = "no control groups of version 1 that can be written"
        unavailable("kubernetes", reason, "run the tests on a machine that has them")
    provide(_PROGRAMS, _PACKAGES, "kubernetes")
    images.provide()


def _start_guard(place: _Place, *words: str) -> None:
    subprocess.Popen(
        [sys.executable, "-m", "lab.kubernetes.sharing", str(place.folder), *words],
        cwd=_TESTS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _guard(folder: Path, *, remove: bool) -> None:
    place = _Place(folder)
    with contextlib.suppress(FileNotFoundError):  # its users have removed it
        users = place.open_users()
        cluster = place.found()
        while place.holds(cluster):
            with locked(place.start_lock):
                if place.holds(cluster) and _is_unused(users):
                    place.end()
                    if remove:
                        shutil.rmtree(folder)
            time.sleep(1)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), remove="remove" in sys.argv[2:])
