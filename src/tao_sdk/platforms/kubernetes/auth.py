"""Which cluster to talk to, and the credentials for it: tokens, passwords, client certificates.

A credential may change while it is used: a token file is rewritten, a program's token expires.
`ClusterAccess` therefore returns one for each request, and another one after a refusal.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import os
import re
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, CredentialError
from tao_sdk.platforms.kubernetes import kubeconfig
from tao_sdk.platforms.kubernetes.kubeconfig import (
    Chosen,
    Entry,
    ExecPlugin,
    KubeconfigError,
    PluginError,
    cluster_info,
)
from tao_sdk.platforms.rest import Proxy, proxy_for
from tao_sdk.secrets import Secret

COULD_NOT = "Could not authenticate to a Kubernetes cluster"
IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# How long the contents of a file are used before it is read again, as in the official clients.
_FILE_SECONDS = 60.0
# A credential must not expire while its request is on its way.
_EXPIRY_MARGIN_SECONDS = 10.0
_WHAT_TO_DO = (
    "Run `kubectl get nodes` to check the configuration, set KUBECONFIG to the right file, or "
    "TAO_K8S_CONTEXT to one of its contexts."
)
_INSTEAD_OF_PROVIDER = {
    "gcp": "install gke-gcloud-auth-plugin and run `gcloud container clusters get-credentials`",
    "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    "oidc": "use an exec plugin (kubectl oidc-login)",
}

_log = logging.getLogger("tao_sdk.kubernetes")
# Besides letters and digits, the name of a header may have these characters.
_HEADER_NAME = "!#$&'*+-.^_`|~"


class NoAccessError(CredentialError, BackendUnreachableError):
    """The cluster could not be asked, because there is no credential for it."""


class Credential(NamedTuple):
    """The credential of one request."""

    authorization: Secret
    """The value of the header; may be empty."""
    certificate: str
    """In PEM; may be empty."""
    key: Secret


class Loaded(NamedTuple):
    """A credential, and when to load it again (seconds since the epoch; None for never)."""

    credential: Credential
    until: float | None


class CredentialSource:
    """The current credential, shared by threads: one of them loads it."""

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._load = load
        self._loaded: Loaded | None = None
        self._lock = threading.Lock()
        self._process_id = os.getpid()

    def current(self) -> Credential:
        with self._loading():
            loaded = self._loaded
            if loaded is None or (loaded.until is not None and time.time() >= loaded.until):
                loaded = self._loaded = self._load_now()
            return loaded.credential

    def instead_of(self, refused: Credential) -> Credential | None:
        """A credential that differs from the refused one; None if there is none."""
        with self._loading():
            if self._loaded is None or self._loaded.credential == refused:
                self._loaded = self._load_now()
            found = self._loaded.credential
        return None if found == refused else found

    def _loading(self) -> threading.Lock:
        # Loading may take a minute, and a fork in that time copies the locked lock.
        if self._process_id != os.getpid():
            self._lock, self._process_id = threading.Lock(), os.getpid()
        return self._lock

    def _load_now(self) -> Loaded:
        try:
            return self._load()
        except (KubeconfigError, PluginError) as error:
            raise NoAccessError(f"{COULD_NOT}: {error}") from None


class ClusterAccess:
    """The address of a cluster, how to verify it, and the credential for it."""

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
        self.server: str = _checked_server(cluster)
        """https://host:port[/path]"""
        self.context = context
        """Its name in the kubeconfig; "in-cluster" inside a pod."""
        self.namespace = namespace
        """The namespace of the context; may be empty."""
        self.source = source
        """The file that it comes from, for messages."""
        self.compressed = not cluster.flag("disable-compression")
        """Whether the server may compress what it sends."""
        self.server_name = cluster.text("tls-server-name")
        """The name that the server's certificate must have; if empty, that of its address."""
        self.proxy = _proxy(cluster, self.server)
        self.impersonation = _impersonation(user)
        """Headers of a user that acts as another user."""
        self._cluster = cluster
        self._credential = credential
        self._insecure = cluster.flag("insecure-skip-tls-verify")
        self._tls: tuple[object, ssl.SSLContext] | None = None
        if self._insecure and self.server.startswith("https:"):
            _log.warning("%s is not verified (insecure-skip-tls-verify)", self)
            # urllib3 would warn about each connection.
            host = re.escape(urlsplit(self.server).hostname or "")
            warnings.filterwarnings("ignore", f"Unverified HTTPS request .* host '{host}'")

    def __repr__(self) -> str:
        return f"ClusterAccess({self})"

    def __str__(self) -> str:
        return f"{self.server} (context {self.context} of {self.source})"

    @classmethod
    def find(cls, context: str | None = None) -> ClusterAccess:
        """KUBECONFIG or ~/.kube/config; a pod's service account only where neither is there.

        A kubeconfig with a mistake is an error, also in a pod: jobs and their secrets must not go
        to another cluster than the configured one.

        Without `context`, TAO_K8S_CONTEXT and then the current context decide. Raises
        `NoAccessError` (a `CredentialError` and a `BackendUnreachableError`).
        """
        wanted = context or settings.lookup("TAO_K8S_CONTEXT")
        files = kubeconfig.paths()
        missing = f"there is no {' or '.join(map(str, files))}"
        try:
            found = kubeconfig.read(files)
            if found.files:
                return cls._of_context(found.choose(wanted))
            if wanted:
                raise KubeconfigError(f"context {wanted!r}: {missing}")
            if settings.lookup("KUBECONFIG"):
                raise KubeconfigError(f"KUBECONFIG: {missing}")
            return cls._of_pod(missing)
        except KubeconfigError as error:
            raise NoAccessError(f"{COULD_NOT}: {error}. {_WHAT_TO_DO}") from None

    @classmethod
    def _of_context(cls, chosen: Chosen) -> ClusterAccess:
        cluster, user = chosen.cluster, chosen.user
        if cluster.flag("insecure-skip-tls-verify") and _has_authority(cluster):
            raise KubeconfigError(
                f"{cluster.file}: cluster {cluster.name!r} has a certificate-authority and "
                "insecure-skip-tls-verify: leave out one of them"
            )
        return cls(
            context=chosen.context.name,
            namespace=chosen.namespace,
            source=str(chosen.context.file),
            cluster=cluster,
            user=user,
            credential=_source_of(user, cluster),
        )

    @classmethod
    def _of_pod(cls, missing: str) -> ClusterAccess:
        neither = f"neither a kubeconfig nor a service account: {missing}, and"
        host = settings.lookup("KUBERNETES_SERVICE_HOST")
        port = settings.lookup("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise KubeconfigError(
                f"{neither} KUBERNETES_SERVICE_HOST is not set, so this is not a pod"
            )
        token = SERVICE_ACCOUNT / "token"
        if not token.exists():
            raise KubeconfigError(
                f"{neither} the pod has none: there is no {token} (a job gets one if it is created "
                "with service_account_token=True)"
            )
        address = f"[{host}]" if ":" in host else host
        values = {
            "server": f"https://{address}:{port}",
            "certificate-authority": str(SERVICE_ACCOUNT / "ca.crt"),
        }
        namespace = SERVICE_ACCOUNT / "namespace"
        # The kubelet renews the token in its file.
        user = Entry(IN_CLUSTER, {"tokenFile": str(token)}, SERVICE_ACCOUNT)
        return cls(
            context=IN_CLUSTER,
            namespace=namespace.read_text().strip() if namespace.exists() else "",
            source=str(SERVICE_ACCOUNT),
            cluster=Entry(IN_CLUSTER, values, SERVICE_ACCOUNT),
            user=user,
            credential=CredentialSource(lambda: _stored(user)),
        )

    # ------------------------------------------------------------------ for requests

    def credential(self) -> Credential:
        """The credential for the next request."""
        return self._credential.current()

    def instead_of(self, refused: Credential) -> Credential | None:
        """A credential that differs from the refused one; None if there is none."""
        return self._credential.instead_of(refused)

    def tls(self, credential: Credential) -> ssl.SSLContext | None:
        """The TLS context, the same until a certificate changes; None without TLS."""
        if not self.server.startswith("https:"):
            return None
        try:
            authority = pem(self._cluster, "certificate-authority")
        except KubeconfigError as error:
            raise NoAccessError(f"{COULD_NOT}: {error}") from None
        kind = (authority, credential.certificate, credential.key)
        made = self._tls
        if made is None or made[0] != kind:  # it takes milliseconds
            made = self._tls = (kind, _tls_context(authority, self._insecure, credential))
        return made[1]


