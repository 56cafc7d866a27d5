"""Starting and ending the daemons of a cluster, and speaking to it without ssh."""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from lab.docker.engine import discard
from lab.packages import cache, find, locked
from lab.processes import end_all, kill, lives, start, wait_until
from lab.slurm import cgroups, configuration, images
from lab.slurm.configuration import CLUSTER, GPUS_PER_NODE, Layout, Ports
from lab.slurm.database import Database
from lab.slurm.variant import SlurmVariant

USER = "taouser"
ACCOUNT = "taoaccount"
NODES = 3
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SOURCES = Path(__file__).parent


class Cluster:
    """Three nodes, a controller, and the accounting where the variant has it."""

    def __init__(self, folder: Path, variant: SlurmVariant) -> None:
        self.layout = Layout(folder)
        self.variant = variant
        self._database = Database(folder, self.layout.logs / "mariadb.log")

    @property
    def folder(self) -> Path:
        return self.layout.folder

    @property
    def nodes(self) -> tuple[str, ...]:
        """No other cluster of this machine has a node of that name: they name control groups."""
        tag = self.folder.name.rpartition("-")[2]
        return tuple(f"node-{tag}-{number}" for number in range(1, NODES + 1))

    @property
    def environment(self) -> dict[str, str]:
        """What a login host and a node have in their environment."""
        return {
            "PATH": f"{self.layout.programs}:{_PATH}",
            "SLURM_CONF": str(self.layout.slurm_conf),
        }

    def forget_jobs(self, name: str) -> None:
        """Remove jobs of this name from the accounting, if there is any."""
        if self.variant.accounting:
            self._database.forget_jobs(name)

    def run_as_root(self, *words: str, check: bool = True) -> str:
        """Run a program of the cluster as its administrator; what it prints."""
        return _run(words, self.environment, check)

    def run_as_user(self, home: Path, *words: str, check: bool = True, stdin: str = "") -> str:
        """Run a program as the user, without ssh; what it prints."""
        entry = pwd.getpwnam(USER)
        groups = ("--reuid", USER, "--regid", str(entry.pw_gid), "--clear-groups", "--")
        variables = {**self.environment, "HOME": str(home), "USER": USER, "LOGNAME": USER}
        return _run(("setpriv", *groups, *words), variables, check, home, stdin)

    @property
    def alive(self) -> bool:
        """Does the controller answer?"""
        return self.layout.slurm_conf.exists() and "is UP" in self.run_as_root(
            "scontrol", "ping", check=False
        )

    def up(self) -> None:
        """Start everything and wait until all nodes are idle."""
        self._write_files()
        self._start_munge()
        if self.variant.accounting:
            self._start_accounting()
        self.start_controller(wait=False)
        for node in self.nodes:
            self.start_slurmd(node)
        self.wait_for_controller()
        wait_until(self._all_idle, f"nodes do not get idle: see {self.layout.logs}")

    def down(self) -> None:
        """End everything, whoever started it, and remove all that it left."""
        cgroups.thaw_groups_of(self.nodes)
        end_all(self.folder)
        cgroups.remove_groups_of(self.nodes)
        discard(self.folder)

    def start_controller(self, *, wait: bool = True) -> None:
        self._start("slurmctld", ["slurmctld", "-D"])
        if wait:
            self.wait_for_controller()

    def wait_for_controller(self) -> None:
        wait_until(lambda: self.alive, f"slurmctld does not answer: see {self.layout.logs}")

    def stop_controller(self) -> None:
        self._stop("slurmctld", signal.SIGTERM)

    def start_slurmd(self, node: str) -> None:
        self._start(f"slurmd.{node}", ["slurmd", "-D", "-N", node])

    def kill_slurmd(self, node: str) -> None:
        """End a node's daemon as a crash would; the steps of jobs go on."""
        self._stop(f"slurmd.{node}", signal.SIGKILL)

    def state_of_node(self, node: str) -> str:
        return self.run_as_root("sinfo", "-h", "-n", node, "-o", "%T").split()[0]

    def _all_idle(self) -> bool:
        words = ("sinfo", "-h", "-N", "-p", "batch", "-o", "%t")
        return self.run_as_root(*words, check=False).split() == ["idle"] * NODES

    def _write_files(self) -> None:
        layout, variant = self.layout, self.variant
        for place in (layout.etc, layout.logs, layout.programs, layout.plugin.parent):
            place.mkdir(parents=True)
        for name in ("controller", *self.nodes):
            (layout.spool / name).mkdir(parents=True)
        devices = self.folder / "dev"
        devices.mkdir()
        for number in range(GPUS_PER_NODE):
            os.mknod(devices / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        ports = _free_ports()
        texts = {
            "slurm.conf": configuration.slurm_conf(layout, variant, ports, self.nodes),
            "slurmdbd.conf": configuration.slurmdbd_conf(layout, ports),
            "gres.conf": configuration.gres_conf(devices),
            "cgroup.conf": configuration.cgroup_conf(),
            "plugstack.conf": configuration.plugstack_conf(layout, variant),
        }
        for name, text in texts.items():
            (layout.etc / name).write_text(text)
        (layout.etc / "slurmdbd.conf").chmod(0o600)
        (layout.etc / "ports.json").write_text(json.dumps(ports._asdict()))
        layout.shared.mkdir(parents=True)
        layout.containers.mkdir()
        # The upper part of an overlay cannot be on another overlay, which /var/tmp may be on.
        self.run_as_root("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(layout.containers))
        if variant.pyxis:
            shutil.copy(_compiled_plugin(), layout.plugin)
        if variant.enroot:
            shutil.copy(_SOURCES / "enroot", layout.programs / "enroot")
            (layout.programs / "enroot").chmod(0o755)
        images.provide(layout, USER)

    def _start_munge(self) -> None:
        place = self.layout.munge_socket.parent
        place.mkdir()
        (place / "key").write_bytes(secrets.token_bytes(1024))
        (place / "key").chmod(0o600)
        for path in (place, place / "key"):
            shutil.chown(path, "munge", "munge")
        files = (f"--{name}-file={place}/{name}" for name in ("key", "pid", "log", "seed"))
        drop = ("setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups")
        self._start(
            "munged",
            [*drop, find("munged"), "-F", f"--socket={self.layout.munge_socket}", *files],
        )
        ask = ("munge", "-n", "-S", str(self.layout.munge_socket))
        wait_until(lambda: self.run_as_root(*ask, check=False), "munged does not answer")

    def _start_accounting(self) -> None:
        port = json.loads((self.layout.etc / "ports.json").read_text())["database"]
        archive = _database_archive()
        with locked(archive.with_suffix(".lock")):
            if not archive.exists():
                self._make_archive(archive, port)
        self._database.unpack(archive)
        self._database.start(port)
        self._start_slurmdbd()

    def _make_archive(self, archive: Path, port: int) -> None:
        """Keep a database that knows the cluster, an account and the user, and no job yet."""
        self._database.make()
        server = self._database.start(port)
        self._database.grant()
        self._start_slurmdbd()
        manage = ("sacctmgr", "-i", "-Q", "add")
        self.run_as_root(*manage, "cluster", CLUSTER)
        self.run_as_root(*manage, "account", ACCOUNT, f"cluster={CLUSTER}")
        self.run_as_root(*manage, "user", USER, f"account={ACCOUNT}")
        self._stop("slurmdbd", signal.SIGTERM)
        self._database.stop(server)
        self._database.pack(archive)
        shutil.rmtree(self.folder / "mysql")

    def _start_slurmdbd(self) -> None:
        self._start("slurmdbd", ["slurmdbd", "-D"])
        ask = [find("sacctmgr"), "-n", "-P", "show", "cluster"]
        wait_until(
            lambda: (
                not subprocess.run(
                    ask, env=self.environment, capture_output=True, timeout=60
                ).returncode
            ),
            f"slurmdbd does not answer: see {self.layout.logs}",
        )

    def _start(self, name: str, words: Sequence[str]) -> None:
        started = start(
            self.folder,
            self.layout.logs / f"{name}.out",
            words,
            SLURM_CONF=str(self.layout.slurm_conf),
        )
        (self.layout.spool / f"{name}.started").write_text(str(started.pid))

    def _stop(self, name: str, how: signal.Signals) -> None:
        pid = int((self.layout.spool / f"{name}.started").read_text())
        if how is signal.SIGKILL:
            kill(pid)
        elif lives(pid):
            os.kill(pid, how)
        wait_until(lambda: not lives(pid), f"{name} does not end")


def _run(
    words: Sequence[str],
    environment: Mapping[str, str],
    check: bool,
    folder: Path = Path("/"),
    stdin: str = "",
) -> str:
    done = subprocess.run(
        words,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=environment,
    )
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def _free_ports() -> Ports:
    with ExitStack() as held:
        taken = [
            held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3 + NODES)
        ]
        first, second, third, *rest = (int(one.getsockname()[1]) for one in taken)
        return Ports(first, second, third, tuple(rest))


def _compiled_plugin() -> Path:
    """The stand-in for Pyxis, compiled once for this Slurm."""
    source = _SOURCES / "pyxis.c"
    made = cache() / "slurm" / f"pyxis-{images.digest(source.read_bytes(), _version())}.so"
    with locked(made.with_suffix(".lock")):
        if not made.exists():
            partial = made.with_suffix(".partial")
            words = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(partial), str(source)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            partial.replace(made)
    return made


def _database_archive() -> Path:
    known = repr((_version(), CLUSTER, ACCOUNT, USER)).encode()
    return cache() / "slurm" / f"accounting-{images.digest(known, '')}.tar"


def _version() -> str:
    told = subprocess.run([find("slurmctld"), "-V"], capture_output=True, text=True, timeout=30)
    found = re.search(r"\S+\s*$", told.stdout)
    assert found, told
    return found[0].strip()
