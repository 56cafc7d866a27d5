"""The one way to a cluster: HTTP requests to its API server, counted, with errors told apart.

A request that may have reached the server is repeated only where that is harmless: reading, and
deleting what is named by its uid. Of anything else it is said that the answer was lost.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from tao_sdk._version import __version__
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.kubernetes import binary
from tao_sdk.platforms.kubernetes.access import ClusterAccess
from tao_sdk.platforms.kubernetes.answers import Answer, ApiError, trouble
from tao_sdk.platforms.kubernetes.connections import Connection, ConnectionPool
from tao_sdk.platforms.kubernetes.credentials import Credential
from tao_sdk.platforms.kubernetes.streams import Stream

__all__ = ["ApiError", "KubernetesClient", "Listing", "Review", "Timeouts"]

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PROBLEMS = (OSError, http.client.HTTPException)


class Timeouts(NamedTuple):
    """How many seconds each kind of request may take."""

    connect: float = 10.0
    read: float = 30.0
    write: float = 60.0
    busy: float = 20.0
    """How long, in all, a server that says "too busy" is asked again."""


_USUAL = Timeouts()
_Taken = TypeVar("_Taken")


class Listing(NamedTuple):
    """All objects of a list, and the version of the cluster's state that it shows."""

    items: list[dict[str, Any]]
    resource_version: str


class Review(NamedTuple):
    """Whether something is allowed, and why (not)."""

    allowed: bool
    reason: str


class _Request(NamedTuple):
    method: str
    path: str
    target: str
    """The path and the query, quoted."""
    body: bytes | None
    headers: tuple[tuple[str, str], ...]
    repeatable: bool

    @property
    def call(self) -> str:
        return f"{self.method} {self.path}"


class _Begun(NamedTuple):
    """An answer of which only the head was read."""

    connection: Connection
    response: http.client.HTTPResponse


class _LostError(Exception):
    """The request was sent, and the connection ended before the answer."""