# ---------------------------------------------------------------------- the server


def _checked_server(cluster: Entry) -> str:
    server = cluster.text("server").rstrip("/")
    where = f"{cluster.file}: cluster {cluster.name!r}"
    if not server:
        raise KubeconfigError(f"{where} has no server")
    try:
        parts = urlsplit(server)
        host, _ = parts.hostname or "", parts.port
        host.encode("idna")  # fails for text that cannot be a host name
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("https", "http"):
        shown = server.rpartition("@")[2]  # an address may hold a password
        raise KubeconfigError(f"{where}: the server ({shown!r}) must be https://host[:port]")
    return server


def _proxy(cluster: Entry, server: str) -> Proxy | None:
    """The proxy of the kubeconfig; otherwise HTTPS_PROXY and NO_PROXY decide."""
    url = cluster.text("proxy-url")
    try:
        return Proxy.parse(url) if url else proxy_for(server)
    except ValueError as error:
        raise KubeconfigError(str(error)) from None


def _has_authority(cluster: Entry) -> bool:
    return bool(cluster.text("certificate-authority") or cluster.text("certificate-authority-data"))


def _tls_context(authority: str, insecure: bool, credential: Credential) -> ssl.SSLContext:
    """A new TLS context. Without an authority, it trusts those of the system."""
    try:
        made = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError:
        raise NoAccessError(f"{COULD_NOT}: its certificate-authority is no certificate") from None
    # Python 3.13 requires extensions that the authorities of many clusters do not have.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if credential.certificate:
        _load_certificate(made, credential)
    return made


