"""The transport: docker-py's API client, with round trips counted and errors told apart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import docker
import docker.tls
import requests
import urllib3.exceptions

from tao_sdk.errors import BackendUnreachableError, PlatformError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.common.times import parse_time
from tao_sdk.platforms.docker import config
from tao_sdk.platforms.docker.endpoint import Endpoint
from tao_sdk.platforms.docker.ssh import SshAdapter, SshError
from tao_sdk.platforms.docker.status import Census

# How long the daemon may take to answer a question, and to do something: making a container or
# removing one waits for disks.
SHORT_SECONDS = 30
LONG_SECONDS = 120
# How long a stream may be silent: a pull may write a large layer to a slow disk.
_SILENT_SECONDS = 900
# The version that this code was written for. A daemon speaks a range of versions.
_NEWEST_API = (1, 47)
# Not docker-py's own "ssh": with that it reads streams from sockets of its own adapter.
_SSH = "http+docker://openssh"


class DaemonError(PlatformError):
    """The daemon answered with an error."""

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


class DockerClient:
    """One daemon."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.calls = CallLog()
        self._api: _Api | None = None
        self._made_in = 0
        self._info: dict[str, Any] | None = None

    @property
    def api(self) -> _Api:
        """The client of docker-py; one for each process, because a connection serves only one.

        Without a lock: two threads that begin at once may make one each, which does no harm.
        """
        api = self._api
        if api is None or self._made_in != os.getpid():
            if api is not None:
                _of_the_parent.append(api)
            with _reaching(self.endpoint):
                api = _Api(self.endpoint, self.calls)
                api.negotiate()
            self._api, self._made_in = api, os.getpid()
        return api

    def close(self) -> None:
        """Close idle connections; the next request makes another one."""
        api, self._api = self._api, None
        if api is not None and self._made_in == os.getpid():
            api.close()

    @property
    def info(self) -> dict[str, Any]:
        """Facts that do not change while a daemon lives."""
        if self._info is None:
            self._info = self.api.info()
        return self._info

    def time(self) -> datetime:
        """The daemon's clock, which may differ from ours."""
        return parse_time(self.api.info()["SystemTime"])

    def census(self, job_id: str = "") -> Census:
        """All containers of ours on the daemon, or those of one job."""
        label = f"{config.LABEL_JOB}={job_id}" if job_id else f"{config.LABEL}=true"
        return Census.take(self.api.containers(all=True, filters={"label": [label]}))

    def reaching(self) -> Any:
        """For reading an answer: any failure becomes `BackendUnreachableError`."""
        return _reaching(self.endpoint)


# Never closed here: that takes locks which another thread of the parent may have held.
_of_the_parent: list[Any] = []


