"""HTTP for moving data: connections that are kept, retries, proxies, redirects."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urljoin

from ..context import read_number
from ..errors import RunnerError, TransferError
from ..remote import Request
from .answers import Answer
from .connection import Connection, ConnectionFailedError, FilePart, PassingError, Reply
from .routes import Origin, Routes, origin_of, proxy_headers

__all__ = [
    "Answer",
    "Client",
    "FilePart",
    "PassingError",
    "Patience",
    "Reply",
    "Sent",
]

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_WORTH_WHILE = 256 * 1024

if TYPE_CHECKING:
    from .connection import Body

    T = TypeVar("T")


class Patience(NamedTuple):
    """How long to put up with what."""

    attempts: int = 10
    first_delay: float = 0.2
    longest_delay: float = 20.0
    connect_seconds: float = 10.0
    stall_seconds: float = 60.0

    def delay(self, attempt: int) -> float:
        """Before the attempt after this one: exponential, with full jitter."""
        longest = min(self.longest_delay, self.first_delay * 2.0**attempt)
        return random.uniform(0, longest)  # noqa: S311 - no secret depends on it


def patience_of(env: Mapping[str, str]) -> Patience:
    """As much as the environment asks for (TAO_TRANSFER_ATTEMPTS, TAO_STALL_SECONDS)."""
    usual = Patience()
    return usual._replace(
        attempts=max(1, int(read_number(env, "TAO_TRANSFER_ATTEMPTS", usual.attempts))),
        stall_seconds=max(0.1, read_number(env, "TAO_STALL_SECONDS", usual.stall_seconds)),
    )


class Sent(NamedTuple):
    """A request that is on its way."""

    request: Request
    body: Body
    origin: Origin
    head: bytes
    connection: Connection
    is_new: bool


class Client:
    """Sends requests over connections that it keeps. Used by many threads at once."""

    def __init__(
        self,
        env: Mapping[str, str],
        patience: Patience | None = None,
    ) -> None:
        self.patience = patience = patience or patience_of(env)
        self._routes = Routes(env, patience.connect_seconds, patience.stall_seconds)
        self._idle: dict[Origin, list[Connection]] = {}
        self._origins: dict[tuple[str, str], Origin] = {}

    def close(self) -> None:
        for connections in self._idle.values():
            while connections:
                connections.pop().close()

    def begin(self, request: Request, body: Body | None = None) -> Sent:
        """Send a request, whose answer is read later."""
        body = request.body if body is None else body
        scheme, _, rest = request.url.partition("://")
        rest, mark, query = rest.partition("#")[0].partition("?")
        host, _, path = rest.partition("/")
        origin = self._origins.get((scheme, host))
        if not origin:
            origin = self._origins[scheme, host] = origin_of(f"{scheme}://{host}")
        target, headers = f"/{path}{mark}{query}", dict(request.headers)
        if origin.scheme == "http":
            proxy = self._routes.proxy_for(origin)
            if proxy:
                target = f"http://{origin.name}{target}"
                headers.update(proxy_headers(proxy))
        length = len(body) if isinstance(body, bytes) else body.length
        if length or request.method in ("PUT", "POST"):
            headers["Content-Length"] = str(length)
        head = _head(request.method, target, origin, headers)
        return self._dispatch(request, body, origin, head)

    def send_ahead(self, request: Request, body: Body | None = None) -> Sent | None:
        """Send a request; whatever is wrong with the connection, who asks for the answer sees."""
        try:
            return self.begin(request, body)
        except PassingError:
            return None

    def _dispatch(self, request: Request, body: Body, origin: Origin, head: bytes) -> Sent:
        try:
            connection, is_new = self._idle[origin].pop(), False
        except (KeyError, IndexError):
            connection, is_new = self._routes.connect(origin), True
        try:
            connection.send(head, body)
        except BaseException:
            connection.close()
            raise
        return Sent(request, body, origin, head, connection, is_new)

    def reply(self, sent: Sent, follow: bool = True) -> Reply:
        """The answer to a request that was sent."""
        for _ in range(_MOST_REDIRECTS):
            reply = self._reply(sent)
            target = reply.headers.get("location", "")
            if not (follow and target and reply.status in _REDIRECTS):
                return reply
            with reply:
                reply.answer()
            sent = self.begin(_redirected(sent.request, target), sent.body)
        raise PassingError("redirected again and again")

    def _reply(self, sent: Sent) -> Reply:
        while True:
            try:
                idle = self._idle.setdefault(sent.origin, [])
                return sent.connection.answer(sent.request.method, idle)
            except ConnectionFailedError:
                sent.connection.close()
                # A kept connection may have been closed by the server meanwhile.
                if sent.is_new or not sent.connection.silent:
                    raise
            except BaseException:
                sent.connection.close()
                raise
            sent = self._dispatch(*sent[:4])

    def persist(
        self,
        attempt: Callable[[], T],
        uri: str,
        stop: threading.Event | None = None,
        position: Callable[[], int] = int,
    ) -> T:
        """Repeat an attempt until it succeeds, fails for good, or patience ends.

        `position` says how far the attempts have come: one that came on does not count.
        """
        pause = stop.wait if stop else time.sleep
        failed, reached = 0, position()
        while True:
            try:
                return attempt()
            except PassingError as error:
                if position() >= reached + _WORTH_WHILE:
                    failed, reached = 0, position()
                delay = error.after or self.patience.delay(failed)
                failed += 1
                if failed >= self.patience.attempts or pause(delay):
                    message = f"{uri}: {error} (tried {failed} times)"
                    raise TransferError(message) from error

    def fetch(
        self,
        make: Callable[[], Request],
        uri: str,
        body: Body | None = None,
        follow: bool = True,
        sent: Sent | None = None,
    ) -> Answer:
        """A whole answer, whatever its status; of passing troubles the last one.

        `sent` is the first attempt, if that was begun.
        """
        last: list[Answer] = []
        begun = [sent] if sent else []

        def attempt() -> Answer:
            last.clear()
            with self.reply(begun.pop() if begun else self.begin(make(), body), follow) as reply:
                answer = reply.answer()
            last.append(answer)
            if answer.is_passing:
                raise PassingError(answer.says(), answer.retry_after)
            return answer

        try:
            return self.persist(attempt, uri)
        except TransferError:
            if last:
                return last[0]
            raise


def _head(method: str, target: str, origin: Origin, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {origin.name}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines)
    if len({head.count("\n"), head.count("\r"), len(lines) - 1}) > 1 or max(head) > "\xff":
        raise RunnerError(
            f"{origin.scheme}://{origin.name}: a header or path has a line break, or a character "
            "that no header can have"
        )
    return (head + "\r\nAccept-Encoding: identity\r\nUser-Agent: tao-runner\r\n\r\n").encode(
        "latin-1"
    )


def _redirected(request: Request, target: str) -> Request:
    url = urljoin(request.url, target)
    before, after = origin_of(request.url), origin_of(url)
    if before.scheme == "https" and after.scheme == "http":
        raise TransferError(f"https://{before.name}: redirects to plain http: not followed")
    headers = request.headers
    if before != after:
        secret = ("authorization", "cookie", "x-amz-security-token")
        headers = {name: value for name, value in headers.items() if name.lower() not in secret}
    return request._replace(url=url, headers=headers)
