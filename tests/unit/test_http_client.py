"""The HTTP client against servers that say exactly what the test wants."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.scripted import Scripted, read_head, say
from lab.wire import Call, Reply, WireServer
from tao_sdk.runner.errors import CredentialError, NotFoundError, RunnerError, TransferError
from tao_sdk.runner.http import Client, FilePart, PassingError, Patience
from tao_sdk.runner.http.answers import Answer
from tao_sdk.runner.http.routes import bypasses_proxy
from tao_sdk.runner.remote import Request

Wire = Callable[[Callable[[Call], Reply]], WireServer]
QUICK = Patience(
    attempts=4, first_delay=0.001, longest_delay=0.01, connect_seconds=5, stall_seconds=0.5
)


@pytest.fixture
def wire() -> Iterator[Wire]:
    servers: list[WireServer] = []

    def start(answer: Callable[[Call], Reply]) -> WireServer:
        servers.append(WireServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def get(url: str, client: Client | None = None, **kind: str) -> Answer:
    client = client or Client({}, QUICK)
    return client.fetch(lambda: Request(kind.get("method", "GET"), url), "the file")


class TestAnswers:
    @settings(deadline=None, max_examples=40)
    @given(
        body=st.binary(max_size=3000),
        chunks=st.lists(st.integers(1, 900), max_size=6),
        step=st.integers(1, 700),
        how=st.sampled_from(["length", "chunked", "close"]),
    )
    def test_bodies_arrive_whole_however_they_are_cut(
        self, body: bytes, chunks: list[int], step: int, how: str
    ) -> None:
        head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-One: 1\r\n"
        if how == "length":
            answer = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        elif how == "close":
            answer = head + b"Connection: close\r\n\r\n" + body
        else:
            answer, rest = head + b"Transfer-Encoding: chunked\r\n\r\n", body
            for size in [*chunks, len(body) or 1]:
                part, rest = rest[:size], rest[size:]
                if part:
                    answer += b"%x;ext=1\r\n" % len(part) + part + b"\r\n"
            answer += b"0\r\nTrailer: x\r\n\r\n"
        server = Scripted(say(answer, step=step))
        try:
            found = get(server.url)
        finally:
            server.close()
        assert (found.status, found.headers["x-one"], found.body) == (200, "1", body)

    def test_a_connection_is_used_again(self, scripted: Callable[..., Scripted]) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        nothing = b"HTTP/1.1 204 No Content\r\n\r\n"
        server = scripted(say(answer, nothing, answer))
        client = Client({}, QUICK)
        assert [get(server.url, client).body for _ in range(3)] == [b"ok", b"", b"ok"]
        assert server.connections == 1
        client.close()

    def test_a_connection_that_was_closed_meanwhile_is_replaced_at_once(
        self, scripted: Callable[..., Scripted]
    ) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        server = scripted(say(answer), say(answer))
        client = Client({}, QUICK._replace(attempts=1))
        assert get(server.url, client).body == b"ok"
        assert get(server.url, client).body == b"ok"
        assert server.connections == 2

    def test_answers_are_read_when_there_is_time(self, scripted: Callable[..., Scripted]) -> None:
        def answer(text: bytes) -> bytes:
            return b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + text

        server = scripted(say(answer(b"1")), say(answer(b"2")))
        client = Client({}, QUICK)
        sent = [client.begin(Request("GET", server.url + "/x")) for _ in range(2)]
        bodies = []
        for each in sent:
            with client.reply(each) as reply:
                bodies.append(reply.answer().body)
        assert sorted(bodies) == [b"1", b"2"]
        assert server.connections == 2
        client.close()

    def test_what_was_begun_on_a_connection_that_was_closed_is_sent_again(
        self, scripted: Callable[..., Scripted]
    ) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        server = scripted(say(answer), say(answer))
        client = Client({}, QUICK)
        assert get(server.url, client).body == b"ok"
        with client.reply(client.begin(Request("GET", server.url + "/x"))) as reply:
            assert reply.answer().body == b"ok"
        assert server.connections == 2

    def test_heads_of_head_requests_have_no_body(self, scripted: Callable[..., Scripted]) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
        server = scripted(say(head, head))
        client = Client({}, QUICK)
        for _ in range(2):
            assert get(server.url, client, method="HEAD").headers["content-length"] == "5000"
        assert server.connections == 1

    @pytest.mark.parametrize(
        "answer",
        [
            b"SMTP ready\r\n\r\n",
            b"HTTP/1.1 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000,
            b"",
        ],
    )
    def test_what_is_no_whole_answer_is_asked_for_again(
        self, scripted: Callable[..., Scripted], answer: bytes
    ) -> None:
        server = scripted(say(answer), say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
        assert get(server.url).body == b"ok"
        assert server.connections == 2


class TestFailures:
    def test_a_silent_server_is_left(self, scripted: Callable[..., Scripted]) -> None:
        release = threading.Event()

        def silent(connection: socket.socket) -> None:
            read_head(connection)
            release.wait(30)

        server = scripted(silent)
        with pytest.raises(TransferError, match=r"the file: no byte for 0\.5 seconds"):
            get(server.url, Client({}, QUICK._replace(attempts=1)))
        release.set()

    def test_resets_are_retried_and_counted(self, scripted: Callable[..., Scripted]) -> None:
        def reset(connection: socket.socket) -> None:
            read_head(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        server = scripted(*[reset] * 4)
        with pytest.raises(TransferError, match=r"the file: .*tried 4 times"):
            get(server.url)
        assert server.connections == 4

    def test_nobody_listens(self) -> None:
        with pytest.raises(TransferError, match=r"cannot reach 127\.0\.0\.1:1 "):
            get("http://127.0.0.1:1/x")

    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    def test_passing_statuses_are_retried(self, wire: Wire, status: int) -> None:
        replies = [Reply(status), Reply(status), Reply(200, b"ok")]
        server = wire(lambda _: replies.pop(0))
        assert get(server.url + "/x").body == b"ok"

    @pytest.mark.parametrize("code", ["SlowDown", "RequestTimeout", "InternalError"])
    def test_passing_codes_are_retried(self, wire: Wire, code: str) -> None:
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
        replies = [Reply(400, body), Reply(200, body), Reply(200, b"ok")]
        server = wire(lambda _: replies.pop(0))
        assert get(server.url + "/x").body == b"ok"

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 501])
    def test_final_statuses_are_not(self, wire: Wire, status: int) -> None:
        server = wire(lambda _: Reply(status))
        assert get(server.url + "/x").status == status
        assert len(server.calls) == 1

    def test_the_last_of_many_refusals_is_returned(self, wire: Wire) -> None:
        server = wire(lambda _: Reply(503))
        assert get(server.url + "/x").status == 503
        assert len(server.calls) == 4

    def test_the_server_says_when_to_come_again(self, wire: Wire) -> None:
        replies = [Reply(503, headers={"Retry-After": "1"}), Reply(200, b"ok")]
        server = wire(lambda _: replies.pop(0))
        began = time.monotonic()
        assert get(server.url + "/x").body == b"ok"
        assert time.monotonic() - began >= 1

    def test_delays_grow_within_bounds(self) -> None:
        patience = Patience(first_delay=1, longest_delay=8)
        random.seed(1)
        for attempt, longest in ((0, 1), (1, 2), (2, 4), (3, 8), (9, 8)):
            delays = [patience.delay(attempt) for _ in range(200)]
            assert 0 <= min(delays) < longest / 4
            assert longest / 2 < max(delays) <= longest


class TestRequests:
    def test_line_breaks_do_not_make_headers(self) -> None:
        for request in (
            Request("GET", "http://127.0.0.1:1/x", {"A": "b\r\nEvil: 1"}),
            Request("GET", "http://127.0.0.1:1/x\r\nEvil: 1", {}),
        ):
            with pytest.raises(RunnerError, match="line break"):
                Client({}, QUICK).begin(request)

    @pytest.mark.parametrize("size", [0, 10, 3_000_001])
    def test_bodies_from_files(self, wire: Wire, tmp_path: Path, size: int) -> None:
        data = random.Random(size).randbytes(size)
        (tmp_path / "f").write_bytes(b"before" + data + b"after")
        server = wire(lambda _: Reply(200, b"ok"))
        with open(tmp_path / "f", "rb") as file:
            part = FilePart(file.fileno(), 6, size)
            Client({}, QUICK).fetch(lambda: Request("PUT", server.url + "/x"), "x", part)
        assert server.calls[0].body == data
        assert server.calls[0].headers["content-length"] == str(size)

    def test_a_file_that_shrinks_is_noticed(self, wire: Wire, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"short")
        server = wire(lambda _: Reply(200))
        with open(tmp_path / "f", "rb") as file:
            part = FilePart(file.fileno(), 0, 100)
            client = Client({}, QUICK)
            with pytest.raises(TransferError, match="became shorter"):
                client.fetch(lambda: Request("PUT", server.url + "/x"), "x", part)

    def test_an_early_refusal_of_a_large_body_is_read(
        self, scripted: Callable[..., Scripted], tmp_path: Path
    ) -> None:
        body = b"<Error><Code>EntityTooLarge</Code></Error>"
        answered = threading.Event()

        def refuse(connection: socket.socket) -> None:
            read_head(connection)
            connection.sendall(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            answered.wait(20)  # nothing more is read

        with open(tmp_path / "f", "wb+") as file:
            os.ftruncate(file.fileno(), 1 << 26)
            server = scripted(refuse)
            part = FilePart(file.fileno(), 0, 1 << 26)
            answer = Client({}, QUICK).fetch(lambda: Request("PUT", server.url), "x", part)
        answered.set()
        assert answer.code == "EntityTooLarge"


class TestRedirects:
    def test_credentials_stay_with_their_origin(self, wire: Wire) -> None:
        other = wire(lambda _: Reply(200, b"content"))
        first = wire(
            lambda call: (
                Reply(302, headers={"Location": "/second"})
                if call.path == "/first"
                else Reply(307, headers={"Location": other.url + "/third?sig=1"})
            )
        )
        request = Request("GET", first.url + "/first", {"Authorization": "hidden", "Range": "x"})
        answer = Client({}, QUICK).fetch(lambda: request, "x")
        assert answer.body == b"content"
        assert [call.headers.get("authorization") for call in first.calls] == ["hidden"] * 2
        assert "authorization" not in other.calls[0].headers
        assert other.calls[0].headers["range"] == "x"
        assert other.calls[0].target == "/third?sig=1"

    def test_circles_end(self, wire: Wire) -> None:
        server = wire(lambda _: Reply(302, headers={"Location": "/again"}))
        client = Client({}, QUICK)
        with pytest.raises(PassingError, match="redirected again and again"):
            client.reply(client.begin(Request("GET", server.url + "/x")))

    def test_they_are_left_alone_where_asked(self, wire: Wire) -> None:
        server = wire(lambda _: Reply(301, headers={"Location": "/again"}))
        answer = Client({}, QUICK).fetch(
            lambda: Request("GET", server.url + "/x"), "x", follow=False
        )
        assert answer.status == 301


class TestProxies:
    def test_plain_http_goes_through(self, wire: Wire) -> None:
        proxy = wire(lambda _: Reply(200, b"through"))
        address = proxy.url.replace("://", "://user:pass%20word@")
        client = Client({"HTTP_PROXY": address}, QUICK)
        assert get("http://store.example:8080/a?b=c", client).body == b"through"
        (call,) = proxy.calls
        assert call.target == "http://store.example:8080/a?b=c"
        assert call.headers["host"] == "store.example:8080"
        assert call.headers["proxy-authorization"] == "Basic dXNlcjpwYXNzIHdvcmQ="

    def test_not_for_hosts_that_are_excepted(self, wire: Wire) -> None:
        server = wire(lambda _: Reply(200, b"direct"))
        env = {"http_proxy": "http://127.0.0.1:1", "NO_PROXY": "localhost,127.0.0.0/8"}
        assert get(server.url + "/x", Client(env, QUICK)).body == b"direct"

    @pytest.mark.parametrize(
        ("host", "no_proxy", "expected"),
        [
            ("a.example.com", "example.com", True),
            ("a.example.com", ".example.com", True),
            ("a.example.com", "*.example.com", True),
            ("notexample.com", "example.com", False),
            ("example.com", "other.org, example.com", True),
            ("10.1.2.3", "10.0.0.0/8", True),
            ("11.1.2.3", "10.0.0.0/8", False),
            ("anything", "*", True),
            ("anything", "", False),
        ],
    )
    def test_exceptions(self, host: str, no_proxy: str, expected: bool) -> None:
        assert bypasses_proxy(host, no_proxy) is expected

    def test_unsupported_proxies_are_named(self) -> None:
        client = Client({"HTTPS_PROXY": "socks5://proxy:1"}, QUICK)
        with pytest.raises(RunnerError, match="HTTPS_PROXY"):
            get("https://store.example/", client)


class TestErrors:
    @pytest.mark.parametrize(
        ("status", "code", "kind", "words"),
        [
            (403, "AccessDenied", CredentialError, "ACCESS_KEY"),
            (403, "SignatureDoesNotMatch", CredentialError, "SECRET_KEY"),
            (403, "InvalidAccessKeyId", CredentialError, "AWS_ACCESS_KEY_ID"),
            (400, "ExpiredToken", CredentialError, "AWS_SESSION_TOKEN"),
            (404, "NoSuchBucket", NotFoundError, "S3_ENDPOINT_URL"),
            (404, "NoSuchKey", NotFoundError, "name of the object"),
            (403, "RequestTimeTooSkewed", CredentialError, "clock"),
            (405, "MethodNotAllowed", TransferError, "MethodNotAllowed"),
        ],
    )
    def test_they_say_what_to_do(
        self, status: int, code: str, kind: type[Exception], words: str
    ) -> None:
        body = f"<Error><Code>{code}</Code><Message>it &lt;is&gt; so</Message></Error>"
        error = Answer(status, {}, body.encode()).error("s3://bucket/key")
        assert type(error) is kind
        assert str(error).startswith(f"s3://bucket/key: {status} {code} it <is> so")
        assert words in str(error)

    @pytest.mark.parametrize(
        ("uri", "word"),
        [
            ("s3://b/k", "ACCESS_KEY"),
            ("hf_model://o/n", "HF_TOKEN"),
            ("hf_dataset://o/n", "HF_TOKEN"),
            ("ngc://o/n:1", "NGC_KEY"),
        ],
    )
    def test_a_refusal_without_words_names_the_variable(self, uri: str, word: str) -> None:
        for status in (401, 403):
            error = Answer(status, {}).error(uri)
            assert isinstance(error, CredentialError)
            assert word in str(error)
