"""What a test has of a cluster: login hosts and a shared folder of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from lab.processes import wait_until
from lab.slurm.cluster import USER, Cluster
from lab.slurm.images import PRIVATE_REGISTRY, REGISTRY_PASSWORD, REGISTRY_USER
from lab.slurm.login import CommandLog, Login, LoginHost, login
from lab.slurm.variant import LoginVariant

_ROUND_SECONDS = 5
_UP = ("idle", "mixed", "allocated", "completing")
# On its way from one attempt to the next.
_NOT_YET_AGAIN = ("PENDING", "PREEMPTED", "NODE_FAIL", "REQUEUED", "COMPLETING")


class SlurmLab:
    """A cluster as one test sees it."""

    user = USER

    def __init__(self, cluster: Cluster, way_in: Login, shared: Path, home: Path) -> None:
        self.cluster = cluster
        self.login = way_in
        self.shared = shared
        """A folder of the user on the file system that login hosts and nodes share."""
        self.home = home
        """The user's home, as sessions and jobs see it."""

    # --- the way in

    @property
    def hosts(self) -> list[str]:
        """The names of the login hosts, as `ssh_config` knows them."""
        return [host.name for host in self.login.hosts]

    @property
    def ports(self) -> list[int]:
        return [host.port for host in self.login.hosts]

    @property
    def ssh_config(self) -> Path:
        return self.login.ssh_config

    @property
    def known_hosts(self) -> Path:
        return self.login.known_hosts

    @property
    def key(self) -> Path:
        return self.login.key

    @property
    def command_log(self) -> CommandLog:
        return self.login.command_log

    def environment(self) -> dict[str, str]:
        """The variables that make a client use this lab."""
        return {
            "SLURM_USER": self.user,
            "SLURM_HOSTNAME": ",".join(self.hosts),
            "SLURM_SSH_CONFIG": str(self.ssh_config),
            "SSH_KEY_PATH": str(self.key),
            "SLURM_BASE_RESULTS_DIR": str(self.shared),
            "SLURM_CONTAINER_MOUNTS": str(self.shared),
            "SLURM_PARTITION": "batch",
        }

    def ssh(
        self, command: str, *, host: str = "", stdin: str = "", timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a login host."""
        words = ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", host or self.hosts[0]]
        return subprocess.run(
            [*words, command], input=stdin, capture_output=True, text=True, timeout=timeout
        )

    def stop_sshd(self, host: str = "") -> None:
        """A login host is gone, or all of them."""
        for one in self._hosts_named(host):
            one.stop()

    def start_sshd(self, host: str = "") -> None:
        for one in self._hosts_named(host):
            one.start()

    def drop_connections(self) -> None:
        """Whoever is logged in is thrown out, and can come back."""
        for host in self.login.hosts:
            host.drop_connections()

    def _hosts_named(self, name: str) -> list[LoginHost]:
        return [host for host in self.login.hosts if name in ("", host.name)]

    # --- the cluster

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.cluster.nodes

    @property
    def images(self) -> dict[str, Path]:
        """The image files by name: busybox, python, trainer."""
        return {path.stem: path for path in self.cluster.layout.images.iterdir()}

    def run_as_root(self, *words: str, check: bool = True) -> str:
        return self.cluster.run_as_root(*words, check=check)

    def run_as_user(self, *words: str, check: bool = True, stdin: str = "") -> str:
        return self.cluster.run_as_user(self.home, *words, check=check, stdin=stdin)

    def stop_controller(self) -> None:
        self.cluster.stop_controller()

    def start_controller(self) -> None:
        self.cluster.start_controller()

    def kill_slurmd(self, node: str) -> None:
        self.cluster.kill_slurmd(node)

    def start_slurmd(self, node: str) -> None:
        self.cluster.start_slurmd(node)

    def node_down(self, node: str) -> None:
        """An administrator takes a node away; its jobs end, or go back to the queue."""
        self.run_as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=lab")

    def resume(self, node: str) -> None:
        """The node takes jobs again, if it did not."""
        if self.cluster.state_of_node(node) not in _UP:
            self.run_as_root("scontrol", "update", f"nodename={node}", "state=resume")
        wait_until(lambda: self.cluster.state_of_node(node) in _UP, f"{node} does not come back")

    def release_requeued(self, job: str) -> None:
        """Start a requeued job now: Slurm would keep it from starting for two minutes."""
        looks: list[int] = []
        wait_until(lambda: self._is_released(job, looks), f"job {job} does not start again")

    def _is_released(self, job: str, looks: list[int]) -> bool:
        told = self.run_as_root("squeue", "-h", "-t", "all", "-j", job, "-o", "%T %r").split()
        # Asked for too early it is forgotten when the first attempt has ended; and in the second in
        # which that was, its node refuses the next one ("Job credential revoked").
        if told == ["PENDING", "BeginTime"]:
            looks.append(int(time.time()))
            if looks[-1] > looks[0]:
                words = ("scontrol", "update", f"jobid={job}", "starttime=now")
                self.run_as_root(*words, check=False)
        return told[0] not in _NOT_YET_AGAIN

    def forget(self, name: str) -> None:
        """Wait until the controller has forgotten jobs of this name; then accounting does, too."""
        wait_until(
            lambda: not self.run_as_root("squeue", "-h", "-t", "all", "-n", name),
            f"the controller does not forget {name}",
        )
        self.cluster.forget_jobs(name)

    def cancel_all(self) -> None:
        """Cancel the jobs that were started from this lab's folders, or write there."""
        told = self.run_as_root("scontrol", "-o", "show", "job", check=False).splitlines()
        ours = [line for line in told if str(self.home) in line or str(self.shared) in line]
        jobs = [line.split()[0].removeprefix("JobId=") for line in ours]
        if jobs:
            self.run_as_root("scancel", *jobs)

    def sign_in_to_private_registry(self) -> None:
        """Give the user the password of the private registry, where `enroot` looks for it."""
        place = self.home / ".config" / "enroot"
        place.mkdir(parents=True)
        line = f"machine {PRIVATE_REGISTRY} login {REGISTRY_USER} password {REGISTRY_PASSWORD}\n"
        (place / ".credentials").write_text(line)
        for path in (place.parent, place, place / ".credentials"):
            shutil.chown(path, self.user)


@contextlib.contextmanager
def slurm_lab(cluster: Cluster, way_in: LoginVariant | None = None) -> Iterator[SlurmLab]:
    """A test's share of a cluster."""
    shared, home = (_own_folder(cluster.layout.shared, name) for name in ("work-", "home-"))
    kind = way_in or LoginVariant()
    with (
        login(cluster.folder, USER, home, cluster.environment, kind) as opened,
        _administrator(cluster),
    ):
        lab = SlurmLab(cluster, opened, shared, home)
        try:
            yield lab
        finally:
            lab.cancel_all()


@contextlib.contextmanager
def _administrator(cluster: Cluster) -> Iterator[None]:
    """Lets go on what Slurm holds because a node that was too busy failed to launch it."""
    gone = threading.Event()

    def attend() -> None:
        while not gone.wait(_ROUND_SECONDS):
            with contextlib.suppress(subprocess.TimeoutExpired):  # a test may have taken it away
                listed = cluster.run_as_root("squeue", "-h", "-o", "%A %r", check=False)
                for line in listed.splitlines():
                    number, _, reason = line.partition(" ")
                    if reason == "launch failed requeued held":
                        cluster.run_as_root("scontrol", "release", number, check=False)

    threading.Thread(target=attend, daemon=True).start()
    try:
        yield
    finally:
        gone.set()


def _own_folder(place: Path, prefix: str) -> Path:
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    shutil.chown(made, USER, USER)
    return made
