"""WebSockets of the REST client, against servers that are played byte by byte."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from test_rest_client import Authority, Exchange, ProxyServer, authority, refusal
from test_rest_client import Server as TlsServer

from lab.scripted import read_head
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.rest import Proxy, RefusedError, RestClient
from tao_sdk.platforms.rest import websocket as websocket_module

__all__ = ["authority"]

PROTOCOL = "v4.channel.k8s.io"
Script = Callable[[socket.socket], None]
BINARY, CONTINUATION, CLOSE, PING, PONG = 2, 0, 8, 9, 10


class Server:
    """Answers one request with a script."""

    def __init__(self, head: str, script: Script) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.request: dict[str, str] = {}
        self._head = head
        self._script = script
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            lines = read_head(connection).decode().split("\r\n")
            pairs = (line.partition(": ") for line in lines[1:] if line)
            self.request = {name.lower(): value for name, _, value in pairs}
            proof = proof_of(self.request["sec-websocket-key"])
            connection.sendall(self._head.format(proof=proof).encode())
            self._script(connection)

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


def proof_of(key: str) -> str:
    magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    digest = hashlib.sha1((key + magic).encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


ACCEPTED = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Accept: {{proof}}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
)


@pytest.fixture
def serve() -> Iterator[Callable[[str, Script], RestClient]]:
    servers: list[Server] = []

    def start(head: str, script: Script) -> RestClient:
        servers.append(Server(head, script))
        return RestClient(
            servers[-1].url,
            "the server",
            refusal,
        )

    yield start
    for server in servers:
        server.close()


def sent(opcode: int, data: bytes, *, final: bool = True) -> bytes:
    """A frame from a server: not masked."""
    first = (0x80 if final else 0) | opcode
    if len(data) < 126:
        return bytes([first, len(data)]) + data
    if len(data) < 65536:
        return struct.pack("!BBH", first, 126, len(data)) + data
    return struct.pack("!BBQ", first, 127, len(data)) + data


def exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = connection.recv(size - len(found))
        assert piece
        found += piece
    return found


def received(connection: socket.socket) -> tuple[int, bytes]:
    """A frame from a client: masked."""
    first, size = exactly(connection, 2)
    assert size & 0x80, "clients mask what they send"
    size &= 0x7F
    if size == 126:
        [size] = struct.unpack("!H", exactly(connection, 2))
    elif size == 127:
        [size] = struct.unpack("!Q", exactly(connection, 8))
    key, data = exactly(connection, 4), exactly(connection, size)
    return first & 0x0F, bytes(byte ^ key[i % 4] for i, byte in enumerate(data))


SIZES = (1, 125, 126, 65535, 65536, 200_000)


def test_messages_of_every_size_pass_both_ways(
    serve: Callable[[str, Script], RestClient],
) -> None:
    def echo(connection: socket.socket) -> None:
        for _ in SIZES:
            opcode, data = received(connection)
            connection.sendall(sent(opcode, data))
        connection.sendall(sent(CLOSE, b"\x03\xe8"))

    with serve(ACCEPTED, echo).websocket("/exec", PROTOCOL, silence=20) as socket_:
        for size in SIZES:
            message = bytes(i % 251 for i in range(size))
            socket_.send(message)
            assert socket_.receive() == message
        assert socket_.receive() == b""
        assert socket_.receive() == b"", "it stays closed"


def test_parts_are_joined_and_pings_are_answered(
    serve: Callable[[str, Script], RestClient],
) -> None:
    pongs = []

    def talk(connection: socket.socket) -> None:
        connection.sendall(sent(BINARY, b"one ", final=False) + sent(PING, b"there?"))
        pongs.append(received(connection))
        connection.sendall(sent(PONG, b"") + sent(CONTINUATION, b"message"))

    with serve(ACCEPTED, talk).websocket("/exec", PROTOCOL, silence=20) as socket_:
        assert socket_.receive() == b"one message"
        assert socket_.receive() == b"", "the connection is lost"
    assert pongs == [(PONG, b"there?")]


@pytest.mark.parametrize(
    "frames",
    [
        struct.pack("!BBQ", 0x80 | BINARY, 127, 1 << 62),
        sent(BINARY, b"x" * 600, final=False) + sent(CONTINUATION, b"x" * 600),
    ],
    ids=["one frame", "parts"],
)
def test_a_message_has_a_limit(
    serve: Callable[[str, Script], RestClient], monkeypatch: pytest.MonkeyPatch, frames: bytes
) -> None:
    monkeypatch.setattr(websocket_module, "_MAX_MESSAGE_BYTES", 1000)
    client = serve(ACCEPTED, lambda connection: connection.sendall(frames))
    with (
        client.websocket("/exec", PROTOCOL, silence=20) as socket_,
        pytest.raises(BackendUnreachableError, match="more than 1,000 bytes"),
    ):
        socket_.receive()


def test_silence_ends_it(serve: Callable[[str, Script], RestClient]) -> None:
    over = threading.Event()
    client = serve(ACCEPTED, lambda _: bool(over.wait(20)) or None)
    with client.websocket("/exec", PROTOCOL, silence=0.2) as socket_:
        with pytest.raises(BackendUnreachableError, match="did not answer in time"):
            socket_.receive()
        over.set()


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_it_goes_through_tls_and_proxies(authority: Authority, scheme: str) -> None:
    def echo(exchange: Exchange) -> None:
        head = ACCEPTED.format(proof=proof_of(exchange.headers["sec-websocket-key"]))
        exchange.say(head.encode())
        opcode, data = received(exchange.connection)
        exchange.say(sent(opcode, data) + sent(CLOSE, b""))

    tls = authority.server_context()
    with (
        contextlib.closing(TlsServer(echo, tls)) as server,
        contextlib.closing(ProxyServer(("127.0.0.1", server.port))) as proxy,
    ):
        way = Proxy.parse(f"{scheme}://127.0.0.1:{proxy.port}")
        client = RestClient("https://cluster.test:6443", "the server", refusal, proxy=way)
        trusted = authority.client_context()
        with client.websocket("/exec", PROTOCOL, tls=trusted, silence=20) as socket_:
            socket_.send(b"hello")
            assert socket_.receive() == b"hello"
            assert socket_.receive() == b""
        [asked] = proxy.asked
    assert "cluster.test:6443" in asked


REFUSED = (
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!",
    RefusedError,
    "no!",
)
NO_UPGRADE = ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlogin", BackendUnreachableError, "login")
OTHER_PROTOCOL = (
    ACCEPTED.replace(PROTOCOL, "v1.channel.k8s.io"),
    BackendUnreachableError,
    "does not open a WebSocket",
)
NO_PROOF = (
    ACCEPTED.replace("{proof}", "x"),
    BackendUnreachableError,
    "does not open a WebSocket",
)


@pytest.mark.parametrize("answer", [REFUSED, NO_UPGRADE, OTHER_PROTOCOL, NO_PROOF])
def test_a_server_that_does_not_upgrade(
    serve: Callable[[str, Script], RestClient], answer: tuple[str, type[Exception], str]
) -> None:
    head, error, words = answer
    with pytest.raises(error, match=words):
        serve(head, lambda _: None).websocket("/exec", PROTOCOL, silence=20)
