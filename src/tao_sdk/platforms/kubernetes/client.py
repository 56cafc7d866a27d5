"""The client of a cluster's API server: requests, whole lists, streams, and its refusals.

Connections, proxies and repeats are those of `platforms/rest`. A request whose credential is
refused is sent once more if there is another one by now.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from urllib3 import HTTPHeaderDict

from tao_sdk._version import __version__
from tao_sdk.platforms.kubernetes.auth import COULD_NOT, ClusterAccess, Credential, NoAccessError
from tao_sdk.platforms.rest import (
    RefusedError,
    Response,
    RestClient,
    Stream,
    Timeouts,
    WebSocket,
)

__all__ = ["ApiError", "KubernetesClient", "Listing", "Review", "Stream", "Timeouts"]

PAGE_ITEMS = 500
"""How many objects one call of a list returns at most."""

_MERGE_PATCH = "application/merge-patch+json"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_DEFAULT_TIMEOUTS = Timeouts()
_Answer = TypeVar("_Answer")


class ApiError(RefusedError):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str, call: str) -> None:
        super().__init__(status, message, call)
        self.reason = reason
        """One word of Kubernetes: NotFound, AlreadyExists, Forbidden, Invalid, Expired, ..."""

    @property
    def expired(self) -> bool:
        """The server no longer has the version that was asked for: list again."""
        return self.status == 410


class UnauthorizedError(ApiError, NoAccessError):
    """The server does not accept our credential (401)."""


class Listing(NamedTuple):
    """All objects of a list, and the version of the cluster's state that it shows."""

    items: list[dict[str, Any]]
    resource_version: str


class Review(NamedTuple):
    """Whether something is allowed, and why (not)."""

    allowed: bool
    reason: str


