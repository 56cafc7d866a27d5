"""Which cluster, and as whom: what a request needs to be let in.

The order is kubectl's: the files of KUBECONFIG or ~/.kube/config, then a pod's service account.
"""

from __future__ import annotations

import base64
import logging
import ssl
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.platforms.kubernetes import credentials, kubeconfig, tls
from tao_sdk.platforms.kubernetes.credentials import (
    COULD_NOT,
    Credential,
    CredentialSource,
    NoAccessError,
)
from tao_sdk.platforms.kubernetes.exec_plugin import ExecPlugin, cluster_info
from tao_sdk.platforms.kubernetes.kubeconfig import Chosen, Entry, KubeconfigError
from tao_sdk.platforms.kubernetes.routes import Route, route

__all__ = ["IN_CLUSTER", "ClusterAccess", "NoAccessError"]

IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WHAT_TO_DO = (
    "Run `kubectl get nodes` to check the configuration, set KUBECONFIG to the right file, or "
    "TAO_K8S_CONTEXT to one of its contexts."
)

_log = logging.getLogger("tao_sdk.kubernetes")


class ClusterAccess:
    """The server of a cluster, how it proves itself, and how we do.

    Objects share nothing: two clusters in one process do not know of each other.
    """

    def __init__(
        self,
        *,
        context: str,
        namespace: str,
        source: str,
        cluster: Entry,
        user: Entry,
        credential: CredentialSource,
    ) -> None:
        self.server: str = cluster.text("server").rstrip("/")
        """https://host:port[/path]"""
        self.context = context
        """The context of the kubeconfig; "in-cluster" inside a pod."""
        self.namespace = namespace
        """The context's own, or ""."""
        self.source = source
        """Where this was found, for messages."""
        self.compressed = not cluster.flag("disable-compression")
        """Whether the server may compress what it sends."""
        self.route: Route = route(
            self.server, cluster.text("tls-server-name"), cluster.text("proxy-url")
        )
        self.impersonation = _impersonation(user)
        """Headers, for those who may act as somebody else."""
        self._cluster = cluster
        self._credential = credential
        self._insecure = cluster.flag("insecure-skip-tls-verify")
        self._contexts: tuple[object, ssl.SSLContext] | None = None
        if self._insecure and self.route.encrypted:
            _log.warning(
                "%s: whoever answers is believed to be the server (insecure-skip-tls-verify)", self
            )

    def __repr__(self) -> str:
        return f"ClusterAccess({self})"

    def __str__(self) -> str:
        return f"{self.server} (context {self.context} of {self.source})"

    @classmethod
    def find(cls, context: str | None = None) -> ClusterAccess:
        """KUBECONFIG or ~/.kube/config, read as kubectl does; else the pod's service account.

        Without `context`, TAO_K8S_CONTEXT and then the current context decide. Raises
        `NoAccessError` (a `CredentialError` and a `BackendUnreachableError`).
        """
        wanted = context or settings.lookup("TAO_K8S_CONTEXT")
        files = kubeconfig.paths()
        severity = logging.WARNING
        try:
            found = kubeconfig.read(files)
            if found.files:
                return cls._of_context(found.choose(wanted))
            problem = f"there is no {' or '.join(map(str, files))}"
            severity = logging.DEBUG
        except KubeconfigError as error:
            problem = str(error)
        if wanted:
            # Somebody chose a cluster: no other one will do.
            raise NoAccessError(f"{COULD_NOT}: context {wanted!r}: {problem}. {_WHAT_TO_DO}")
        try:
            inside = cls._of_pod()
        except KubeconfigError as error:
            raise NoAccessError(
                f"{COULD_NOT}: neither a kubeconfig nor a service account helps. "
                f"Kubeconfig: {problem}. In-cluster: {error}. {_WHAT_TO_DO}"
            ) from None
        _log.log(severity, "%s; %s is used", problem, inside)
        return inside

    @classmethod
    def _of_context(cls, chosen: Chosen) -> ClusterAccess:
        cluster, user = chosen.cluster, chosen.user
        if not cluster.text("server"):
            raise KubeconfigError(f"{cluster.file}: cluster {cluster.name!r} has no server")
        if cluster.flag("insecure-skip-tls-verify") and _has_authority(cluster):
            raise KubeconfigError(
                f"{cluster.file}: cluster {cluster.name!r} has a certificate-authority and "
                "insecure-skip-tls-verify: leave out one of them"
            )

        def plugin() -> ExecPlugin:
            return ExecPlugin(user, _told_to_plugins(cluster))

        return cls(
            context=chosen.context.name,
            namespace=chosen.namespace,
            source=str(chosen.context.file),
            cluster=cluster,
            user=user,
            credential=credentials.of_user(user, plugin),
        )

    @classmethod
    def _of_pod(cls) -> ClusterAccess:
        host = settings.lookup("KUBERNETES_SERVICE_HOST")
        port = settings.lookup("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise KubeconfigError("KUBERNETES_SERVICE_HOST is not set, so this is no pod")
        token = SERVICE_ACCOUNT / "token"
        if not token.exists():
            raise KubeconfigError(f"the pod has no service account: there is no {token}")
        address = f"[{host}]" if ":" in host else host
        values = {
            "server": f"https://{address}:{port}",
            "certificate-authority": str(SERVICE_ACCOUNT / "ca.crt"),
        }
        namespace = SERVICE_ACCOUNT / "namespace"
        return cls(
            context=IN_CLUSTER,
            namespace=namespace.read_text().strip() if namespace.exists() else "",
            source=str(SERVICE_ACCOUNT),
            cluster=Entry(IN_CLUSTER, values, SERVICE_ACCOUNT),
            user=Entry(IN_CLUSTER, {}, SERVICE_ACCOUNT),
            credential=credentials.of_token_file(token),
        )

    # ------------------------------------------------------------------ for connections

    def credential(self) -> Credential:
        """What the next request is sent with."""
        return self._credential.current()

    def instead_of(self, refused: Credential) -> Credential | None:
        """Another credential than that which the server refused, if there is any."""
        return self._credential.instead_of(refused)

    def tls(self, credential: Credential) -> ssl.SSLContext | None:
        """For a new connection; None where nothing is encrypted."""
        if not self.route.encrypted:
            return None
        try:
            authority = credentials.pem(self._cluster, "certificate-authority")
        except KubeconfigError as error:
            raise NoAccessError(f"{COULD_NOT}: {error}") from None
        # Making one takes milliseconds, and files may have changed since.
        kind = (authority, credential.certificate, credential.key)
        made = self._contexts
        if made is None or made[0] != kind:
            made = self._contexts = (kind, tls.context(authority, self._insecure, credential))
        return made[1]


def _has_authority(cluster: Entry) -> bool:
    return bool(cluster.text("certificate-authority") or cluster.text("certificate-authority-data"))


def _told_to_plugins(cluster: Entry) -> dict[str, Any]:
    authority = credentials.pem(cluster, "certificate-authority")
    return cluster_info(cluster, base64.b64encode(authority.encode()).decode("ascii"))


def _impersonation(user: Entry) -> list[tuple[str, str]]:
    headers = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.texts("as-groups")]
    for key, values in user.mapping("as-user-extra").items():
        headers += [(f"Impersonate-Extra-{key}", str(value)) for value in values]
    return [(name, value) for name, value in headers if value]
