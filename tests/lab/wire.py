"""A small HTTP/1.1 server on loopback that registries of the lab are made of.

It keeps a record of what it was asked, serves ranges, and misbehaves when told to.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Call:
    """One request as it arrived; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def parts(self) -> list[str]:
        """The segments of the path, each one decoded."""
        return [unquote(part) for part in self.path.split("/")[1:]]

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def bearer(self) -> str:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme == "Bearer" else ""


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    ranged: bool = False
    """Whether a `Range` header is honoured."""


@dataclass
class Fault:
    """What goes wrong with the next `times` requests whose target contains `match`."""

    match: str
    times: int = 1
    reply: Reply | None = None
    """Answered instead."""
    cut_after: int | None = None
    """The connection is closed after so many bytes of the true body."""


class WireServer:
    """Serves `answer` until it is closed."""

    def __init__(self, answer: Callable[[Call], Reply]) -> None:
        self.answer = answer
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            wire = server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked(self, match: str) -> list[Call]:
        """The requests so far whose target contains the text."""
        return [call for call in list(self.calls) if match in call.target]

    def note(self, call: Call) -> Fault | None:
        """Write a request down, and say what is to go wrong with it."""
        with self._lock:
            self.calls.append(call)
            for fault in self.faults:
                if fault.times > 0 and fault.match in call.target:
                    fault.times -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a head and a body are two writes
    wire: WireServer

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = Call(self.command, self.path, headers, self.rfile.read(length))
        fault = self.wire.note(call)
        if fault and fault.reply:
            self._send(fault.reply, None)
        else:
            self._send(_range_of(self.wire.answer(call), call), fault.cut_after if fault else None)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for

    def _send(self, reply: Reply, cut_after: int | None) -> None:
        # A client that goes away while it is answered is no business of the lab's.
        with contextlib.suppress(ConnectionError):
            self.send_response(reply.status, HTTPStatus(reply.status).phrase)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if cut_after is not None and cut_after < len(reply.body):
                self.wfile.write(reply.body[:cut_after])
                self.close_connection = True
            else:
                self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """The record is `WireServer.calls`."""


def _range_of(reply: Reply, call: Call) -> Reply:
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", call.headers.get("range", ""))
    if not (reply.ranged and reply.status == 200 and wanted):
        return reply
    total = len(reply.body)
    first, last = int(wanted[1]), min(int(wanted[2] or total - 1), total - 1)
    if first > last:
        return Reply(416, b"", {"Content-Range": f"bytes */{total}"})
    bounds = {"Content-Range": f"bytes {first}-{last}/{total}"}
    return Reply(206, reply.body[first : last + 1], {**reply.headers, **bounds})


class Storage:
    """The host that a registry sends its clients to: it knows signatures, and no tokens.

    A request that brings a token along is refused, as S3 refuses two ways to authenticate.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.server = WireServer(self._answer)

    def signed_url(self, name: str, data: bytes) -> str:
        self.blobs[name] = data
        return f"{self.server.url}/{name}?X-Amz-Signature={_signature(name)}"

    def _answer(self, call: Call) -> Reply:
        if "authorization" in call.headers:
            return Reply(400, b"Only one auth mechanism allowed")
        name = call.parts[-1]
        if call.query.get("X-Amz-Signature") != _signature(name):
            return Reply(403, b"SignatureDoesNotMatch")
        headers = {"ETag": f'"{_signature(name)}"', "Accept-Ranges": "bytes"}
        return Reply(200, self.blobs[name], headers, ranged=True)


Served = TypeVar("Served", bound="Registry")


class Registry:
    """A registry and the host with its files, for the length of a `with`."""

    def open(self) -> None:
        self.storage = Storage()
        self.server = WireServer(self._answer)

    def __enter__(self: Served) -> Served:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.close()
        self.storage.server.close()

    def _answer(self, call: Call) -> Reply:
        raise NotImplementedError


def _signature(name: str) -> str:
    return f"signed-{name[:12]}"
