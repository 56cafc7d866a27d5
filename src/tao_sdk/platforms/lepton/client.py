"""The transport: requests to the REST API of one workspace."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.rest import (
    Query,
    RefusedError,
    Response,
    RestClient,
    Stream,
    Timeouts,
    proxy_for,
)
from tao_sdk.secrets import Secret

PAGE_SIZE = 500
_DEFAULT_TIMEOUTS = Timeouts()
_MAX_QUIET_SECONDS = 600.0
_QUOTED_CHARACTERS = 300


class LeptonClient:
    """Requests to one workspace. Paths are below the address of the workspace."""

    def __init__(self, access: WorkspaceAccess, timeouts: Timeouts = _DEFAULT_TIMEOUTS) -> None:
        """Raises `ValidationError` for a proxy address that cannot be one."""
        try:
            proxy = proxy_for(access.url)
        except ValueError as error:
            raise ValidationError(f"HTTPS_PROXY: {error}") from None
        self.access = access
        self._rest = RestClient(
            access.url, f"Lepton, {access}", self._refusal, proxy=proxy, timeouts=timeouts
        )
        self.calls = self._rest.calls
        self._headers = {"Accept": "application/json", "origin": access.origin}
        self._quiet_until: dict[str, float] = {}
        """By kind of request, after a 429 with a long Retry-After."""

    def close(self) -> None:
        """Close idle connections; the next request opens another one."""
        self._rest.close()

    def get(self, path: str, /, **query: str | int) -> Any:
        return self._parsed(self._request("GET", path, query=query))

    def get_list(self, path: str, /, key: str = "", **query: str | int) -> list[dict[str, Any]]:
        """A list: the answer itself, or what it has under `key`."""
        found = self.get(path, **query)
        if key and isinstance(found, Mapping):
            found = found.get(key)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self.unreachable(f"GET {path}: a list was expected, not {type(found).__name__}")
        return [one for one in found if isinstance(one, dict)]

    def job(self, server_id: str) -> dict[str, Any] | None:
        """One job, archived or not; None if there is none."""
        path = naming.below(naming.JOBS, server_id)
        try:
            found = self.get(path, job_query_mode=naming.EVERYWHERE)
        except RefusedError as error:
            if not error.missing:
                raise
            return None
        if not isinstance(found, dict) or not naming.id_of(found):
            raise self.unreachable("the answer is not a job")
        return found

    def pages(self, path: str, key: str, /, **query: str | int) -> Iterator[list[dict[str, Any]]]:
        """A list in pages.

        The server's limit of a page may be below ours, so the last page is the one that is shorter
        than the one before. A server without pages sends the same one again.
        """
        before: list[dict[str, Any]] = []
        for number in count(1):
            page = self.get_list(path, key, **query, page=number, page_size=PAGE_SIZE)
            if not page or page == before:
                return
            yield page
            if len(page) < len(before):
                return
            before = page

    def create(self, path: str, body: Any, /, hide: Sequence[Secret] = ()) -> Any:
        """Create something. Not repeated. An error quotes none of the values to `hide`."""
        # On a kept connection, a lost answer would be more likely.
        return self._parsed(self._request("POST", path, body=body, hide=hide, new_connection=True))

    def patch(self, path: str, body: Mapping[str, Any], /) -> Any:
        """Set values, which is harmless to repeat."""
        return self._parsed(self._request("PATCH", path, body=body, repeatable=True))

    def delete(self, path: str, /) -> bool:
        """Delete something; False if it was not there."""
        try:
            self._request("DELETE", path, repeatable=True)
        except RefusedError as error:
            if not error.missing:
                raise
            return False
        return True

    def headers_of(self, path: str, /) -> Mapping[str, str]:
        """The headers of an answer, without its body."""
        return self._rest.request("HEAD", path, headers=self._authorized()).headers

    def stream(self, path: str, /, *, silence: float, start: int = 0) -> Stream:
        """An answer that is read as it comes. It breaks off after `silence` seconds without a byte.

        `start` asks for the bytes from that one on; the status shows whether the server agrees.
        """
        headers = self._authorized()
        if start:
            headers["Range"] = f"bytes={start}-"
        return self._rest.stream(path, headers=headers, silence=silence)

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Report a refusal as an unreachable platform."""
        try:
            yield
        except RefusedError as error:
            reason = f"{self.access} refuses {error.call}: {error.message}"
            raise BackendUnreachableError(
                error.message if error.unauthorized else reason
            ) from error

    def unreachable(self, reason: str) -> BackendUnreachableError:
        return BackendUnreachableError(f"Lepton, {self.access}: {reason}")

    def _request(
        self, method: str, path: str, *, query: Query | None = None, body: Any = None, **more: Any
    ) -> Response:
        quiet = self._quiet_until.get(_kind(f"{method} {path}"), 0.0) - time.monotonic()
        if quiet > 0 and method != "POST":
            raise self.unreachable(f"it allows the next request in {quiet:.0f} s (HTTP 429)")
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = self._authorized()
        if data is not None:
            headers["Content-Type"] = "application/json"
        return self._rest.request(method, path, query=query, body=data, headers=headers, **more)

    def _authorized(self) -> dict[str, str]:
        return {**self._headers, "Authorization": f"Bearer {self.access.token.reveal()}"}

    def _parsed(self, response: Response) -> Any:
        if not response.body.strip():
            return {}
        try:
            return response.json()
        except ValueError:
            raise self._rest.not_ours(response) from None

    def _refusal(self, response: Response, call: str) -> RefusedError:
        reason = _reason(response)
        if response.status == 401:
            reason = (
                f"{self.access} does not accept the token ({reason}): it may have expired. Make "
                "another one in the dashboard (Settings > Tokens) and set LEPTON_AUTH_TOKEN"
            )
        elif response.status == 403:
            reason = f"{reason}: the owner of LEPTON_AUTH_TOKEN may not do this ({call})"
        error = RefusedError(response.status, reason, call)
        if error.busy:
            quiet = min(response.retry_after, _MAX_QUIET_SECONDS)
            self._quiet_until[_kind(call)] = time.monotonic() + quiet
        return error


def _kind(call: str) -> str:
    """Method and collection: the server limits each kind of request separately."""
    return "/".join(call.split("/")[:2])


def _reason(response: Response) -> str:
    try:
        found = response.json()
    except ValueError:
        return response.quoted()
    reason: Any = found
    if isinstance(found, Mapping):
        reason = found.get("message") or found.get("error") or found.get("detail") or ""
    text = reason if isinstance(reason, str) else json.dumps(reason)
    status = f"HTTP {response.status}"
    return f"{status}: {text[:_QUOTED_CHARACTERS]}" if text else status