def _load_certificate(made: ssl.SSLContext, credential: Credential) -> None:
    both = f"{credential.certificate.rstrip()}\n{credential.key.reveal()}".encode("ascii")
    try:
        with _private_file(both) as path:
            made.load_cert_chain(path, password=_refuse_passphrase)
    except ssl.SSLError as error:
        wrong = "do not belong together" if "MISMATCH" in str(error) else "cannot be read"
        raise NoAccessError(f"{COULD_NOT}: client certificate and key {wrong}") from None


def _refuse_passphrase() -> str:
    # Otherwise OpenSSL would prompt at the terminal.
    raise NoAccessError(f"{COULD_NOT}: the client key has a passphrase; use a key without one")


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A path with this content, because OpenSSL reads keys only from files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tao-client-certificate")
        path = f"/proc/self/fd/{descriptor}"
        is_named = False
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="tao-")  # of mode 0600
        is_named = True
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if is_named:
            Path(path).unlink()


# ---------------------------------------------------------------------- the user


def _source_of(user: Entry, cluster: Entry) -> CredentialSource:
    """The source of the credential that a user of a kubeconfig describes."""
    if provider := user.mapping("auth-provider"):
        name = str(provider.get("name") or "")
        instead = _INSTEAD_OF_PROVIDER.get(name, "use an exec plugin or a token")
        raise KubeconfigError(
            f"{user.file}: user {user.name!r} has the auth-provider {name!r}, which Kubernetes "
            f"has removed: {instead}"
        )
    has_token = bool(user.text("token") or user.text("tokenFile"))
    if has_token and user.text("username"):
        raise KubeconfigError(
            f"{user.file}: user {user.name!r} has a token and a password: leave out one of them"
        )
    if user.mapping("exec") and not has_token and not user.text("username"):
        plugin = ExecPlugin(user, _info_for_plugins(cluster))
        return CredentialSource(lambda: _issued_by(user, plugin))
    return CredentialSource(lambda: _stored(user))


