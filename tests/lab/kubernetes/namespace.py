"""What a test has of a cluster: a namespace, those who may use it, and what is in it."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from lab.docker.registry import PASSWORD, USER
from lab.kubernetes import pki
from lab.kubernetes.api import Api, Object, RefusedError
from lab.kubernetes.cluster import ADMIN, ALICE, REGISTRY_PORT, Cluster
from lab.kubernetes.fake_nodes import SELECTOR, FakeNodes
from lab.processes import wait_until

_ROLES = "/apis/rbac.authorization.k8s.io/v1"
_VOLUMES = "/api/v1/persistentvolumes"
_MAY_USE = "edit"
"""The role that administrators give to users of a namespace."""


class Namespace:
    """A namespace of its own for one test."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.path = f"/api/v1/namespaces/{name}"
        self.jobs = f"/apis/batch/v1/namespaces/{name}/jobs"
        self.api = cluster.admin
        """As the administrator."""
        self.nodes = FakeNodes(self.api, name)
        """The nodes that this test plays, in a cluster without real ones."""

    def open(self) -> None:
        """Make it; alice may use it."""
        notes = {"scheduler.alpha.kubernetes.io/node-selector": f"{SELECTOR}={self.name}"}
        metadata = {"name": self.name, "annotations": {} if self.cluster.nodes else notes}
        self.api.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": metadata})
        self.bind_role(_MAY_USE, {"kind": "User", "name": ALICE})
        # Pods are refused before that.
        account = f"{self.path}/serviceaccounts/default"
        wait_until(lambda: self.api.exists(account), f"{self.name} gets no account")

    def close(self) -> None:
        """Have it deleted, with all that is in it; does not wait for that."""
        self.api.delete(self.jobs, propagationPolicy="Background")
        grace = "1" if self.cluster.nodes else "0"  # nobody else would end those on played nodes
        self.api.delete(f"{self.path}/pods", gracePeriodSeconds=grace)
        self.api.delete(self.path)
        self.nodes.remove_all()
        self.api.delete(_VOLUMES, labelSelector=f"{SELECTOR}={self.name}")

    # --- users

    def kubeconfig(self, user: str = ALICE) -> Path:
        """The file by which `alice` or `admin` gets in; without a word this namespace is meant."""
        path = self.cluster.layout.kubeconfigs / f"{self.name}.{user}"
        if not path.exists():
            certificate = pki.user_of_certificate(self.cluster.layout.pki, user)
            self.cluster.write_kubeconfig(path, certificate, self.name)
        return path

    def service_account(self, name: str = "robot", role: str = _MAY_USE) -> Path:
        """A service account with a role in this namespace (none for ""); its kubeconfig."""
        metadata = {"metadata": {"name": name}}
        try:
            self.api.create(f"{self.path}/serviceaccounts", {"kind": "ServiceAccount", **metadata})
        except RefusedError as refused:
            if refused.code != 409:  # `default` is there already
                raise
        if role:
            self.bind_role(role, {"kind": "ServiceAccount", "name": name, "namespace": self.name})
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        told = self.api.create(f"{self.path}/serviceaccounts/{name}/token", request)
        path = self.cluster.layout.kubeconfigs / f"{self.name}.account.{name}"
        self.cluster.write_kubeconfig(path, {"token": told["status"]["token"]}, self.name)
        return path

    def bind_role(self, role: str, subject: dict[str, str]) -> None:
        """Let somebody do in this namespace what a role of the cluster says."""
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{role}-{subject['name']}"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }
        self.api.create(f"{_ROLES}/namespaces/{self.name}/rolebindings", binding)

    def api_of(self, user: str = ALICE) -> Api:
        return Api(self.kubeconfig(user))

    def run_kubectl(
        self, *words: str, user: str = ADMIN, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.cluster.programs["kubectl"], f"--kubeconfig={self.kubeconfig(user)}", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def kubectl(self, *words: str, user: str = ADMIN, stdin: str = "") -> str:
        """What kubectl prints; it has to succeed."""
        done = self.run_kubectl(*words, user=user, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    # --- what jobs use

    def add_volume(self, claim: str = "data") -> Path:
        """A claim on a volume that all nodes share; the folder behind it on this machine."""
        name = f"{self.name}-{claim}"
        folder = self.cluster.layout.volumes / name
        folder.mkdir()
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
        volume = {
            "metadata": {"name": name, "labels": {SELECTOR: self.name}},
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": str(folder)},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
        self.api.create(_VOLUMES, {"kind": "PersistentVolume", **volume})
        asked = {**common, "resources": {"requests": {"storage": "1Gi"}}}
        body = {"kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": asked}
        self.api.create(f"{self.path}/persistentvolumeclaims", body)
        return folder

    @property
    def registry(self) -> str:
        """The registry that asks for a password, as nodes reach it."""
        return f"{self.cluster.fabric.host}:{REGISTRY_PORT}"

    def add_registry_secret(self, name: str = "registry") -> None:
        """A Secret with the password of the registry."""
        word = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        known = {"auths": {self.registry: {"auth": word}}}
        secret = {
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": json.dumps(known)},
        }
        self.api.create(f"{self.path}/secrets", secret)

    # --- what became of it

    def job(self, name: str) -> Object:
        return self.api.get(f"{self.jobs}/{name}")

    def pods(self, job: str = "") -> list[Object]:
        return self.nodes.pods(job)

    def log(self, pod: str) -> str:
        return self.api.text(f"{self.path}/pods/{pod}/log")
