"""How we prove who we are: tokens, passwords, certificates, and where they come from.

A credential may change while we use it: a token file is written anew, a program's token expires.
So there is a source that is asked before each request, and again when the server refuses.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tao_sdk.errors import BackendUnreachableError, CredentialError
from tao_sdk.platforms.kubernetes.exec_plugin import ExecPlugin, PluginError
from tao_sdk.platforms.kubernetes.kubeconfig import Entry, KubeconfigError
from tao_sdk.secrets import Secret

COULD_NOT = "Could not authenticate to a Kubernetes cluster"
# How long the contents of a file are believed: as long as the official clients do.
_FILE_SECONDS = 60.0
# A credential that expires while its request is on the way is of no use.
_EARLY_SECONDS = 10.0

_INSTEAD_OF_PROVIDER = {
    "gcp": "install gke-gcloud-auth-plugin and run `gcloud container clusters get-credentials`",
    "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    "oidc": "use an exec plugin (kubectl oidc-login)",
}


class NoAccessError(CredentialError, BackendUnreachableError):
    """There is no credential for the cluster, so that it could not be asked."""


class Credential(NamedTuple):
    """What one request is sent with."""

    authorization: Secret
    """The value of the header, or empty."""
    certificate: str
    """PEM, or empty."""
    key: Secret


class Loaded(NamedTuple):
    """A credential, and until when it need not be asked for again (seconds since the epoch)."""

    credential: Credential
    until: float | None


class CredentialSource:
    """The credential of the moment. Safe to ask from many threads: one of them does the work."""

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._load = load
        self._loaded: Loaded | None = None
        self._loading = threading.Lock()
        _sources.add(self)

    def current(self) -> Credential:
        with self._loading:
            loaded = self._loaded
            if loaded is None or (loaded.until is not None and time.time() >= loaded.until):
                loaded = self._loaded = self._ask()
            return loaded.credential

    def instead_of(self, refused: Credential) -> Credential | None:
        """Another one than that which the server refused, if there is any."""
        with self._loading:
            if self._loaded is None or self._loaded.credential == refused:
                self._loaded = self._ask()
            found = self._loaded.credential
        return None if found == refused else found

    def _ask(self) -> Loaded:
        try:
            return self._load()
        except (KubeconfigError, PluginError) as error:
            raise NoAccessError(f"{COULD_NOT}: {error}") from None

    def _after_fork_in_child(self) -> None:
        self._loading = threading.Lock()  # another thread of the parent may have held it


_sources: weakref.WeakSet[CredentialSource] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for source in _sources:
        source._after_fork_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)


def of_user(user: Entry, plugin: Callable[[], ExecPlugin]) -> CredentialSource:
    """The source that a user of a kubeconfig describes. `plugin` is asked where it names one."""
    if provider := user.mapping("auth-provider"):
        name = str(provider.get("name") or "")
        instead = _INSTEAD_OF_PROVIDER.get(name, "use an exec plugin or a token")
        raise KubeconfigError(
            f"{user.file}: user {user.name!r} has the auth-provider {name!r}, which Kubernetes "
            f"itself has given up: {instead}"
        )
    has_token = bool(user.text("token") or user.text("tokenFile"))
    if has_token and user.text("username"):
        raise KubeconfigError(
            f"{user.file}: user {user.name!r} has a token and a password: leave out one of them"
        )
    if user.mapping("exec") and not has_token and not user.text("username"):
        return CredentialSource(_issued_by(user, plugin()))
    return CredentialSource(lambda: _stored(user))


def of_token_file(file: Path) -> CredentialSource:
    """A service account's token, which the kubelet renews in its file."""
    return CredentialSource(lambda: _stored(Entry("", {"tokenFile": str(file)}, file)))


def pem(entry: Entry, key: str) -> str:
    """A certificate or key: from `<key>-data`, which wins, or from the file `<key>`."""
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


def _issued_by(user: Entry, plugin: ExecPlugin) -> Callable[[], Loaded]:
    def load() -> Loaded:
        issued = plugin.run()
        authorization = _bearer(issued.token.reveal(), plugin.where) if issued.token else Secret("")
        if issued.certificate:
            credential = Credential(authorization, issued.certificate, issued.key)
        else:
            credential = _stored(user).credential._replace(authorization=authorization)
        return Loaded(credential, issued.expires and issued.expires - _EARLY_SECONDS)

    return load


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
    # Checked here: http.client would quote the whole header in its complaint.
    if not token or not all("!" <= character <= "~" for character in token):
        raise KubeconfigError(f"the token of {where} is empty or holds what no token can hold")
    return Secret(f"Bearer {token}")


def _content(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise KubeconfigError(f"{what}: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise KubeconfigError(f"{what}: {path} is not plain text") from None
