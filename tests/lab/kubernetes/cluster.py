"""Starting and ending a cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from lab.docker.engine import discard
from lab.kubernetes import cgroups, control_plane, extensions, images, node, pki, programs
from lab.kubernetes.api import Api, Object
from lab.kubernetes.fabric import Fabric
from lab.kubernetes.layout import Endpoints, Layout
from lab.kubernetes.variant import KubeVariant
from lab.processes import descendants, end_all, kill, lives, start, wait_until

ADMIN, ALICE = "admin", "alice"
"""An administrator, and a user who may only do what a namespace lets her."""
REGISTRY_PORT = 5000
_LAST_CHARACTERS = 600
_TESTS = Path(__file__).parents[2]


class Cluster:
    """A control plane, and nodes where the variant has them."""

    def __init__(self, folder: Path, variant: KubeVariant) -> None:
        self.layout = Layout(folder)
        self.variant = variant

    @property
    def folder(self) -> Path:
        return self.layout.folder

    @property
    def programs(self) -> dict[str, str]:
        """Where the programs of Kubernetes are, by name."""
        return programs.provide(nodes=bool(self.variant.nodes))

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"node{number}" for number in range(self.variant.nodes))

    @property
    def endpoints(self) -> Endpoints:
        return Endpoints.load(self.layout)

    @property
    def fabric(self) -> Fabric:
        return Fabric.load(self.layout)

    @property
    def admin(self) -> Api:
        return Api(self.layout.kubeconfigs / ADMIN)

    def write_kubeconfig(self, path: Path, user: dict[str, str], namespace: str) -> None:
        authority = self.layout.pki / "ca.crt"
        pki.write_kubeconfig(path, self.endpoints.server, authority, user, namespace)

    def up(self) -> None:
        """Start everything and wait until it is of use."""
        self.layout.make()
        try:
            self._start_everything()
        except AssertionError as error:
            # The logs go with the cluster.
            raise AssertionError(f"{error}\n{self._last_words()}") from error

    def down(self) -> None:
        """End everything, whoever started it, and remove all that it left."""
        end_all(self.folder)
        cgroups.remove(self.layout.tag)
        Fabric.remove(self.layout.tag)
        discard(self.folder)

    # --- the control plane

    def start_apiserver(self) -> None:
        words = control_plane.apiserver(self.layout, self.endpoints, self.variant)
        self._start("kube-apiserver", [self.programs["kube-apiserver"], *words])
        # What comes before the roles are there gives up.
        wait_until(lambda: self.admin.answers(), "the API server does not answer")

    def stop_apiserver(self) -> None:
        """As a crash would: it would let requests finish for a minute."""
        self.stop("kube-apiserver")

    def start_controller_manager(self) -> None:
        words = control_plane.controller_manager(self.layout, self.endpoints, self.variant)
        name = "kube-controller-manager"
        self._start(name, [self.programs[name], *words])

    def start_scheduler(self) -> None:
        words = control_plane.scheduler(self.layout, self.endpoints)
        self._start("kube-scheduler", [self.programs["kube-scheduler"], *words])

    def stop(self, daemon: str) -> None:
        """End a daemon at once."""
        pid = self._pid(daemon)
        kill(pid)
        wait_until(lambda: _has_ended(pid), f"{daemon} does not end")

    # --- nodes

    def start_node(self, name: str) -> None:
        """Switch a node on."""
        number = self.nodes.index(name)
        words = node.prepare(self.layout, name, number, self.fabric, self.variant, self.programs)
        self._start(name, words)

    def wait_for_node(self, name: str) -> None:
        wait_until(lambda: self.is_ready(name), f"{name} does not get ready", 120)

    def kill_node(self, name: str) -> None:
        """A node loses its power: everything on it is gone at once."""
        members = descendants(self._pid(name))
        self.stop(name)
        wait_until(lambda: not any(map(lives, members)), f"processes of {name} do not end")

    def pause_node(self, name: str) -> None:
        """A node hangs: nothing on it goes on, pods neither."""
        _send(signal.SIGSTOP, descendants(self._pid(name)))

    def resume_node(self, name: str) -> None:
        _send(signal.SIGCONT, descendants(self._pid(name)))

    def cut_node(self, name: str) -> None:
        """A node loses its network: its pods go on, unseen."""
        self.fabric.set_link(self.nodes.index(name), "down")

    def mend_node(self, name: str) -> None:
        self.fabric.set_link(self.nodes.index(name), "up")

    def set_gpus(self, name: str, count: int) -> None:
        """A node has so many GPUs from now on; nothing in its pods tells of them."""
        amount = {"nvidia.com/gpu": str(count) if count else None}
        status = {"capacity": amount, "allocatable": amount}
        self.admin.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def is_ready(self, name: str) -> bool:
        """Does a node say that it takes pods?"""
        path = f"/api/v1/nodes/{name}"
        return self.admin.exists(path) and _is_ready(self.admin.get(path))

    # --- starting

    def _start_everything(self) -> None:
        host = "127.0.0.1"
        if self.variant.nodes:
            host = Fabric.make(self.layout, self.variant.nodes).host
        Endpoints.choose(host).save(self.layout)
        if self.variant.nodes:
            self.fabric.allow_api(self.endpoints.api, self.variant.nodes)
        self._make_users()
        # Nodes have enough to do until the control plane answers.
        for name in self.nodes:
            self.start_node(name)
        self._start_control_plane()
        if self.variant.extended:
            extensions.install(self.layout, self.admin, self._start)
        if self.variant.nodes:
            self._start_helpers()
            for name in self.nodes:
                self.wait_for_node(name)
                self.set_gpus(name, self.variant.gpus_per_node)

    def _make_users(self) -> None:
        folder, endpoints = self.layout.pki, self.endpoints
        pki.make_authority(folder)
        inside = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        names = ("127.0.0.1", endpoints.host, control_plane.API_SERVICE, "localhost", *inside)
        pki.issue_server(folder, "apiserver", names)
        pki.issue_user(folder, "apiserver-client", "kube-apiserver", ["system:masters"])
        pki.issue_user(folder, ADMIN, "admin", ["system:masters"])
        pki.issue_user(folder, ALICE, "alice", ["team"])
        pki.issue_user(folder, "scheduler", "system:kube-scheduler")
        for number, name in enumerate(self.nodes):
            pki.issue_user(folder, name, f"system:node:{name}", ["system:nodes"])
            pki.issue_server(folder, f"{name}-serving", [name, self.fabric.address(number)])
        for user in (ADMIN, ALICE, "scheduler", *self.nodes):
            path = self.layout.kubeconfigs / user
            self.write_kubeconfig(path, pki.user_of_certificate(folder, user), "default")

    def _start_control_plane(self) -> None:
        words = control_plane.etcd(self.layout, self.endpoints)
        self._start("etcd", [self.programs["etcd"], *words])
        self.start_apiserver()
        self.start_controller_manager()
        self.start_scheduler()
        for port in (self.endpoints.controller_manager, self.endpoints.scheduler):
            healthy = partial(_is_healthy, port, self.layout.pki / "ca.crt")
            wait_until(healthy, f"nothing healthy at port {port}")
        # Pods are refused before that.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(lambda: self.admin.exists(account), "there is no account for pods")

    def _start_helpers(self) -> None:
        """The names of Services, and a registry: nodes look for both at the host's address."""
        host = self.fabric.host
        asked = {
            "dns": (host, str(self.layout.kubeconfigs / ADMIN)),
            "registry": (host, str(REGISTRY_PORT), str(images.provide() / "private")),
        }
        for name, words in asked.items():
            program = (sys.executable, "-m", f"lab.kubernetes.{name}")
            self._start(name, [*program, *words], PYTHONPATH=str(_TESTS))

    def _start(self, name: str, words: Sequence[str], **variables: str) -> None:
        started = start(self.folder, self.layout.logs / f"{name}.log", words, **variables)
        (self.layout.state / f"{name}.pid").write_text(str(started.pid))

    def _last_words(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"{log.name}: ...{log.read_text()[-_LAST_CHARACTERS:]}"
            for log in sorted(self.layout.logs.iterdir())
        )

    def _pid(self, daemon: str) -> int:
        return int((self.layout.state / f"{daemon}.pid").read_text())


def _has_ended(pid: int) -> bool:
    """With its last thread, which may hold sockets for a moment after the first has ended."""
    return not lives(pid) and len(list(Path(f"/proc/{pid}/task").glob("*"))) <= 1


def _is_ready(found: Object) -> bool:
    conditions = found["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _is_healthy(port: int, authority: Path) -> bool:
    context = ssl.create_default_context(cafile=authority)
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().read() == b"ok"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _send(what: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, what)
