"""The one way to the daemon: HTTP requests, counted, with errors told apart.

docker-py brings what differs between daemons: sockets, TLS, versions, registry credentials. The
requests themselves are few and plain, so that what is sent is what a plan shows.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import docker
import docker.tls
import requests

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, CredentialError, PlatformError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.docker.arriving import Arriving
from tao_sdk.platforms.docker.endpoint import Endpoint
from tao_sdk.platforms.docker.ssh import SshAdapter, SshError

# How long the daemon may take to say what it knows, and to do something. Making a container or
# removing one waits for disks; a look at the containers does not.
SHORT_SECONDS = 30
LONG_SECONDS = 120
# What this code was written for. Daemons speak a range of versions: we take the newest of both.
_NEWEST_API = (1, 47)
_UNUSED = "1.47"  # docker-py insists on a version for the calls that we do not make


class DaemonError(PlatformError):
    """The daemon answered, and the answer is no."""

    def __init__(self, status: int, message: str, call: str) -> None:
        super().__init__(message)
        self.status = status
        self.call = call

    @property
    def missing(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        return self.status == 409


_Value = TypeVar("_Value")


class _Remembered(Generic[_Value]):
    """`functools.cached_property` without its lock.

    Before Python 3.12 all objects of a class share that lock: a daemon that hangs would block every
    other one, and a child forked meanwhile for ever. Asking twice does no harm.
    """

    def __init__(self, ask: Callable[[Any], _Value]) -> None:
        self._ask = ask
        self.__doc__ = ask.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> _Value:
        value = instance.__dict__[self._ask.__name__] = self._ask(instance)
        return value


class DockerTransport:
    """Requests to one daemon."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.calls = CallLog()
        self._connecting = threading.Lock()
        self._arriving: weakref.WeakSet[Arriving] = weakref.WeakSet()
        _transports.add(self)

    def close(self) -> None:
        """Let go of idle connections; the next request makes another one."""
        with self._connecting:
            client = self.__dict__.pop("_connect", None)
        if client is not None:
            client.close()

    # ------------------------------------------------------------------ plain requests

    def get(self, path: str, /, **query: Any) -> Any:
        return self._request("GET", path, query, seconds=SHORT_SECONDS).json()

    def post(self, path: str, body: Any = None, /, **query: Any) -> Any:
        answer = self._request("POST", path, query, json=body)
        return answer.json() if answer.content else None

    def post_and_wait(self, path: str, seconds: float) -> None:
        """A request that the daemon may take so long to answer."""
        self._request("POST", path, {}, seconds=seconds + LONG_SECONDS)

    def delete(self, path: str, /, **query: Any) -> None:
        self._request("DELETE", path, query)

    def upload(
        self, method: str, path: str, tar: bytes, headers: Mapping[str, str], /, **query: Any
    ) -> str:
        sent = {"Content-Type": "application/x-tar", **headers}
        return self._request(method, path, query, data=tar, headers=sent).text

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        silent_seconds: float = LONG_SECONDS,
        /,
        **query: Any,
    ) -> Iterator[requests.Response]:
        """An answer that is read piece by piece."""
        answer = self._request(
            method, path, query, seconds=silent_seconds, headers=headers, stream=True
        )
        try:
            with self.reaching():
                yield answer
        finally:
            answer.close()

    def arriving(self, path: str, /, **query: Any) -> Arriving:
        """An answer that may never be whole: whoever reads it says how long to wait."""
        plain = {"Accept-Encoding": "identity"}
        arriving = Arriving(self._request("GET", path, query, headers=plain, stream=True))
        self._arriving.add(arriving)
        return arriving

    # ------------------------------------------------------------------ what the daemon is

    @_Remembered
    def info(self) -> dict[str, Any]:
        """Facts that do not change while a daemon lives."""
        found: dict[str, Any] = self.get("/info")
        return found

    def registry_credentials(self, registry: str) -> dict[str, Any] | None:
        """What `docker login` on this machine has stored for a registry, as it is now."""
        from docker import auth

        path = Path(settings.get("DOCKER_CONFIG")).expanduser() / "config.json"
        try:
            stored = auth.load_config(config_path=str(path))
            found: dict[str, Any] | None = auth.resolve_authconfig(stored, registry)
        except docker.errors.DockerException as error:
            raise CredentialError(
                f"what `docker login` stored cannot be read ({path}): {error}"
            ) from error
        return found

    # ------------------------------------------------------------------ inner workings

    @property
    def _client(self) -> Any:
        with self._connecting:
            return self._connect

    @_Remembered
    def _connect(self) -> Any:
        endpoint = self.endpoint
        if endpoint.url.startswith("ssh://"):
            client = docker.APIClient("tcp://localhost:1", version=_UNUSED, timeout=LONG_SECONDS)
            client.base_url = "http+docker://ssh"
            client.mount("http+docker://ssh", SshAdapter(endpoint.url, LONG_SECONDS))
        else:
            client = docker.APIClient(
                endpoint.url,
                version=_UNUSED,
                timeout=LONG_SECONDS,
                tls=self._tls(),
                max_pool_size=16,
            )
        client.trust_env = False  # a proxy of the environment is for registries, not for daemons
        return client

    @_Remembered
    def _version(self) -> str:
        self.calls.record("GET /_ping")
        answer = self._client.get(f"{self._client.base_url}/_ping", timeout=SHORT_SECONDS)
        spoken = tuple(map(int, answer.headers.get("Api-Version", "1.41").split(".")))
        return "/v" + ".".join(map(str, min(spoken, _NEWEST_API)))

    def _tls(self) -> Any:
        files = self.endpoint.tls
        if files is None:
            return False
        return docker.tls.TLSConfig(
            client_cert=(str(files.folder / "cert.pem"), str(files.folder / "key.pem")),
            ca_cert=str(files.folder / "ca.pem"),
            verify=files.verify,
        )

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        *,
        seconds: float = LONG_SECONDS,
        **arguments: Any,
    ) -> requests.Response:
        arguments["timeout"] = (SHORT_SECONDS, seconds)
        self.calls.record(f"{method} {path}")
        with self.reaching():
            try:
                answer = self._send(method, path, query, arguments)
            except requests.ConnectionError:
                if method not in ("GET", "HEAD"):
                    raise
                # A connection kept from earlier may have ended with the daemon that it led to.
                answer = self._send(method, path, query, arguments)
        if answer.status_code >= 400:
            raise DaemonError(answer.status_code, _message(answer), f"{method} {path}")
        return answer

    def _send(
        self, method: str, path: str, query: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> requests.Response:
        client = self._client
        answer: requests.Response = client.request(
            method,
            f"{client.base_url}{self._version}{quote(path)}",
            params={name: _plain(value) for name, value in query.items() if value is not None},
            **arguments,
        )
        return answer

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Whatever goes wrong on the way to the daemon is `BackendUnreachableError`."""
        try:
            yield
        except (requests.RequestException, OSError, docker.errors.DockerException) as error:
            raise BackendUnreachableError(
                f"the Docker daemon at {self.endpoint} does not answer: {_reason(error)}"
            ) from error

    def _after_fork_in_child(self) -> None:
        """Two processes must not use one connection: each would read the other's answers."""
        self._connecting = threading.Lock()  # another thread of the parent may have held it
        # Not closed, which takes locks of the HTTP client: the same may be true of those.
        _of_the_parent.append(self.__dict__.pop("_connect", None))
        for arriving in self._arriving:
            arriving.abandon_in_child()


_transports: weakref.WeakSet[DockerTransport] = weakref.WeakSet()
_of_the_parent: list[Any] = []


def _go_on_in_child() -> None:
    for transport in _transports:
        transport._after_fork_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def _message(answer: requests.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text.strip() or f"HTTP {answer.status_code}"


def _reason(error: BaseException) -> str:
    """The innermost cause: the outer ones repeat it with addresses of objects."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(error, SshError):
        error, inner = inner, inner.__cause__ or inner.__context__
    return str(error) or type(error).__name__