class KubernetesClient:
    """Requests to one cluster. Paths begin with /api or /apis; query values are text."""

    def __init__(self, access: ClusterAccess, timeouts: Timeouts = _USUAL) -> None:
        self.access = access
        self.calls = CallLog()
        self._timeouts = timeouts
        self._pool = ConnectionPool(access)

    def close(self) -> None:
        """Let go of idle connections; the next request makes another one."""
        self._pool.close()

    # ------------------------------------------------------------------ requests

    def get(self, path: str, /, **query: str) -> dict[str, Any]:
        return self._json(self._request("GET", path, query))

    def list_all(self, path: str, item: binary.Fields | None = None, /, **query: str) -> Listing:
        """A whole list, also one that the server hands out in pieces (`limit`).

        With `item` it comes in the binary form where the server has that, and its objects have what
        is named there.
        """
        items: list[dict[str, Any]] = []
        piece = self._list(path, item, query)
        while True:
            items += piece.get("items") or ()
            metadata = piece.get("metadata") or {}
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion") or ""))
            # A piece names the version itself; asking for another one as well is refused.
            asked = {k: v for k, v in query.items() if not k.startswith("resourceVersion")}
            try:
                follow = {**asked, "continue": str(metadata["continue"])}
                piece = self._list(path, item, follow)
            except ApiError as error:
                if not error.expired:
                    raise
                # It took longer than the server remembers: all at once, then.
                items = []
                whole = {k: v for k, v in asked.items() if k != "limit"}
                piece = self._list(path, item, whole)

    def create(self, path: str, body: Mapping[str, Any], /, **query: str) -> dict[str, Any]:
        return self._json(self._request("POST", path, query, body))

    def replace(self, path: str, body: Mapping[str, Any], /, **query: str) -> dict[str, Any]:
        return self._json(self._request("PUT", path, query, body))

    def patch(self, path: str, body: Any, /, kind: str = "merge", **query: str) -> dict[str, Any]:
        """Change an object. Kinds: merge, json (a list of operations), strategic."""
        return self._json(self._request("PATCH", path, query, body, _PATCHES[kind]))

    def delete(
        self, path: str, options: Mapping[str, Any] | None = None, /, **query: str
    ) -> dict[str, Any]:
        """Delete an object or, with a labelSelector, many. `options` are DeleteOptions."""
        return self._json(self._request("DELETE", path, query, options))

    def text(self, path: str, /, **query: str) -> str:
        """An answer that is plain text: a pod's log."""
        answer = self._request("GET", path, query, accept="*/*")
        try:
            return answer.content.decode("utf-8", "replace")
        except ValueError as error:
            raise self._unreachable(f"it sent {error}") from None

    def stream(self, path: str, /, *, silence: float | None = None, **query: str) -> Stream:
        """An answer that is read as it comes; None waits for its next bytes for ever."""
        request = self._prepared("GET", path, query, accept="*/*", compressed=False)
        self.calls.record(f"WATCH {path}" if query.get("watch") else request.call)

        def begin(begun: _Begun) -> Stream | Answer:
            if begun.response.status != 200:
                return self._read(begun)
            begun.connection.wait_at_most(silence)
            return Stream(*begun, self._unreachable)

        found = self._answered(request, begin)
        if isinstance(found, Answer):
            raise self._refusal(request, found)
        return found

    def review(
        self,
        verb: str,
        resource: str,
        *,
        group: str = "",
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> Review:
        """May we? (a SelfSubjectAccessReview)"""
        asked = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
        asked |= {"name": name, "subresource": subresource}
        attributes = {key: value for key, value in asked.items() if value}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        status = self.create(_REVIEWS, body).get("status") or {}
        return Review(bool(status.get("allowed")), str(status.get("reason") or ""))

    # ------------------------------------------------------------------ inner workings

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        request = self._prepared(method, path, query, body, content_type, accept)
        give_up_at = time.monotonic() + self._timeouts.busy
        for attempt in count():
            self.calls.record(request.call)
            answer = self._answered(request, self._read)
            if answer.status < 300:
                return answer
            pause = answer.pause(attempt, request.repeatable)
            if pause is None or time.monotonic() + pause > give_up_at:
                break
            time.sleep(pause)
        raise self._refusal(request, answer)

    def _prepared(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        compressed: bool = True,
    ) -> _Request:
        target = self.access.route.prefix + quote(path)
        if query:
            target += f"?{urlencode(query)}"
        encoding = "gzip" if compressed and self.access.compressed else "identity"
        headers = [("Accept", accept), ("Accept-Encoding", encoding)]
        headers += [("User-Agent", f"tao-sdk/{__version__}"), *self.access.impersonation]
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers += [("Content-Type", content_type), ("Content-Length", str(len(data)))]
        # A second request to delete this very object finds nothing to do.
        by_uid = method == "DELETE" and "uid" in ((body or {}).get("preconditions") or {})
        return _Request(method, path, target, data, tuple(headers), method == "GET" or by_uid)

    def _answered(self, request: _Request, take: Callable[[_Begun], _Taken]) -> _Taken:
        """Send a request, and once more where the first answer was lost and that is harmless."""
        for is_last in (False, True):
            try:
                return take(self._sent(request))
            except _LostError as error:
                cause = error.__cause__
                if is_last or not request.repeatable or isinstance(cause, TimeoutError):
                    raise self._lost(request, cause) from cause
        raise AssertionError("the second attempt either answers or raises")

    def _sent(self, request: _Request) -> _Begun:
        """Send a request, with another credential if the server refuses the first."""
        credential = self.access.credential()
        begun = self._sent_as(request, credential)
        if begun.response.status != 401:
            return begun
        another = self.access.instead_of(credential)
        if another is None:
            return begun
        begun.connection.close()
        return self._sent_as(request, another)

    def _sent_as(self, request: _Request, credential: Credential) -> _Begun:
        connection = self._pool.take(credential)
        if connection is not None:
            try:
                self._send(connection, request, credential)
            except _PROBLEMS:
                # The server had left. It cannot act on half a request: this one may be sent anew.
                connection.close()
                connection = None
        if connection is None:
            connection = self._sent_anew(request, credential)
        try:
            return _Begun(connection, connection.getresponse())
        except _PROBLEMS as error:
            connection.close()
            raise _LostError from error

    def _sent_anew(self, request: _Request, credential: Credential) -> Connection:
        try:
            connection = self._pool.connect(credential, self._timeouts.connect)
            self._send(connection, request, credential)
        except _PROBLEMS as error:
            raise self._unreachable(trouble(error)) from error
        return connection

    def _send(self, connection: Connection, request: _Request, credential: Credential) -> None:
        timeouts = self._timeouts
        connection.wait_at_most(timeouts.read if request.method == "GET" else timeouts.write)
        connection.putrequest(request.method, request.target, skip_accept_encoding=True)
        for name, value in request.headers:
            connection.putheader(name, value)
        if credential.authorization:
            connection.putheader("Authorization", credential.authorization.reveal())
        connection.endheaders(request.body)

    def _read(self, begun: _Begun) -> Answer:
        connection, response = begun
        try:
            body = response.read()
        except _PROBLEMS as error:
            connection.close()
            raise _LostError from error
        if response.will_close:
            connection.close()
        else:
            self._pool.keep(connection)
        return Answer(response.status, response.headers, body)

    # ------------------------------------------------------------------ what is made of answers

    def _list(
        self, path: str, item: binary.Fields | None, query: Mapping[str, str]
    ) -> dict[str, Any]:
        if item is None:
            return self.get(path, **query)
        answer = self._request("GET", path, query, accept=f"{binary.MEDIA_TYPE}, application/json")
        if not answer.is_of(binary.MEDIA_TYPE):
            found = self._json(answer)
            items = [binary.trimmed(one, item) for one in found.get("items") or ()]
            return {**found, "items": items}
        try:
            return binary.read(answer.content, binary.list_of(item))
        except ValueError as error:
            raise self._unreachable(f"it sent a list that cannot be read: {error}") from None

    def _json(self, answer: Answer) -> dict[str, Any]:
        try:
            found = json.loads(answer.content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            # A login page or the like: something on the way answered instead of the server.
            raise self._unreachable(f"something else answers: {answer.quoted()}")
        for one in (found, *(found.get("items") or ())):
            _forget_managers(one)
        return found

    def _refusal(self, request: _Request, answer: Answer) -> ApiError | BackendUnreachableError:
        if answer.status < 400:
            place = answer.headers.get("Location", "nowhere")
            return self._unreachable(f"it sends us elsewhere (HTTP {answer.status} to {place})")
        refusal = answer.error(request.call, str(self.access))
        if not answer.in_trouble:
            return refusal
        unreachable = self._unreachable(f"HTTP {answer.status}: {refusal.message}")
        unreachable.__cause__ = refusal
        return unreachable

    def _lost(self, request: _Request, cause: BaseException | None) -> BackendUnreachableError:
        said = trouble(cause) if cause else "the connection ended"
        done = "" if request.repeatable else f"; {request.call} may or may not have been done"
        return self._unreachable(f"{said}{done}")

    def _unreachable(self, reason: str) -> BackendUnreachableError:
        return BackendUnreachableError(f"the Kubernetes API at {self.access}: {reason}")


def _forget_managers(one: Any) -> None:
    """Who has set which field is a third of every object, and nobody here wants to know."""
    metadata = one.get("metadata") if isinstance(one, dict) else None
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
