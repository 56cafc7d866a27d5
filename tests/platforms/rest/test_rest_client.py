"""The REST client against servers that close, stall, reset, redirect or answer slowly."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.kubernetes import pki
from lab.ports import free_port
from lab.scripted import read_head
from tao_sdk.errors import BackendUnreachableError, PlatformError
from tao_sdk.platforms.rest import (
    Proxy,
    RefusedError,
    Response,
    RestClient,
    Timeouts,
    proxy_for,
)
from tao_sdk.platforms.rest import client as client_module
from tao_sdk.secrets import Secret

Handler = Callable[["Exchange"], None]
QUICK = Timeouts(connect=5, read=5, write=5, busy=5)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
PASSWORD = "canary:p@ss/word"  # noqa: S105 - to be found where it must not be


def answer(body: bytes, status: int = 200, version: str = "1.1", **headers: str) -> bytes:
    lines = [f"HTTP/{version} {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Exchange:
    """One request that a server has received, and the connection to answer it on."""

    def __init__(self, connection: socket.socket, number: int, head: bytes, seen: int) -> None:
        self.connection = connection
        self.connection_number = number
        self.number = seen
        """Of all requests to this server, from 1."""
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ", 2)
        pairs = (line.partition(": ") for line in lines[1:] if line)
        self.headers = {name.lower(): value for name, _, value in pairs}
        length = int(self.headers.get("content-length", "0"))
        self.body = b""
        while len(self.body) < length:
            self.body += connection.recv(length - len(self.body))

    def say(self, data: bytes) -> None:
        self.connection.sendall(data)

    def hang_up(self) -> None:
        self.connection.close()

    def reset(self) -> None:
        """End the connection so that the client gets ECONNRESET."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


class Server:
    """Hands every request to `handler`, each connection in a thread of its own."""

    def __init__(
        self, handler: Handler, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._handler, self._tls = handler, tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=64)
        self.port: int = self._listener.getsockname()[1]
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"
        self.exchanges: list[Exchange] = []
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                number = len(self.connections)
                threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                while head := read_head(connection):
                    exchange = Exchange(connection, number, head, len(self.exchanges) + 1)
                    self.exchanges.append(exchange)
                    self._handler(exchange)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def says(*answers: bytes) -> Handler:
    """One answer after the other; the last one for ever."""
    left = list(answers)
    return lambda exchange: exchange.say(left.pop(0) if len(left) > 1 else left[0])


def refusal(response: Response, call: str) -> RefusedError:
    return RefusedError(response.status, response.body.decode(), call)


Serve = Callable[..., Server]
Connect = Callable[..., RestClient]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = []

    def start(handler: Handler, **options: object) -> Server:
        server = Server(handler, **options)  # type: ignore[arg-type]
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients = []

    def make(url: str, timeouts: Timeouts = QUICK, **options: object) -> RestClient:
        client = RestClient(url, "the test API", refusal, timeouts=timeouts, **options)  # type: ignore[arg-type]
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


