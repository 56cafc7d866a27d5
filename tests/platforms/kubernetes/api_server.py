"""A TLS server on loopback that answers as a test wants, and the certificates for it."""

from __future__ import annotations

import base64
import contextlib
import datetime
import gzip
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PODS = "/api/v1/namespaces/tests/pods"


class HangUpError(Exception):
    """Ends the connection."""


@dataclass(frozen=True)
class Request:
    """One request as it arrived; names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, list[str]]
    body: bytes
    connection: int
    client: str
    """The name in the client's certificate."""

    def header(self, name: str) -> str:
        return ", ".join(self.headers.get(name, []))


Handler = Callable[[Request, ssl.SSLSocket], None]


class Certificates:
    """An authority, a server's certificate for 127.0.0.1 and cluster.test, and clients'."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        authority = self._signed(self._name, self._key, is_authority=True)
        self.authority = folder / "ca.crt"
        self.authority.write_bytes(authority)
        self.server = self.issue("server", "127.0.0.1", "cluster.test")

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, private = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(self._signed(_name(name), key, hosts))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, private

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        hosts: tuple[str, ...] = (),
        is_authority: bool = False,
    ) -> bytes:
        now = datetime.datetime.now(datetime.timezone.utc)
        day = datetime.timedelta(days=1)
        # Without key identifiers, as the authorities of many clusters are.
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass
class ApiServer:
    """Hands every request to `handler`, and remembers it."""

    certificates: Certificates
    handler: Handler
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*self.certificates.server)
        self._context.load_verify_locations(self.certificates.authority)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """End every connection that there is."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def targets(self, part: str = "") -> list[str]:
        return [
            f"{seen.method} {seen.target}" for seen in list(self.requests) if part in seen.target
        ]

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(
                target=self._serve, args=(plain, self.connections), daemon=True
            ).start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, HangUpError, ValueError):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = socket.socket(fileno=plain.detach())
            twin = line.dup()  # a TLS socket cannot be shut down from another thread
            with self._lock:
                self._open.add(twin)
            try:
                with self._context.wrap_socket(line, server_side=True) as connection:
                    self._converse(connection, number)
            finally:
                with self._lock:
                    self._open.discard(twin)
                twin.close()

    def _converse(self, connection: ssl.SSLSocket, number: int) -> None:
        reader = connection.makefile("rb")
        while first := reader.readline():
            method, target, _ = first.decode().split(" ", 2)
            headers: dict[str, list[str]] = {}
            while (line := reader.readline().strip()) != b"":
                name, _, value = line.decode().partition(":")
                headers.setdefault(name.lower(), []).append(value.strip())
            body = reader.read(int((headers.get("content-length") or ["0"])[0]))
            subject: Any = (connection.getpeercert() or {}).get("subject") or ()
            client = "".join(value for ((_, value),) in subject)
            request = Request(method, target, headers, body, number, client)
            self.requests.append(request)
            self.handler(request, connection)


# ---------------------------------------------------------------------- answers


def answer(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None, packed: bool = False
) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}"]
    if packed:
        data = gzip.compress(data)
        lines.append("Content-Encoding: gzip")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data


def failure(status: int, reason: str, message: str, **headers: str) -> bytes:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": {"name": "x"},
        "code": status,
    }
    return answer(body, status, {name.replace("_", "-"): text for name, text in headers.items()})


def says(*answers: bytes) -> Handler:
    """One answer after the other; the last one for ever."""
    left = list(answers)

    def handler(request: Request, connection: ssl.SSLSocket) -> None:
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])

    return handler


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


# ---------------------------------------------------------------------- kubeconfigs


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def kubeconfig(
    file: Path,
    server: str,
    user: Mapping[str, Any],
    cluster: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Path:
    """A file with one context, called "here"."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": dict(user)}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "here",
    }
    file.write_text(yaml.safe_dump(document))
    return file