class KubernetesClient:
    """Requests to one cluster. Paths begin with /api or /apis; query values are text."""

    def __init__(self, access: ClusterAccess, timeouts: Timeouts = _DEFAULT_TIMEOUTS) -> None:
        self.access = access
        self._rest = RestClient(
            access.server,
            f"the Kubernetes API at {access}",
            self._refusal,
            proxy=access.proxy,
            server_name=access.server_name,
            timeouts=timeouts,
        )
        self.calls = self._rest.calls

    def close(self) -> None:
        """Close idle connections; the next request opens another one."""
        self._rest.close()

    # ------------------------------------------------------------------ requests

    def get(self, path: str, /, **query: str) -> dict[str, Any]:
        return self._json(self._request("GET", path, query))

    def list_all(self, path: str, /, **query: str) -> Listing:
        """A whole list, which the server returns in pages."""
        items: list[dict[str, Any]] = []
        page = self.get(path, **{"limit": str(PAGE_ITEMS), **query})
        while True:
            items += page.get("items") or ()
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion") or ""))
            # The token names the version itself; the server refuses a request with both.
            rest = {k: v for k, v in query.items() if not k.startswith("resourceVersion")}
            token = str(metadata["continue"])
            try:
                page = self.get(path, **{"limit": str(PAGE_ITEMS), **rest, "continue": token})
            except ApiError as error:
                if not error.expired:
                    raise
                # The server has forgotten that version meanwhile: all at once, then.
                items = []
                page = self.get(path, **{k: v for k, v in rest.items() if k != "limit"})

    def create(self, path: str, body: Mapping[str, Any], /, **query: str) -> dict[str, Any]:
        return self._json(self._request("POST", path, query, body))

    def patch(self, path: str, body: Mapping[str, Any], /) -> dict[str, Any]:
        """Merge a change into an object."""
        return self._json(self._request("PATCH", path, {}, body, _MERGE_PATCH))

    def delete(
        self, path: str, options: Mapping[str, Any] | None = None, /, **query: str
    ) -> dict[str, Any]:
        """Delete an object or, with a labelSelector, many. `options` are DeleteOptions."""
        return self._json(self._request("DELETE", path, query, options))

    def text(self, path: str, /, **query: str) -> str:
        """An answer that is plain text: a pod's log."""
        return self._request("GET", path, query, accept="*/*").body.decode("utf-8", "replace")

    def stream(self, path: str, /, *, silence: float | None = None, **query: str) -> Stream:
        """An answer that is read as it comes: a watch, a log that is followed.

        It breaks off after `silence` seconds without a byte; None waits for ever.
        """

        def open_stream(headers: HTTPHeaderDict, tls: ssl.SSLContext | None) -> Stream:
            headers["Accept-Encoding"] = "identity"
            return self._rest.stream(
                quote(path),
                query=query,
                headers=headers,
                tls=tls,
                silence=silence,
                label="WATCH" if query.get("watch") else "GET",
            )

        return self._authorized(open_stream, "*/*")

    def websocket(
        self, path: str, protocol: str, /, *, silence: float, **query: str | Sequence[str]
    ) -> WebSocket:
        """A connection to a pod that carries messages both ways; see `stream`."""

        def open_websocket(headers: HTTPHeaderDict, tls: ssl.SSLContext | None) -> WebSocket:
            return self._rest.websocket(
                quote(path), protocol, query=query, headers=headers, tls=tls, silence=silence
            )

        return self._authorized(open_websocket, "*/*")

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
        """Whether we may do something, by a SelfSubjectAccessReview."""
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

    # ------------------------------------------------------------------ sending

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Response:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        # A second request to delete this very object finds nothing to do.
        by_uid = method == "DELETE" and "uid" in ((body or {}).get("preconditions") or {})

        def send(headers: HTTPHeaderDict, tls: ssl.SSLContext | None) -> Response:
            headers["Accept-Encoding"] = "gzip" if self.access.compressed else "identity"
            if data is not None:
                headers["Content-Type"] = content_type
            return self._rest.request(
                method,
                quote(path),
                query=query,
                body=data,
                headers=headers,
                tls=tls,
                repeatable=method == "GET" or by_uid,
            )

        return self._authorized(send, accept)

    def _authorized(
        self, send: Callable[[HTTPHeaderDict, ssl.SSLContext | None], _Answer], accept: str
    ) -> _Answer:
        """Send with the current credential, and with another one if the server refuses that."""
        access = self.access
        credential = access.credential()
        try:
            return send(self._headers(credential, accept), access.tls(credential))
        except UnauthorizedError:
            another = access.instead_of(credential)
            if another is None:
                raise
        return send(self._headers(another, accept), access.tls(another))

    def _headers(self, credential: Credential, accept: str) -> HTTPHeaderDict:
        headers = HTTPHeaderDict({"Accept": accept, "User-Agent": f"tao-sdk/{__version__}"})
        for name, value in self.access.impersonation:
            headers.add(name, value)
        if credential.authorization:
            headers["Authorization"] = credential.authorization.reveal()
        return headers

    # ------------------------------------------------------------------ answers

    def _json(self, response: Response) -> dict[str, Any]:
        found = _mapping(response)
        if found is None:
            raise self._rest.not_ours(response)
        for one in (found, *(found.get("items") or ())):
            _drop_managed_fields(one)
        return found

    def _refusal(self, response: Response, call: str) -> ApiError:
        # Without a Status it is not of Kubernetes: a proxy or load balancer answered.
        status = _mapping(response) or {"message": response.quoted()}
        message = str(status.get("message") or f"HTTP {response.status}")
        kind = ApiError
        if response.status == 401:
            kind = UnauthorizedError
            message = (
                f"{COULD_NOT}: {self.access} does not accept the credential ({message}). Log in "
                "again, or check with `kubectl get nodes`."
            )
        return kind(response.status, str(status.get("reason") or ""), message, call)


def _mapping(response: Response) -> dict[str, Any] | None:
    try:
        found = response.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _drop_managed_fields(one: Any) -> None:
    """The record of which client set which field: a third of every object, used nowhere here."""
    metadata = one.get("metadata") if isinstance(one, dict) else None
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
