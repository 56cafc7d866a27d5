"""TLS: whom the client believes, and the way through a proxy."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.scripted import Scripted, read_head, say
from lab.transfers import Tally
from lab.wire import Reply, WireServer
from tao_sdk.runner import download, incoming
from tao_sdk.runner.errors import RunnerError, TransferError
from tao_sdk.runner.http import Client, Patience
from tao_sdk.runner.http.answers import Answer
from tao_sdk.runner.remote import RemoteFile, Request

QUICK = Patience(attempts=4, first_delay=0.001, longest_delay=0.01, stall_seconds=10)
LARGE = random.Random(1).randbytes(5000)


def get(url: str, client: Client | None = None) -> Answer:
    return (client or Client({}, QUICK)).fetch(lambda: Request("GET", url), "the file")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "server.pem")


class TestTls:
    @pytest.fixture
    def server(self, certificate: Path, scripted: Callable[..., Scripted]) -> Scripted:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        body = random.Random(0).randbytes(3_000_000)
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

        def secured(connection: socket.socket) -> None:
            with context.wrap_socket(connection, server_side=True) as secure:
                say(answer, answer)(secure)

        return scripted(secured, secured)

    @pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
    def test_bundles_are_believed(self, server: Scripted, certificate: Path, name: str) -> None:
        client = Client({name: str(certificate)}, QUICK)
        url = server.url.replace("http:", "https:")
        assert get(url, client).body == random.Random(0).randbytes(3_000_000)
        assert get(url, client).status == 200
        assert server.connections == 1

    def test_strangers_are_not(self, server: Scripted) -> None:
        with pytest.raises(RunnerError, match=r"not trusted.*AWS_CA_BUNDLE"):
            get(server.url.replace("http:", "https:"))

    def test_other_names_are_not(self, server: Scripted, certificate: Path) -> None:
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        with pytest.raises(RunnerError, match="not trusted"):
            get(url, Client({"AWS_CA_BUNDLE": str(certificate)}, QUICK))

    def test_a_bundle_that_is_none_is_named(self, server: Scripted) -> None:
        with pytest.raises(RunnerError, match=r"/nonexistent\.pem.*AWS_CA_BUNDLE"):
            get(
                server.url.replace("http:", "https:"),
                Client({"AWS_CA_BUNDLE": "/nonexistent.pem"}, QUICK),
            )

    def test_through_the_tunnel_of_a_proxy(
        self, server: Scripted, certificate: Path, scripted: Callable[..., Scripted]
    ) -> None:
        asked: list[bytes] = []
        port = int(server.url.rpartition(":")[2])

        def tunnel(connection: socket.socket) -> None:
            asked.append(read_head(connection))
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with socket.create_connection(("127.0.0.1", port)) as upstream:
                back = threading.Thread(target=pump, args=(upstream, connection))
                back.start()
                pump(connection, upstream)
                back.join(10)

        proxy = scripted(tunnel)
        env = {"HTTPS_PROXY": proxy.url, "AWS_CA_BUNDLE": str(certificate)}
        client = Client(env, QUICK)
        assert len(get(f"https://127.0.0.1:{port}/", client).body) == 3_000_000
        client.close()
        assert asked[0].startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n".encode())

    def test_a_proxy_that_refuses_is_quoted(self, scripted: Callable[..., Scripted]) -> None:
        proxy = scripted(*[say(b"HTTP/1.1 407 Authentication Required\r\n\r\n")] * 4)
        with pytest.raises(TransferError, match=r"refused a tunnel to 127\.0\.0\.1: HTTP/1\.1 407"):
            get("https://127.0.0.1:5/", Client({"HTTPS_PROXY": proxy.url}, QUICK))


class TestLargeFiles:
    @pytest.fixture
    def server(self, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
        """Serves five pieces over TLS."""
        monkeypatch.setattr(incoming, "PIECE", 1024)
        monkeypatch.setattr(download, "LARGE", 2048)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server = WireServer(lambda _: Reply(200, LARGE, {"ETag": '"v"'}, ranged=True))
        listener = server._server
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
        server.url = server.url.replace("http:", "https:")
        yield server
        server.close()

    def fetch(self, server: WireServer, checksum: str, folder: Path) -> bytes:
        url = server.url + "/f"
        file = RemoteFile("f", len(LARGE), "v", checksum, "test://f", lambda: Request("GET", url))
        download.download_all([(file, str(folder / "f"))], Tally(), threads=3, patience=QUICK)
        return (folder / "f").read_bytes()

    def test_arrive_in_pieces(self, server: WireServer, tmp_path: Path) -> None:
        assert self.fetch(server, "", tmp_path) == LARGE
        assert len(server.calls) == 5

    def test_other_checksums_are_compared(self, server: WireServer, tmp_path: Path) -> None:
        for checksum in ("crc32:00000000", "sha256:" + "0" * 64):
            with pytest.raises(TransferError, match="what arrives is not what the store has"):
                self.fetch(server, checksum, tmp_path)


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def make_certificate(path: Path) -> Path:
    """A certificate of its own authority, for 127.0.0.1."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lab")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(pem)
    )
    return path
