"""Who uses a cluster: the first starts it, the last one ends it; if all were killed, a guard does.

`python -m lab.slurm.sharing FOLDER` is that guard. Users hold a shared lock on a file of the
folder that says where the cluster is; the kernel drops the lock with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lab import unavailable
from lab.docker.packages import cache, find, locked, provide
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
        # Not in /tmp, which containers see: what a job is not given it must not find.
        folder = Path(tempfile.mkdtemp(prefix="tao-slurm-", dir="/var/tmp"))
        self._record.write_text(str(folder))
        folder.chmod(0o755)
        return folder

    def end(self) -> None:
        """End the cluster, or what is left of one whose users were killed."""
        if self._record.exists():
            Cluster(self.found(), SlurmVariant()).down()
            self._record.unlink()


@contextlib.contextmanager
def shared_cluster(variant: SlurmVariant | None = None, name: str = "tests") -> Iterator[Cluster]:
    """The cluster of this kind that all test processes of this machine share."""
    chosen = variant or SlurmVariant()
    _provide_programs()
    folder = cache() / "slurm" / f"{name}-{chosen.key}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _used(_Place(folder), chosen) as cluster:
        yield cluster


@contextlib.contextmanager
def private_cluster(variant: SlurmVariant | None = None) -> Iterator[Cluster]:
    """A cluster for one test, which may do with it what it likes."""
    _provide_programs()
    folder = Path(tempfile.mkdtemp(prefix="tao-slurm-private-"))
    try:
        with _used(_Place(folder), variant or SlurmVariant(), "remove") as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _used(place: _Place, variant: SlurmVariant, *guard: str) -> Iterator[Cluster]:
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


def _start_guard(place: _Place, *words: str) -> None:
    subprocess.Popen(
        [sys.executable, "-m", "lab.slurm.sharing", str(place.folder), *words],
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