class TestRequests:
    def test_what_is_sent(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"fine")))
        client = connect(server.url + "/below/")
        response = client.request(
            "POST", "/a%20b", query={"x": [1, "2&3"]}, body=b"data", headers={"X-Own": "yes"}
        )
        assert response.body == b"fine"
        [seen] = server.exchanges
        assert (seen.method, seen.target) == ("POST", "/below/a%20b?x=1&x=2%263")
        assert (seen.body, seen.headers["x-own"]) == (b"data", "yes")
        assert list(client.calls) == ["POST /a%20b"]

    def test_compressed(self, serve: Serve, connect: Connect) -> None:
        packed = gzip.compress(b'{"a": 1}')
        server = serve(says(answer(packed, Content_Encoding="gzip")))
        assert connect(server.url).request("GET", "/").json() == {"a": 1}

    def test_damaged_compression(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"no gzip", Content_Encoding="gzip")))
        with pytest.raises(BackendUnreachableError, match="cannot be decompressed"):
            connect(server.url).request("GET", "/")

    def test_json_nested_without_end(self) -> None:
        with pytest.raises(ValueError, match="nested"):
            Response(200, {}, b"[" * 200_000).json()

    def test_headers_alone(self, serve: Serve, connect: Connect) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"
        server = serve(lambda each: each.say(head if each.method == "HEAD" else answer(b"fine")))
        client = connect(server.url)
        response = client.request("HEAD", "/file")
        assert (response.headers["content-length"], response.body) == ("12", b"")
        assert client.request("GET", "/").body == b"fine"
        assert len(server.connections) == 1

    def test_http_1_0_without_a_length(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            exchange.say(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
            exchange.hang_up()

        client = connect(serve(handler).url)
        assert [client.request("GET", "/").body for _ in range(2)] == [b"until the end"] * 2

    def test_an_answer_in_many_pieces(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            for byte in CHUNKED + chunk(b"one") + chunk(b"two") + LAST_CHUNK:
                exchange.say(bytes([byte]))

        assert connect(serve(handler).url).request("GET", "/").body == b"onetwo"

    def test_redirects_are_not_followed(self, serve: Serve, connect: Connect) -> None:
        """They would carry the credential to another server."""
        other = serve(says(answer(b"stolen")))
        server = serve(says(answer(b"", 302, Location=f"{other.url}/login")))
        with pytest.raises(BackendUnreachableError, match=r"redirects us .*login"):
            connect(server.url).request("GET", "/")
        assert not other.exchanges

    @pytest.mark.parametrize(
        ("status", "question"),
        [(401, "unauthorized"), (403, "forbidden"), (404, "missing"), (409, "conflict")],
    )
    def test_refusals(self, serve: Serve, connect: Connect, status: int, question: str) -> None:
        client = connect(serve(says(answer(b"because", status))).url)
        with pytest.raises(RefusedError, match="because") as caught:
            client.request("DELETE", "/x")
        assert getattr(caught.value, question)
        assert caught.value.call == "DELETE /x"

    @pytest.mark.parametrize("status", [400, 500])
    def test_values_to_hide_that_a_server_sends_back(
        self, serve: Serve, connect: Connect, status: int
    ) -> None:
        value = 'say "canary"\n'
        body = json.dumps({"message": json.dumps({"value": value})}).encode()
        client = connect(serve(says(answer(body, status))).url)
        with pytest.raises(PlatformError) as caught:
            client.request("POST", "/x", hide=[Secret(value)])
        messages = f"{caught.value} {caught.value.__cause__}"
        assert "[secret]" in messages
        assert "canary" not in messages


class TestRepeats:
    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_too_busy(self, serve: Serve, connect: Connect, method: str) -> None:
        busy = answer(b"later", 429, Retry_After="0")
        server = serve(says(busy, busy, answer(b"fine")))
        assert connect(server.url).request(method, "/").body == b"fine"
        assert len(server.exchanges) == 3

    def test_retry_after_zero_is_no_busy_loop(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"later", 429, Retry_After="0")))
        client = connect(server.url, QUICK._replace(busy=1.0))
        with pytest.raises(BackendUnreachableError, match="HTTP 429: later"):
            client.request("GET", "/")
        assert 2 <= len(server.exchanges) <= 5

    def test_a_long_retry_after_is_not_waited_for(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"later", 429, Retry_After="3600")))
        with pytest.raises(RefusedError) as caught:
            connect(server.url).request("POST", "/")
        assert caught.value.busy
        assert len(server.exchanges) == 1

    @pytest.mark.parametrize("value", ["soon", "-1", "Wed, 21 Oct 2015 07:28:00 GMT"])
    def test_odd_retry_after(self, value: str) -> None:
        response = Response(429, {"Retry-After": value}, b"")
        delay = response.delay(0, repeatable=True)
        assert delay is not None
        assert delay >= 0.1

    @pytest.mark.parametrize(
        "value", ["9" * 400, "9" * 5000, "Fri, 31 Dec 99999 23:59:59 GMT", "1" + "0" * 20]
    )
    def test_an_impossible_retry_after(self, serve: Serve, connect: Connect, value: str) -> None:
        server = serve(says(answer(b"later", 429, Retry_After=value)))
        client = connect(server.url, QUICK._replace(busy=0.5))
        with pytest.raises(BackendUnreachableError, match="HTTP 429: later"):
            client.request("GET", "/")

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_a_failing_server_is_read_from_again(
        self, serve: Serve, connect: Connect, status: int
    ) -> None:
        server = serve(says(answer(b"", status), answer(b"", status), answer(b"fine")))
        assert connect(server.url).request("GET", "/").body == b"fine"

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_nothing_is_made_twice(self, serve: Serve, connect: Connect, status: int) -> None:
        server = serve(says(answer(b"no luck", status)))
        with pytest.raises(BackendUnreachableError, match=f"HTTP {status}: no luck"):
            connect(server.url).request("POST", "/")
        assert len(server.exchanges) == 1

    def test_not_for_ever(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"", 503)))
        with pytest.raises(BackendUnreachableError, match="HTTP 503"):
            connect(server.url).request("GET", "/")
        assert len(server.exchanges) == 4