def pem(entry: Entry, key: str) -> str:
    """A certificate or key, from `<key>-data` or else from the file `<key>`."""
    where = f"{entry.file}: {key}-data of {entry.name!r}"
    if data := entry.text(f"{key}-data"):
        try:
            return base64.b64decode("".join(data.split()), validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            raise KubeconfigError(f"{where} is not a certificate or key in base64") from None
    return _content(entry.text(key), f"{key} of {entry.name!r}") if entry.text(key) else ""


def _stored(user: Entry) -> Loaded:
    certificate, key = pem(user, "client-certificate"), pem(user, "client-key")
    if bool(certificate) != bool(key):
        raise KubeconfigError(
            f"{user.file}: user {user.name!r} has half of a client-certificate and client-key"
        )
    in_files = any(user.text(name) for name in ("tokenFile", "client-certificate", "client-key"))
    until = time.time() + _FILE_SECONDS if in_files else None
    return Loaded(Credential(_authorization(user), certificate, Secret(key)), until)


def _issued_by(user: Entry, plugin: ExecPlugin) -> Loaded:
    issued = plugin.run()
    authorization = _bearer(issued.token.reveal(), plugin.where) if issued.token else Secret("")
    if issued.certificate:
        credential = Credential(authorization, issued.certificate, issued.key)
    else:
        credential = _stored(user).credential._replace(authorization=authorization)
    return Loaded(credential, issued.expires and issued.expires - _EXPIRY_MARGIN_SECONDS)


def _info_for_plugins(cluster: Entry) -> dict[str, Any]:
    authority = pem(cluster, "certificate-authority")
    return cluster_info(cluster, base64.b64encode(authority.encode()).decode("ascii"))


def _authorization(user: Entry) -> Secret:
    where = f"user {user.name!r} of {user.file}"
    if file := user.text("tokenFile"):
        return _bearer(_content(file, f"tokenFile of {user.name!r}").strip(), where)
    if token := user.text("token"):
        return _bearer(token, where)
    if name := user.text("username"):
        pair = f"{name}:{user.text('password')}".encode()
        return Secret(f"Basic {base64.b64encode(pair).decode('ascii')}")
    return Secret("")


def _bearer(token: str, where: str) -> Secret:
    # Checked here, because the error of http.client would quote the whole header.
    if not token or not all("!" <= character <= "~" for character in token):
        raise KubeconfigError(
            f"the token of {where} is empty or has characters that no token can have"
        )
    return Secret(f"Bearer {token}")


def _impersonation(user: Entry) -> list[tuple[str, str]]:
    headers = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.texts("as-groups")]
    extra = user._replace(values=user.mapping("as-user-extra"))
    for key in extra.values:
        # Names of headers have few characters: API servers decode the others.
        name = f"Impersonate-Extra-{quote(str(key), safe=_HEADER_NAME)}"
        headers += [(name, value) for value in extra.texts(key)]
    for name, value in headers:
        if not (value.isascii() and value.isprintable()):
            raise KubeconfigError(
                f"{user.file}: {name} of user {user.name!r} would be {value!r}, "
                "which has characters that no header can have"
            )
    return [(name, value) for name, value in headers if value]


def _content(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise KubeconfigError(f"{what}: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise KubeconfigError(f"{what}: {path} is not plain text") from None
