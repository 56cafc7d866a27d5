"""The server: HTTP on a port of this machine."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from lab.lepton.engine import Engine
from lab.lepton.faults import Faults
from lab.lepton.routes import Asked, RefusedError, Routes, parse_body
from lab.lepton.state import PlayedJob, State, Worker

WORKSPACE = "played-ws"
TOKEN = "played-token-5d0f1c"  # noqa: S105 - of no real workspace
OTHER_TOKEN = "played-token-b81e22"  # noqa: S105 - another one of the same workspace
FORBIDDEN = "forbidden-token-77aa"
_WITH_SECRETS = ("/usersecrets", "/imagepullsecrets")


class LeptonServer:
    """One workspace, while its `with` block lasts."""

    def __init__(self, root: Path, **engine: Any) -> None:
        self.faults = Faults()
        self.state = State(root)
        self.engine = Engine(self.state, **engine)
        self.routes = Routes(self.state, self.engine, self.faults)
        self.requests: list[dict[str, Any]] = []
        """Every request, with what it said."""
        self.forgotten = self.state.forgotten
        """Jobs of which nothing but their logs is left."""
        self._http = _Server(self)
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> LeptonServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self.engine.close()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address of the workspace."""
        return f"{self.base}/api/v2/workspaces/{WORKSPACE}"

    def variables(self) -> dict[str, str]:
        """What a client of this workspace has in its environment."""
        return {
            "LEPTON_WORKSPACE_ID": WORKSPACE,
            "LEPTON_AUTH_TOKEN": TOKEN,
            "LEPTON_API_BASE_URL": self.base,
        }

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """While this is open, no request gets an answer; jobs go on."""
        self.faults.cut = True
        try:
            yield
        finally:
            self.faults.cut = False

    def calls(self, since: int = 0) -> list[str]:
        """The requests by name, as they came."""
        return [f"{one['method']} {one['path']}" for one in self.requests[since:]]

    def readable(self) -> str:
        """All that was said, less the bodies by which secrets are made."""
        told = [
            {**one, "body": ""}
            if one["method"] == "POST" and one["path"].startswith(_WITH_SECRETS)
            else one
            for one in self.requests
        ]
        return json.dumps(told)

    def job_of(self, job_id: str) -> PlayedJob:
        """A job by the id that the SDK has for it."""
        [found] = [
            job for job in self.state.jobs.values() if job.labels.get("tao-sdk-job-id") == job_id
        ]
        return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, owner: LeptonServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _answer(self) -> None:
        owner, faults = self.server.owner, self.server.owner.faults
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        prefix = f"/api/v2/workspaces/{WORKSPACE}"
        path = unquote(parts.path).removeprefix(prefix)
        call = f"{self.command} {path}"
        owner.requests.append(
            {
                "method": self.command,
                "path": path,
                "query": parts.query,
                "body": data.decode("utf-8", "replace"),
                "time": time.time(),
            }
        )
        if seconds := faults.keeps(call):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            time.sleep(seconds)
        time.sleep(faults.delay())
        if faults.cut:
            self.close_connection = True
            return
        try:
            if faults.strikes(faults.busy):
                raise RefusedError(429, "too many requests")
            if self.command != "POST" and faults.strikes(faults.broken):
                raise RefusedError(503, "no healthy upstream")
            if status := faults.take(call):
                raise RefusedError(status, "refused by the test")
            self._authorize(prefix, unquote(parts.path))
            query = parse_qs(parts.query, keep_blank_values=True)
            answer = owner.routes.answer(Asked(self.command, path, query, parse_body(data)))
        except RefusedError as refused:
            quoted = f": {data.decode('utf-8', 'replace')}" if faults.quotes else ""
            message = f"{refused.message}{quoted}"
            self._send(refused.status, {"code": refused.status, "message": message})
            return
        if faults.cut or faults.loses(call):
            self.close_connection = True
            return
        if answer.follow is not None:
            self._follow(answer.follow)
        elif answer.file is not None:
            self._send_file(answer.file)
        else:
            self._send(answer.status, answer.body)

    def _authorize(self, prefix: str, path: str) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given == FORBIDDEN:
            raise RefusedError(403, "forbidden")
        if given not in (TOKEN, OTHER_TOKEN):
            raise RefusedError(401, "unauthorized")
        if path != prefix and not path.startswith(f"{prefix}/"):
            raise RefusedError(404, "workspace not found")

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        if self.server.owner.faults.instead is not None:
            data = self.server.owner.faults.instead
        self.send_response(status)
        if status == 429 and self.server.owner.faults.retry_after:
            self.send_header("Retry-After", self.server.owner.faults.retry_after)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_file(self, path: Path) -> None:
        faults = self.server.owner.faults
        data, seconds = path.read_bytes(), int(path.stat().st_mtime)
        size, start = len(data), 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and faults.sends_parts:
            start = int(wanted[1])
            if start >= size:
                raise RefusedError(416, "range not satisfiable")
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        else:
            self.send_response(200)
        if not (self.command == "HEAD" and faults.hides_sizes):
            self.send_header("Content-Length", str(size - start))
            if not faults.hides_times:
                self.send_header("Last-Modified", formatdate(seconds, usegmt=True))
        self.end_headers()
        if self.command == "HEAD":
            return
        if faults.breaks_after and size:
            self.wfile.write(data[start:][: faults.breaks_after.pop(0)])
            self.close_connection = True
            return
        self.wfile.write(data[start:])

    def _follow(self, worker: Worker) -> None:
        """The log from its beginning, until the worker ends."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent = self.server.owner.faults.live_skips
        while not self.server.owner.faults.cut:
            over = worker.ended.is_set()
            new = worker.lines[sent:]
            sent += len(new)
            if new:
                data = "".join(f"{text}\n" for _, text in new).encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            elif over:
                break
            else:
                time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_HEAD = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the base class names them

    def log_message(self, *_: Any) -> None:
        """Nothing on the console."""


__all__ = ["FORBIDDEN", "OTHER_TOKEN", "TOKEN", "WORKSPACE", "LeptonServer"]