class TestConnections:
    def test_one_serves_many_requests(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"fine")))
        client = connect(server.url)
        for _ in range(5):
            client.request("GET", "/")
        assert len(server.connections) == 1

    def test_connection_close(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            exchange.say(answer(b"fine", Connection="close"))
            exchange.hang_up()

        server = serve(handler)
        client = connect(server.url)
        assert [client.request("POST", "/").body for _ in range(3)] == [b"fine"] * 3
        assert len(server.connections) == 3

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_one_that_the_server_ended_is_not_used_again(
        self, serve: Serve, connect: Connect, method: str
    ) -> None:
        server = serve(says(answer(b"fine")))
        client = connect(server.url)
        client.request("GET", "/")
        server.connections[0].shutdown(socket.SHUT_RDWR)
        assert client.request(method, "/").body == b"fine"

    def test_a_lost_answer_is_asked_for_once_more(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            if exchange.number == 1:
                exchange.reset()
            else:
                exchange.say(answer(b"fine"))

        server = serve(handler)
        client = connect(server.url)
        assert client.request("GET", "/").body == b"fine"
        assert list(client.calls) == ["GET /"] * 2

    @pytest.mark.parametrize("ending", [Exchange.reset, Exchange.hang_up])
    def test_and_not_again_and_again(
        self, serve: Serve, connect: Connect, ending: Callable[[Exchange], None]
    ) -> None:
        server = serve(ending)
        with pytest.raises(BackendUnreachableError):
            connect(server.url).request("GET", "/")
        assert len(server.exchanges) == 2

    @pytest.mark.parametrize("ending", [Exchange.reset, Exchange.hang_up])
    def test_of_a_change_the_error_says_that_it_is_in_doubt(
        self, serve: Serve, connect: Connect, ending: Callable[[Exchange], None]
    ) -> None:
        server = serve(ending)
        with pytest.raises(BackendUnreachableError, match="POST /x may or may not have been done"):
            connect(server.url).request("POST", "/x")
        assert len(server.exchanges) == 1

    def test_a_change_that_may_be_repeated(self, serve: Serve, connect: Connect) -> None:
        server = serve(Exchange.reset)
        with pytest.raises(BackendUnreachableError) as caught:
            connect(server.url).request("DELETE", "/x", repeatable=True)
        assert "may or may not" not in str(caught.value)
        assert len(server.exchanges) == 2

    @pytest.mark.parametrize(
        "begun", [CHUNKED + chunk(b"some"), b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome"]
    )
    def test_an_answer_that_breaks_off_is_none(
        self, serve: Serve, connect: Connect, begun: bytes
    ) -> None:
        def handler(exchange: Exchange) -> None:
            exchange.say(begun)
            exchange.hang_up()

        with pytest.raises(BackendUnreachableError):
            connect(serve(handler).url).request("GET", "/")

    def test_a_server_that_hangs_is_not_asked_twice(self, serve: Serve, connect: Connect) -> None:
        over = threading.Event()
        server = serve(lambda exchange: void(over.wait(30)))
        client = connect(server.url, QUICK._replace(read=0.1))
        with pytest.raises(BackendUnreachableError, match="did not answer in time"):
            client.request("GET", "/")
        over.set()
        assert len(server.exchanges) == 1

    def test_a_server_that_stalls_in_the_middle(self, serve: Serve, connect: Connect) -> None:
        over = threading.Event()

        def handler(exchange: Exchange) -> None:
            exchange.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome")
            over.wait(30)

        client = connect(serve(handler).url, QUICK._replace(read=0.1))
        with pytest.raises(BackendUnreachableError, match="did not answer in time"):
            client.request("GET", "/")
        over.set()

    def test_a_server_that_does_not_read_what_it_is_sent(self, connect: Connect) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            client = connect(url, QUICK._replace(write=0.1))
            with pytest.raises(BackendUnreachableError, match="POST /x may or may not"):
                client.request("POST", "/x", body=bytes(64 * 1024 * 1024))

    def test_a_server_that_sends_byte_by_byte(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            exchange.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in answer(b"fine"):
                exchange.say(bytes([byte]))

        client = connect(serve(handler).url)
        assert [client.request("GET", "/").body for _ in range(2)] == [b"fine"] * 2

    def test_no_process_listens(self, connect: Connect) -> None:
        client = connect(f"http://127.0.0.1:{free_port()}")
        with pytest.raises(BackendUnreachableError, match="Connection refused") as caught:
            client.request("POST", "/x")
        assert "may or may not" not in str(caught.value)

    def test_an_unknown_name(self, connect: Connect) -> None:
        client = connect("http://no-such-host.invalid")
        with pytest.raises(BackendUnreachableError, match="cannot be resolved"):
            client.request("GET", "/")

    def test_a_new_connection_is_new_and_not_kept(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"fine")))
        client = connect(server.url)
        for _ in range(2):
            client.request("GET", "/")
            client.request("POST", "/", new_connection=True)
        numbers = [(seen.method, seen.connection_number) for seen in server.exchanges]
        assert numbers == [("GET", 1), ("POST", 2), ("GET", 1), ("POST", 3)]

    def test_one_that_was_idle_for_long_is_not_used(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A load balancer may have dropped it without telling either side."""
        server = serve(says(answer(b"fine")))
        client = connect(server.url)
        client.request("GET", "/")
        later = time.monotonic() + 61
        monkeypatch.setattr(time, "monotonic", lambda: later)
        client.request("POST", "/")
        assert [seen.connection_number for seen in server.exchanges] == [1, 2]

    def test_many_threads(
        self, serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = serve(lambda exchange: exchange.say(answer(exchange.target.encode())))
        client = connect(server.url)
        wrong: list[str] = []

        def ask(number: int) -> None:
            for turn in range(20):
                path = f"/{number}/{turn}"
                if client.request("GET", path).body.decode() != path:
                    wrong.append(path)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert len(server.exchanges) == 800
        assert not [record for record in caplog.records if record.name.startswith("urllib3")]

    def test_a_forked_process_opens_its_own(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"fine")))
        client = connect(server.url)
        client.request("GET", "/parent")
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BaseException):
                client.request("GET", "/child")
                status = 0
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        client.request("GET", "/parent")
        numbers = {(seen.target, seen.connection_number) for seen in server.exchanges}
        assert numbers == {("/parent", 1), ("/child", 2)}

    def test_ipv6(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"fine")), host="::1")
        assert connect(server.url).request("GET", "/").body == b"fine"


def void(_: object) -> None:
    """The type of a handler that ends with an expression."""


# ---------------------------------------------------------------------- TLS


class Authority:
    """A certificate authority, its servers and its clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        pki.make_authority(folder)
        pki.issue_server(folder, "server", ["127.0.0.1", "::1", "cluster.test"])
        self.file = folder / "ca.crt"

    def server_context(self, name: str = "server") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        return context

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class TestTls:
    def test_an_authority_of_ours(
        self, serve: Serve, connect: Connect, authority: Authority
    ) -> None:
        server = serve(says(answer(b"fine")), tls=authority.server_context())
        client, tls = connect(server.url), authority.client_context()
        assert [client.request("GET", "/", tls=tls).body for _ in range(2)] == [b"fine"] * 2
        assert len(server.connections) == 1

    def test_an_authority_of_the_system(
        self,
        serve: Serve,
        connect: Connect,
        authority: Authority,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        server = serve(says(answer(b"fine")), tls=authority.server_context())
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert connect(server.url).request("GET", "/").body == b"fine"

    def test_an_untrusted_server_gets_nothing(
        self, serve: Serve, connect: Connect, authority: Authority
    ) -> None:
        server = serve(says(answer(b"fine")), tls=authority.server_context())
        with pytest.raises(BackendUnreachableError, match="certificate is not trusted") as caught:
            connect(server.url).request("POST", "/")
        assert "may or may not" not in str(caught.value)
        assert not server.exchanges

    def test_the_name_must_fit(self, serve: Serve, connect: Connect, authority: Authority) -> None:
        server = serve(says(answer(b"fine")), tls=authority.server_context())
        tls = authority.client_context()
        with pytest.raises(BackendUnreachableError, match="certificate is not trusted"):
            connect(server.url, server_name="other.test").request("GET", "/", tls=tls)
        named = connect(server.url, server_name="cluster.test")
        assert named.request("GET", "/", tls=tls).body == b"fine"

    def test_another_context_means_another_connection(
        self, serve: Serve, connect: Connect, authority: Authority
    ) -> None:
        server = serve(says(answer(b"fine")), tls=authority.server_context())
        client = connect(server.url)
        for _ in range(2):
            client.request("GET", "/", tls=authority.client_context())
        assert len(server.connections) == 2

    def test_a_server_that_says_nothing(self, connect: Connect, authority: Authority) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            client = connect(url, QUICK._replace(connect=0.1))
            with pytest.raises(BackendUnreachableError, match="did not answer in time"):
                client.request("GET", "/", tls=authority.client_context())

    def test_a_server_without_tls(self, connect: Connect, authority: Authority) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve_plain() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            threading.Thread(target=serve_plain, daemon=True).start()
            client = connect(f"https://127.0.0.1:{listener.getsockname()[1]}")
            with pytest.raises(BackendUnreachableError, match="TLS: "):
                client.request("POST", "/", tls=authority.client_context())


# ---------------------------------------------------------------------- proxies


class ProxyServer:
    """CONNECT of HTTP or SOCKS 5, connecting to wherever the test wants."""

    def __init__(self, target: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self._target, self._tls = target, tls
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            with client, socket.create_connection(self._target) as server:
                if client.recv(1, socket.MSG_PEEK if not self._tls else 0) == b"\x05":
                    self._socks(client)
                else:
                    head = read_head(client)
                    self.asked.append(head.decode())
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=forward, args=(client, server), daemon=True).start()
                forward(server, client)

    def _socks(self, client: socket.socket) -> None:
        reader = client.makefile("rb", buffering=0)
        _, count = reader.read(2) or b"  "
        methods = reader.read(count) or b""
        user = password = b""
        if 2 in methods:
            client.sendall(b"\x05\x02")
            user = reader.read((reader.read(2) or b"  ")[1]) or b""
            password = reader.read((reader.read(1) or b" ")[0]) or b""
            client.sendall(b"\x01\x00")
        else:
            client.sendall(b"\x05\x00")
        kind = (reader.read(4) or b"")[3]
        assert kind == 3, "the proxy resolves names"
        host = reader.read((reader.read(1) or b" ")[0]) or b""
        port = int.from_bytes(reader.read(2) or b"", "big")
        self.asked.append(f"{host.decode()}:{port} {user.decode()} {password.decode()}")
        client.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxied(serve: Serve, authority: Authority) -> Iterator[tuple[Server, ProxyServer]]:
    server = serve(says(answer(b"fine")), tls=authority.server_context())
    proxy = ProxyServer(("127.0.0.1", server.port))
    yield server, proxy
    proxy.close()


class TestProxies:
    @pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
    def test_socks(
        self,
        proxied: tuple[Server, ProxyServer],
        connect: Connect,
        authority: Authority,
        scheme: str,
    ) -> None:
        server, proxy = proxied
        way = Proxy.parse(f"{scheme}://me:canary%3Ap%40ss%2Fword@127.0.0.1:{proxy.port}")
        client = connect("https://cluster.test:6443", proxy=way)
        tls = authority.client_context()
        assert [client.request("GET", "/", tls=tls).body for _ in range(2)] == [b"fine"] * 2
        assert proxy.asked == [f"cluster.test:6443 me {PASSWORD}"]
        assert server.exchanges[0].headers["host"] == "cluster.test:6443"

    @pytest.mark.parametrize("host", ["cluster.test", "[::1]"])
    def test_connect(
        self,
        proxied: tuple[Server, ProxyServer],
        connect: Connect,
        authority: Authority,
        host: str,
    ) -> None:
        server, proxy = proxied
        way = Proxy.parse(f"http://me:canary%3Ap%40ss%2Fword@127.0.0.1:{proxy.port}")
        client = connect(f"https://{host}:6443", proxy=way)
        tls = authority.client_context()
        assert [client.request("GET", "/", tls=tls).body for _ in range(2)] == [b"fine"] * 2
        [asked] = proxy.asked
        assert asked.startswith(f"CONNECT {host}:6443 ")
        assert "authorization: basic " in asked.lower()
        assert PASSWORD not in asked
        # The server, not the proxy, gets the request; the proxy's password stays with the proxy.
        assert "proxy-authorization" not in server.exchanges[0].headers

    def test_a_proxy_with_tls(
        self,
        serve: Serve,
        connect: Connect,
        authority: Authority,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        server = serve(says(answer(b"fine")), tls=authority.server_context())
        tunnel = Server(
            lambda exchange: tunnel_to(exchange, server.port), authority.server_context()
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        client = connect("https://cluster.test:6443", proxy=Proxy.parse(tunnel.url))
        assert client.request("GET", "/", tls=authority.client_context()).body == b"fine"
        assert [seen.method for seen in tunnel.exchanges] == ["CONNECT"]
        tunnel.close()

    def test_one_with_an_ipv6_address(
        self, serve: Serve, connect: Connect, authority: Authority
    ) -> None:
        server = serve(says(answer(b"fine")), tls=authority.server_context())
        tunnel = serve(lambda exchange: tunnel_to(exchange, server.port), host="::1")
        client = connect("https://cluster.test:6443", proxy=Proxy.parse(tunnel.url))
        assert client.request("GET", "/", tls=authority.client_context()).body == b"fine"
        assert tunnel.url.startswith("http://[::1]:")

    def test_one_that_hangs_up(self, serve: Serve, connect: Connect, authority: Authority) -> None:
        proxy = serve(Exchange.reset)
        client = connect("https://cluster.test:6443", proxy=Proxy.parse(proxy.url))
        with pytest.raises(BackendUnreachableError):
            client.request("POST", "/x", tls=authority.client_context())
        assert len(proxy.exchanges) == 1

    def test_one_that_refuses(self, serve: Serve, connect: Connect) -> None:
        proxy = serve(says(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"))
        way = Proxy.parse(proxy.url.replace("//", "//me:canary%3Ap%40ss%2Fword@"))
        client = connect("https://cluster.test:6443", proxy=way)
        with pytest.raises(BackendUnreachableError, match=r"proxy .*407") as caught:
            client.request("POST", "/x")
        assert PASSWORD not in str(caught.value)
        assert "may or may not" not in str(caught.value)

    @pytest.mark.parametrize("scheme", ["http", "socks5"])
    def test_one_that_is_not_there(self, connect: Connect, scheme: str) -> None:
        way = Proxy.parse(f"{scheme}://127.0.0.1:{free_port()}")
        client = connect("https://cluster.test:6443", proxy=way)
        with pytest.raises(BackendUnreachableError, match=r"(?i)refused") as caught:
            client.request("POST", "/x")
        assert "may or may not" not in str(caught.value)

    @pytest.mark.parametrize(
        ("no_proxy", "url", "direct"),
        [
            ("", "https://cluster.test", False),
            ("", "http://cluster.test", True),
            ("", "https://localhost:6443", True),
            ("", "https://127.0.0.3:6443", True),
            ("", "https://[::1]:6443", True),
            ("*", "https://cluster.test", True),
            ("other.test, cluster.test", "https://cluster.test", True),
            (".test", "https://cluster.test", True),
            ("test", "https://cluster.test", True),
            ("luster.test", "https://cluster.test", False),
            ("CLUSTER.test", "https://cluster.test", True),
            ("10.0.0.0/8", "https://10.1.2.3", True),
            ("10.0.0.0/8", "https://11.1.2.3", False),
            ("10.0.0.0/8", "https://ten.test", False),
            ("cluster.test:6443", "https://cluster.test:6443", True),
            ("cluster.test:6443", "https://cluster.test", False),
            ("cluster.test:443", "https://cluster.test", True),
            ("fd00::1", "https://[fd00::1]:6443", True),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", True),
            ("[fd00::1]:6443", "https://[fd00::1]", False),
        ],
    )
    def test_no_proxy(
        self, monkeypatch: pytest.MonkeyPatch, no_proxy: str, url: str, direct: bool
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
        monkeypatch.setenv("NO_PROXY", no_proxy)
        found = proxy_for(url)
        assert found == (None if direct else Proxy("http", "proxy.test", 3128))

    @pytest.mark.parametrize(
        "url", ["ftp://proxy", "http://", f"http://me:{PASSWORD.replace('/', '%2F')}@:x/"]
    )
    def test_an_address_that_is_none(self, url: str) -> None:
        with pytest.raises(ValueError, match="address of the proxy") as caught:
            Proxy.parse(url)
        assert "canary" not in str(caught.value)

    def test_a_password_is_not_printed(self) -> None:
        proxy = Proxy.parse("http://me:canary@proxy.test:3128")
        assert "canary" not in f"{proxy} {proxy!r}"


def tunnel_to(exchange: Exchange, port: int) -> None:
    """Answer CONNECT and forward; the exchange's connection is inside of TLS."""
    exchange.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
    with socket.create_connection(("127.0.0.1", port)) as server:
        threading.Thread(target=forward, args=(exchange.connection, server), daemon=True).start()
        forward(server, exchange.connection)
    exchange.hang_up()


# ---------------------------------------------------------------------- streams


class TestLimits:
    def test_an_endless_answer_ends_with_an_error(
        self, serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client_module, "_MAX_BODY_BYTES", 100_000)
        client = connect(serve(endless(200)).url)
        with pytest.raises(BackendUnreachableError, match="answer has more than 100,000 bytes"):
            client.request("GET", "/x")

    def test_an_error_answer_to_a_stream_is_read_in_part(
        self, serve: Serve, connect: Connect
    ) -> None:
        with pytest.raises(RefusedError) as caught:
            connect(serve(endless(403)).url).stream("/log")
        assert caught.value.status == 403

    def test_an_error_answer_to_a_stream_that_stalls(self, serve: Serve, connect: Connect) -> None:
        over = threading.Event()

        def stall(exchange: Exchange) -> None:
            exchange.say(CHUNKED.replace(b"200 OK", b"403 X") + chunk(b"you may not"))
            over.wait(30)

        client = connect(serve(stall).url, Timeouts(connect=5, read=0.2, write=5, busy=5))
        with pytest.raises(RefusedError, match="you may not"):
            client.stream("/log")
        over.set()


def endless(status: int) -> Handler:
    def handler(exchange: Exchange) -> None:
        exchange.say(CHUNKED.replace(b"200 OK", b"%d X" % status))
        while True:  # until the client has closed the connection
            exchange.say(chunk(b"x" * 10_000))

    return handler


class TestStreams:
    def test_pieces_come_as_they_are_sent(self, serve: Serve, connect: Connect) -> None:
        go_on = threading.Event()

        def handler(exchange: Exchange) -> None:
            exchange.say(CHUNKED + chunk(b"one\n"))
            go_on.wait(30)
            exchange.say(chunk(b"two\n") + LAST_CHUNK)

        client = connect(serve(handler).url)
        with client.stream("/log", label="WATCH") as pieces:
            assert next(pieces) == b"one\n"
            go_on.set()
            assert list(pieces) == [b"two\n"]
        assert list(client.calls) == ["WATCH /log"]

    @pytest.mark.parametrize("length", [True, False], ids=["length", "until the end"])
    def test_connection_close(self, serve: Serve, connect: Connect, length: bool) -> None:
        def handler(exchange: Exchange) -> None:
            counted = "Content-Length: 8\r\n" if length else ""
            exchange.say(f"HTTP/1.1 200 OK\r\n{counted}Connection: close\r\n\r\n".encode())
            exchange.say(b"one\ntwo\n")
            exchange.hang_up()

        with connect(serve(handler).url).stream("/log") as pieces:
            assert b"".join(pieces) == b"one\ntwo\n"

    def test_http_1_0(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            exchange.say(b"HTTP/1.0 200 OK\r\n\r\none\ntwo\n")
            exchange.hang_up()

        with connect(serve(handler).url).stream("/log") as pieces:
            assert b"".join(pieces) == b"one\ntwo\n"

    def test_a_part_of_a_file(self, serve: Serve, connect: Connect) -> None:
        server = serve(says(answer(b"rest", 206, Content_Range="bytes 4-7/8")))
        with connect(server.url).stream("/file", headers={"Range": "bytes=4-"}) as pieces:
            assert (pieces.status, pieces.headers["content-range"]) == (206, "bytes 4-7/8")
            assert b"".join(pieces) == b"rest"
        assert server.exchanges[0].headers["range"] == "bytes=4-"

    def test_a_length_that_does_not_come(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            exchange.say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome")
            exchange.hang_up()

        with connect(serve(handler).url).stream("/file") as pieces:
            assert next(pieces) == b"some"
            with pytest.raises(BackendUnreachableError):
                next(pieces)

    def test_a_refusal(self, serve: Serve, connect: Connect) -> None:
        client = connect(serve(says(answer(b"no such pod", 404))).url)
        with pytest.raises(RefusedError, match="no such pod"):
            client.stream("/log")

    def test_it_breaks_off(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            exchange.say(CHUNKED + chunk(b"one\n"))
            exchange.hang_up()

        with connect(serve(handler).url).stream("/log") as pieces:
            assert next(pieces) == b"one\n"
            with pytest.raises(BackendUnreachableError):
                next(pieces)

    def test_nothing_comes(self, serve: Serve, connect: Connect) -> None:
        over = threading.Event()

        def handler(exchange: Exchange) -> None:
            exchange.say(CHUNKED)
            over.wait(30)

        with (
            connect(serve(handler).url).stream("/log", silence=0.1) as pieces,
            pytest.raises(BackendUnreachableError, match="did not answer in time"),
        ):
            next(pieces)
        over.set()

    @pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
    def test_hanging_up_from_another_thread(
        self, serve: Serve, connect: Connect, authority: Authority, encrypted: bool
    ) -> None:
        over = threading.Event()

        def handler(exchange: Exchange) -> None:
            exchange.say(CHUNKED + chunk(b"one\n"))
            over.wait(30)

        tls = authority.client_context() if encrypted else None
        server = serve(handler, tls=authority.server_context() if encrypted else None)
        with connect(server.url).stream("/log", tls=tls) as pieces:
            assert next(pieces) == b"one\n"
            ended = in_thread(lambda: list(pieces))
            pieces.hang_up()
            assert ended() == []
            pieces.hang_up()  # harmless
        pieces.hang_up()
        over.set()

    def test_nothing_encrypted_comes_after_hanging_up(
        self, serve: Serve, connect: Connect, authority: Authority
    ) -> None:
        """What a TLS socket still has to decrypt must not be taken for text."""

        def handler(exchange: Exchange) -> None:
            exchange.say(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                exchange.say(b"text\n" * 1000)

        server = serve(handler, tls=authority.server_context())
        for _ in range(20):
            pieces = connect(server.url).stream("/log", tls=authority.client_context())
            found = in_thread(lambda pieces=pieces: b"".join(pieces))  # type: ignore[misc]
            time.sleep(0)  # let the reader begin
            pieces.hang_up()
            assert set(found()) <= set(b"text\n")
            pieces.close()

    def test_its_connection_is_not_kept(self, serve: Serve, connect: Connect) -> None:
        def handler(exchange: Exchange) -> None:
            if exchange.target == "/log":
                exchange.say(CHUNKED + chunk(b"one\n"))
            else:
                exchange.say(answer(b"fine"))

        server = serve(handler)
        client = connect(server.url)
        with client.stream("/log") as pieces:
            next(pieces)
        assert client.request("GET", "/").body == b"fine"
        assert len(server.connections) == 2

    def test_lost_before_it_begins_it_is_asked_for_once_more(
        self, serve: Serve, connect: Connect
    ) -> None:
        def handler(exchange: Exchange) -> None:
            if exchange.number == 1:
                exchange.reset()
            exchange.say(answer(b"one\n"))

        with connect(serve(handler).url).stream("/log") as pieces:
            assert list(pieces) == [b"one\n"]


def in_thread(work: Callable[[], object]) -> Callable[[], object]:
    """Begin work in a thread; call the answer to wait for its result."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()

    def result() -> object:
        thread.join(10)
        assert found, "the thread has not ended"
        return found[0]

    return result


def test_what_is_not_ours_is_quoted(serve: Serve, connect: Connect) -> None:
    client = connect(serve(says(answer(b"<html>log in</html>", Content_Type="text/html"))).url)
    response = client.request("GET", "/")
    with pytest.raises(json.JSONDecodeError):
        response.json()
    said = str(client.not_ours(response))
    assert said == "the test API: something else answers: HTTP 200, text/html: <html>log in</html>"
