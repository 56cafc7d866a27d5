"""The client of a REST API: pooled connections, counted requests, repeats where harmless.

A request that may have reached the server is repeated only if that does no harm. For any other
request the error says that it may or may not have been done.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3 import HTTPHeaderDict
from urllib3.exceptions import HTTPError, ProtocolError

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.rest.errors import RefusedError, describe, may_have_arrived
from tao_sdk.platforms.rest.proxies import Proxy
from tao_sdk.platforms.rest.response import BUSY, Response
from tao_sdk.platforms.rest.websocket import Handshake, WebSocket, upgradable
from tao_sdk.secrets import Secret

Query = Mapping[str, str | int | Sequence[str]]
_Answer = TypeVar("_Answer")

# urllib3 warns in the log about each further one.
_MAX_CONNECTIONS = 256
# Load balancers drop connections after some idle minutes, often without telling either side.
_MAX_IDLE_SECONDS = 60.0
_PIECE_BYTES = 65536
# No answer that is read whole is nearly as long: a server that sends more is none of ours.
_MAX_BODY_BYTES = 256 * 1024 * 1024
# Of an answer that is no success, where a stream was asked for: messages quote its beginning.
_MAX_ERROR_BYTES = 1024 * 1024
# A peer that disappears is noticed after half a minute, also while nothing is sent.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _KEEPALIVE.items()
        if hasattr(socket, name)
    ),
]


class Timeouts(NamedTuple):
    """How many seconds each kind of waiting may take."""

    connect: float = 10.0
    read: float = 30.0
    """Without a byte of the answer to a request that reads."""
    write: float = 60.0
    """The same for a request that changes something."""
    busy: float = 20.0
    """In all, while the server is too busy or fails, and the request is repeated."""


_DEFAULT_TIMEOUTS = Timeouts()


class _Pool(NamedTuple):
    manager: urllib3.PoolManager
    tls: ssl.SSLContext | None
    process_id: int


class RestClient:
    """Requests to one server, from any thread and after a fork.

    `url` may have a path, which every request's path follows. `name` is the server in messages.
    `refusal` makes an error of an answer that is no success.
    """

    def __init__(
        self,
        url: str,
        name: str,
        refusal: Callable[[Response, str], RefusedError],
        *,
        proxy: Proxy | None = None,
        server_name: str = "",
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
    ) -> None:
        self.calls = CallLog()
        self._url = url.rstrip("/")
        self._is_encrypted = urlsplit(url).scheme == "https"
        self._name = name
        self._refusal = refusal
        self._proxy = proxy
        self._server_name = server_name
        self._timeouts = timeouts
        self._lock = threading.Lock()
        self._pool: _Pool | None = None
        self._used_at = 0.0
        self._default_tls: ssl.SSLContext | None = None

    def close(self) -> None:
        """Close idle connections; the next request opens another one."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.manager.clear()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        repeatable: bool | None = None,
        new_connection: bool = False,
        hide: Sequence[Secret] = (),
    ) -> Response:
        """The answer to a request, if it is a success.

        `path` is quoted already. Without `tls`, the authorities of the system are trusted.
        `repeatable` requests are repeated after a failure; by default those that only read. On a
        `new_connection`, a server cannot end a kept connection while the request is on its way.
        Errors quote none of the values to `hide`, which a server may send back.

        Raises what `refusal` makes of an answer, and `BackendUnreachableError` if there is none.
        """
        call = f"{method} {path}"
        only_reads = method in ("GET", "HEAD")
        may_repeat = only_reads if repeatable is None else repeatable
        seconds = self._timeouts.read if only_reads else self._timeouts.write
        target = self._target(path, query)

        def send() -> Response:
            self.calls.record(call)
            with self._manager(tls, new_connection) as manager:
                answer = self._open(manager, method, target, body, headers, seconds)
                with contextlib.closing(answer):
                    return Response(answer.status, answer.headers, self._body(answer))

        give_up_at = time.monotonic() + self._timeouts.busy
        for repeats in count():
            response = self._once_more_if_lost(send, call, may_repeat)
            if response.status < 300:
                return response
            delay = response.delay(repeats, repeatable=may_repeat)
            if delay is None or time.monotonic() + delay > give_up_at:
                break
            time.sleep(delay)
        raise self._refused(response.without(hide), call, may_repeat)

    def stream(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        silence: float | None = None,
        label: str = "GET",
    ) -> Stream:
        """An answer that is read as it comes, on a connection of its own.

        It breaks off after `silence` seconds without a byte; None waits for ever. `label` counts it
        under another name than GET.
        """
        call = f"{label} {path}"
        target = self._target(path, query)

        def send() -> Stream | Response:
            self.calls.record(call)
            with self._manager(tls) as manager:
                answer = self._open(manager, "GET", target, None, headers, silence)
            if answer.status in (200, 206):
                return Stream(answer, self._unreachable)
            with contextlib.closing(answer):
                return Response(answer.status, answer.headers, self._error_body(answer))

        found = self._once_more_if_lost(send, call, True)
        if isinstance(found, Stream):
            return found
        raise self._refused(found, call, True)

    def websocket(
        self,
        path: str,
        protocol: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        silence: float | None = None,
    ) -> WebSocket:
        """A connection that the server upgrades for that protocol; see `stream`."""
        target = self._target(path, query)
        handshake = Handshake(protocol)
        asked = HTTPHeaderDict(headers or {})
        asked.update(handshake.headers)

        def send() -> WebSocket | Response:
            self.calls.record(f"WEBSOCKET {path}")
            manager = self._new_manager(tls)
            pool = manager.connection_from_url(target)
            # The same connection but for the answer, which does not end with its head.
            pool.ConnectionCls = upgradable(pool.ConnectionCls)  # type: ignore[arg-type]
            answer = self._open(manager, "GET", target, None, asked, silence)
            if handshake.is_accepted(answer.status, answer.headers):
                return self._upgraded(answer)
            with contextlib.closing(answer):
                content = b"" if answer.status < 200 else self._error_body(answer)
                return Response(answer.status, answer.headers, content)

        found = self._once_more_if_lost(send, f"WEBSOCKET {path}", False)
        if isinstance(found, WebSocket):
            return found
        if found.status < 300:
            raise self._unreachable(f"it does not open a WebSocket: {found.quoted()}")
        raise self._refused(found, f"WEBSOCKET {path}", True)

    def _upgraded(self, answer: urllib3.BaseHTTPResponse) -> WebSocket:
        answer.length_remaining = None  # urllib3, too, takes it for an answer without a body
        stream = Stream(answer, self._unreachable)

        def send(data: bytes) -> None:
            try:
                answer.connection.sock.sendall(data)  # type: ignore[union-attr]
            except OSError as error:
                raise self._unreachable(error.strerror or str(error)) from error

        return WebSocket(stream, send, stream.close)

    def not_ours(self, response: Response) -> BackendUnreachableError:
        """The error for an answer that some other program has given: a login page, say."""
        return self._unreachable(f"something else answers: {response.quoted()}")

    # ------------------------------------------------------------------ sending

    def _target(self, path: str, query: Query | None) -> str:
        return f"{self._url}{path}?{urlencode(query, doseq=True)}" if query else self._url + path

    def _open(
        self,
        manager: urllib3.PoolManager,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        seconds: float | None,
    ) -> urllib3.BaseHTTPResponse:
        return manager.urlopen(
            method,
            target,
            body=body,
            headers=headers or {},
            redirect=False,
            retries=False,
            preload_content=False,
            timeout=urllib3.Timeout(connect=self._timeouts.connect, read=seconds),
        )

    def _body(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        body = bytearray()
        for piece in answer.stream(_PIECE_BYTES, decode_content=True):
            body += piece
            if len(body) > _MAX_BODY_BYTES:
                raise self._unreachable(f"its answer has more than {_MAX_BODY_BYTES:,} bytes")
        return bytes(body)

    def _error_body(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        """What comes in time of an answer that would have been read for as long as it lasts."""
        body, pieces = bytearray(), Stream(answer, self._unreachable)
        limit = threading.Timer(self._timeouts.read, pieces.hang_up)
        limit.daemon = True
        limit.start()
        try:
            for piece in pieces:
                body += piece
                if len(body) >= _MAX_ERROR_BYTES:
                    break
        finally:
            limit.cancel()
        return bytes(body)

    def _once_more_if_lost(
        self, send: Callable[[], _Answer], call: str, repeatable: bool
    ) -> _Answer:
        for is_last in (False, True):
            try:
                return send()
            except HTTPError as error:
                # A kept connection that the server ended is the usual cause. After a time-out
                # the same wait would follow again.
                if isinstance(error, ProtocolError) and repeatable and not is_last:
                    continue
                in_doubt = not repeatable and may_have_arrived(error)
                doubt = f"; {call} may or may not have been done" if in_doubt else ""
                raise self._unreachable(f"{describe(error)}{doubt}") from error
        raise AssertionError("the second attempt either answers or raises")

    @contextlib.contextmanager
    def _manager(
        self, tls: ssl.SSLContext | None, new_connection: bool = False
    ) -> Iterator[urllib3.PoolManager]:
        if new_connection:
            manager = self._new_manager(tls)
            try:
                yield manager
            finally:
                manager.clear()
            return
        now = time.monotonic()
        with self._lock:
            pool = self._pool
            # A connection is proven by the certificate it was opened with, and two processes must
            # not share one: each would read the other's answers.
            is_ours = pool and pool.process_id == os.getpid() and pool.tls is tls
            if pool is None or not is_ours or now - self._used_at > _MAX_IDLE_SECONDS:
                pool = self._pool = _Pool(self._new_manager(tls), tls, os.getpid())
            self._used_at = now
        yield pool.manager

    def _new_manager(self, tls: ssl.SSLContext | None) -> urllib3.PoolManager:
        options: dict[str, Any] = {"maxsize": _MAX_CONNECTIONS, "socket_options": _SOCKET_OPTIONS}
        if self._is_encrypted:
            options["ssl_context"] = tls or self._system_tls()
            if self._server_name:
                options["server_hostname"] = self._server_name
        proxy = self._proxy
        if proxy is None:
            return urllib3.PoolManager(**options)
        if proxy.is_socks:
            return self._socks_manager(proxy, options)
        headers = None
        if proxy.user:
            pair = f"{proxy.user}:{proxy.password.reveal()}"
            headers = urllib3.make_headers(proxy_basic_auth=pair)
        return urllib3.ProxyManager(proxy.url, proxy_headers=headers, **options)

    def _system_tls(self) -> ssl.SSLContext:
        if self._default_tls is None:
            self._default_tls = ssl.create_default_context()  # takes 20 ms or more
        return self._default_tls

    def _socks_manager(self, proxy: Proxy, options: dict[str, Any]) -> urllib3.PoolManager:
        try:
            from urllib3.contrib.socks import SOCKSProxyManager
        except ImportError:
            raise self._unreachable(
                f"its proxy {proxy} needs the package PySocks: pip install 'urllib3[socks]'"
            ) from None
        # The proxy resolves the name: a private cluster's name is often known only there.
        url = proxy._replace(scheme="socks5h").url
        password = proxy.password.reveal() or None
        return SOCKSProxyManager(url, username=proxy.user or None, password=password, **options)

    # ------------------------------------------------------------------ errors

    def _refused(
        self, response: Response, call: str, repeatable: bool
    ) -> RefusedError | BackendUnreachableError:
        if response.status < 400:
            place = response.headers.get("Location", "nowhere")
            return self._unreachable(f"it redirects us (HTTP {response.status} to {place})")
        refusal = self._refusal(response, call)
        # "Too busy" means that nothing was done: for a request that would change something, a no.
        if not response.is_temporary or (response.status == BUSY and not repeatable):
            return refusal
        unreachable = self._unreachable(f"HTTP {response.status}: {refusal.message}")
        unreachable.__cause__ = refusal
        return unreachable

    def _unreachable(self, reason: str) -> BackendUnreachableError:
        return BackendUnreachableError(f"{self._name}: {reason}")


class Stream(Iterator[bytes]):
    """Pieces of an answer as they come. Close it, or use it with `with`."""

    def __init__(
        self,
        response: urllib3.BaseHTTPResponse,
        unreachable: Callable[[str], BackendUnreachableError],
    ) -> None:
        self.status = response.status
        """206 for a part that was asked for by a `Range` header."""
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._unreachable = unreachable
        self._hung_up = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> bytes:
        """Raises `BackendUnreachableError` if the answer breaks off or nothing comes."""
        try:
            piece = self._response.read1(_PIECE_BYTES)
        except (HTTPError, OSError, ValueError) as error:
            if self._hung_up:
                raise StopIteration from None
            reason = describe(error) if isinstance(error, HTTPError) else str(error)
            raise self._unreachable(reason) from error
        # After a shutdown, bytes may come that are still encrypted.
        if not piece or self._hung_up:
            raise StopIteration
        return piece

    def hang_up(self) -> None:
        """End reading, from any thread: a blocked `next` returns."""
        self._hung_up = True
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # it has ended already
            self._response.shutdown()

    def close(self) -> None:
        self._hung_up = True
        self._response.close()