class _Api(docker.APIClient):
    """docker-py's client of one daemon, in one process."""

    if TYPE_CHECKING:

        def _url(self, pathfmt: str, *args: str) -> str: ...

    def __init__(self, endpoint: Endpoint, calls: CallLog) -> None:
        ssh = endpoint.url.startswith("ssh://")
        super().__init__(
            "tcp://localhost:1" if ssh else endpoint.url,
            version=".".join(map(str, _NEWEST_API)),
            timeout=LONG_SECONDS,
            tls=_tls(endpoint),
            max_pool_size=16,
        )
        self._endpoint = endpoint
        self._calls = calls
        self.trust_env = False  # a proxy of the environment is for registries, not for daemons
        if ssh:
            self.base_url = _SSH
            self.mount(_SSH, SshAdapter(endpoint.url, LONG_SECONDS))

    def negotiate(self) -> None:
        """Speak a version of the API that the daemon knows, too."""
        answer = self.get(f"{self.base_url}/_ping")
        spoken = tuple(map(int, answer.headers.get("Api-Version", "1.41").split(".")))
        self._version = ".".join(map(str, min(spoken, _NEWEST_API)))

    def create(self, config: dict[str, Any], name: str | None = None) -> str:
        """Make a container; its id."""
        made = self.create_container_from_config(config, name)  # type: ignore[no-untyped-call]  # not in its stubs
        return str(made["Id"])

    def open_log(self, container: str, *, follow: bool, tail: int | None) -> requests.Response:
        """The log in frames; `logs` of docker-py drops the stream of each."""
        wanted = {"stdout": 1, "stderr": 1, "timestamps": 1, "follow": int(follow)}
        return self.get(
            self._url("/containers/{0}/logs", container),
            params={**wanted, "tail": "all" if tail is None else tail},
            headers={"Accept-Encoding": "identity"},
            stream=True,
            timeout=LONG_SECONDS,  # a followed log that is silent for longer is opened again
        )

    def open_pull(
        self, repository: str, tag: str, account: dict[str, str] | None
    ) -> requests.Response:
        """The report on a pull, as lines of JSON; that of docker-py cannot be closed."""
        from docker import auth

        headers = {"X-Registry-Auth": auth.encode_header(account)} if account else {}
        return self.post(
            self._url("/images/create"),
            params={"fromImage": repository, "tag": tag},
            headers=headers,
            stream=True,
            timeout=None,
        )

    def open_events(self, filters: str) -> requests.Response:
        """Events as lines of JSON; `events` of docker-py cannot be read with a time limit."""
        url = self._url("/events")
        return self.get(url, params={"filters": filters}, stream=True, timeout=None)

    def head_archive(self, container: str, path: str) -> requests.Response:
        """An answer whose headers describe a path in a container."""
        return self.head(self._url("/containers/{0}/archive", container), params={"path": path})

    def request(self, method: Any, url: Any, *arguments: Any, **options: Any) -> requests.Response:
        """Count, limit in time, and check an exchange with the daemon."""
        call = f"{method.upper()} {self._path(str(url))}"
        self._calls.record(call)
        options["timeout"] = (SHORT_SECONDS, _seconds(method, options))
        with _reaching(self._endpoint):
            try:
                answer = super().request(method, url, *arguments, **options)
            except requests.ConnectionError:
                if method.upper() not in ("GET", "HEAD"):
                    raise
                # A connection kept from earlier may have ended with the daemon that it led to.
                answer = super().request(method, url, *arguments, **options)
            if answer.status_code >= 400:
                raise DaemonError(answer.status_code, _message(answer), call)
        return answer

    def _result(self, response: Any, json: bool = False, binary: bool = False) -> Any:
        with _reaching(self._endpoint):  # what is no JSON is no answer
            return super()._result(response, json, binary)  # type: ignore[misc]  # not in its stubs

    def _path(self, url: str) -> str:
        path = url.removeprefix(self.base_url)
        return path.removeprefix(f"/v{self._version}")


def _tls(endpoint: Endpoint) -> Any:
    files = endpoint.tls
    if files is None:
        return False
    return docker.tls.TLSConfig(
        client_cert=(str(files.folder / "cert.pem"), str(files.folder / "key.pem")),
        ca_cert=str(files.folder / "ca.pem"),
        verify=files.verify,
    )


def _seconds(method: str, options: dict[str, Any]) -> float:
    """How long the daemon may be silent during an exchange."""
    asked = options.get("timeout", LONG_SECONDS)
    if asked is None:
        return _SILENT_SECONDS
    looks = method.upper() in ("GET", "HEAD") and not options.get("stream")
    return SHORT_SECONDS if looks and asked == LONG_SECONDS else float(asked)


@contextmanager
def _reaching(endpoint: Endpoint) -> Iterator[None]:
    try:
        yield
    except (
        requests.RequestException,
        urllib3.exceptions.HTTPError,  # while an answer is read piece by piece
        OSError,
        docker.errors.DockerException,
    ) as error:
        raise BackendUnreachableError(
            f"the Docker daemon at {endpoint} does not answer: {_reason(error)}"
        ) from error


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
