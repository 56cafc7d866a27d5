"""The one way to a workspace: HTTP requests to its API, counted, with errors told apart.

A request that may have reached the server is repeated only where that is harmless: reading,
setting a value, and removing what is named by its id. To make something, a connection of its own
is opened: one that was kept may be closed by the server at the moment it is used, and whether the
request was read before that nobody knows.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.lepton.access import WorkspaceAccess
from tao_sdk.platforms.lepton.answers import (
    BUSY,
    ApiError,
    in_trouble,
    message_of,
    pause,
    quoted,
    refusal,
    without,
)
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.http import Answer, Client, PassingError, Patience, Reply
from tao_sdk.runner.remote import Request
from tao_sdk.secrets import Secret

__all__ = ["ApiError", "LeptonApi", "Timeouts"]

PAGE = 500
# What is changed is set to one value: to do so twice is to do so once.
_REPEATABLE = ("GET", "DELETE", "PATCH")
# Whoever is silent for longer is not asked again.
_SOON_SECONDS = 5.0
# Whatever it asks for, so often it is asked.
_LONGEST_QUIET_SECONDS = 600.0
Query = Mapping[str, str | int | Sequence[str]]


class Timeouts(NamedTuple):
    """How many seconds each kind of waiting may take."""

    connect: float = 10.0
    stall: float = 60.0
    busy: float = 30.0
    """How long, in all, a server that says "too busy" is asked again."""


_USUAL = Timeouts()


class LeptonApi:
    """Requests to one workspace. Paths begin below the workspace's own address."""

    def __init__(self, access: WorkspaceAccess, timeouts: Timeouts = _USUAL) -> None:
        self.access = access
        self.calls = CallLog()
        self._timeouts = timeouts
        self._kept: tuple[int, Client] | None = None
        self._quiet: dict[str, float] = {}
        """Until when the server does not want to be asked, by kind of request."""

    def close(self) -> None:
        """Let go of idle connections; the next request makes another one."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    # ------------------------------------------------------------------ requests

    def get(self, path: str, /, **query: str | int) -> Any:
        return self._json(self._request("GET", path, query))

    def get_list(self, path: str, /, key: str = "", **query: str | int) -> list[dict[str, Any]]:
        """An answer that is a list, or has one under `key`."""
        found = self.get(path, **query)
        if key and isinstance(found, Mapping):
            found = found.get(key)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self._unreachable(f"GET {path}: a list was expected, not {type(found).__name__}")
        return [one for one in found if isinstance(one, dict)]

    def pages(self, path: str, key: str, /, **query: str | int) -> Iterator[list[dict[str, Any]]]:
        """A list that is handed out in pages, until one is empty.

        A server may have pages that are shorter than we ask for: only a page that is shorter than
        the one before is the last. One that has no pages sends the same again and again.
        """
        before: list[dict[str, Any]] = []
        for number in count(1):
            page = self.get_list(path, key, **query, page=number, page_size=PAGE)
            if not page or page == before:
                return
            yield page
            if len(page) < len(before):
                return
            before = page

    def create(self, path: str, body: Any, /, hide: Sequence[Secret] = ()) -> Any:
        """Make something; what is to be hidden is left out if a refusal quotes it."""
        return self._json(self._request("POST", path, {}, body, hide))

    def patch(self, path: str, body: Mapping[str, Any], /) -> Any:
        return self._json(self._request("PATCH", path, {}, body))

    def delete(self, path: str, /) -> bool:
        """Remove something; False where it was not there (any more)."""
        try:
            self._request("DELETE", path, {})
        except ApiError as error:
            if not error.missing:
                raise
            return False
        return True

    @contextmanager
    def stream(self, path: str, /, *, patience: float) -> Iterator[Iterator[bytes]]:
        """An answer that is read as it comes, on a connection of its own.

        After `patience` seconds without a byte it breaks off with `BackendUnreachableError`.
        """
        self.calls.record(f"GET {path}")
        client = self._client(patience)
        try:
            request = self._prepared("GET", path, {})
            with self._trouble(), client.reply(client.begin(request), False) as it:
                if it.status >= 300:
                    raise self._refused("GET", path, it.answer())
                yield self._pieces(it)
        finally:
            client.close()

    # ------------------------------------------------------------------ inner workings

    def _pieces(self, reply: Reply) -> Iterator[bytes]:
        with self._trouble():
            for block in reply.blocks():
                yield bytes(block)

    def _request(
        self, method: str, path: str, query: Query, body: Any = None, hide: Sequence[Secret] = ()
    ) -> Answer:
        request = self._prepared(method, path, query, body)
        repeatable = method in _REPEATABLE
        kind = " ".join((method, *path.split("/")[1:2]))
        quiet = self._quiet.get(kind, 0.0) - time.monotonic()
        if quiet > 0 and repeatable:
            raise self._unreachable(f"it asked to be left alone for another {quiet:.0f} s (429)")
        give_up_at = time.monotonic() + self._timeouts.busy
        earlier: Counter[bool] = Counter()
        while True:
            self.calls.record(f"{method} {path}")
            answer = self._answered(request, repeatable)
            if answer.status < 300:
                return answer
            is_busy = answer.status == BUSY
            seconds = pause(answer, earlier[is_busy], repeatable=repeatable)
            earlier[is_busy] += 1
            if seconds is None or time.monotonic() + seconds > give_up_at:
                if is_busy and seconds:
                    self._quiet[kind] = time.monotonic() + min(seconds, _LONGEST_QUIET_SECONDS)
                break
            time.sleep(seconds)
        raise self._refused(method, path, without(answer, hide))

    def _answered(self, request: Request, repeatable: bool) -> Answer:
        """Send a request, and again where the answer was lost soon and that is harmless."""
        done = "" if repeatable else f"; {request.method} may or may not have been done"
        with self._trouble(done):
            if not repeatable:
                client = self._client(self._timeouts.stall)
                try:
                    return self._whole(client, request)
                finally:
                    client.close()
            give_up_at = time.monotonic() + _SOON_SECONDS
            for is_last in (False, False, True):
                try:
                    return self._whole(self._kept_client(), request)
                except PassingError:
                    if is_last or time.monotonic() >= give_up_at:
                        raise
                    self.calls.record(f"{request.method} again")
            raise AssertionError("the last attempt either answers or raises")

    def _whole(self, client: Client, request: Request) -> Answer:
        with client.reply(client.begin(request), False) as reply:
            return reply.answer()

    def _prepared(self, method: str, path: str, query: Query, body: Any = None) -> Request:
        url = self.access.url + path
        if query:
            url += f"?{urlencode(query, doseq=True)}"
        headers = {
            "Authorization": f"Bearer {self.access.token.reveal()}",
            "Accept": "application/json",
            "origin": self.access.origin,
        }
        data = b""
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        return Request(method, url, headers, data)

    def _client(self, stall: float) -> Client:
        patience = Patience(connect_seconds=self._timeouts.connect, stall_seconds=stall)
        return Client(settings.process_environment(), patience)

    def _kept_client(self) -> Client:
        """Two processes must not use one connection: after a fork there is another client."""
        if self._kept is None or self._kept[0] != os.getpid():
            self._kept = os.getpid(), self._client(self._timeouts.stall)
        return self._kept[1]

    # ------------------------------------------------------------------ what is made of answers

    def _json(self, answer: Answer) -> Any:
        if not answer.body.strip():
            return {}
        try:
            return json.loads(answer.body)
        except ValueError:
            # A login page or the like: something on the way answered instead of the server.
            raise self._unreachable(f"something else answers: {quoted(answer)}") from None

    def _refused(
        self, method: str, path: str, answer: Answer
    ) -> ApiError | BackendUnreachableError:
        if answer.status < 400:
            place = answer.headers.get("location", "nowhere")
            return self._unreachable(f"it sends us elsewhere (HTTP {answer.status} to {place})")
        error = refusal(answer, f"{method} {path or '/'}", str(self.access))
        # Of a request that makes something, "too busy" is an answer: it was not made.
        if not in_trouble(answer.status) or (error.busy and method not in _REPEATABLE):
            return error
        unreachable = self._unreachable(message_of(answer))
        unreachable.__cause__ = error
        return unreachable

    @contextmanager
    def _trouble(self, done: str = "") -> Iterator[None]:
        try:
            yield
        except (PassingError, RunnerError, OSError) as error:
            raise self._unreachable(f"{error}{done}") from error

    def _unreachable(self, reason: str) -> BackendUnreachableError:
        return BackendUnreachableError(f"Lepton, {self.access}: {reason}")
