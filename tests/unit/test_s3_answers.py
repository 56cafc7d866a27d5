"""What real stores rarely say, said by a server on loopback: regions, odd tags, lost answers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from lab.s3 import IMPATIENT
from lab.transfers import Tally, noise
from lab.wire import Call, Reply, WireServer
from tao_sdk.runner.errors import CredentialError, RunnerError, TransferError
from tao_sdk.runner.s3 import S3
from tao_sdk.runner.s3.store import Store

MIB = 1024 * 1024
Serve = Callable[[Callable[[Call], Reply]], WireServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[WireServer] = []

    def start(answer: Callable[[Call], Reply]) -> WireServer:
        servers.append(WireServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def client(server: WireServer, **env: str) -> S3:
    keys = {"ACCESS_KEY": "key", "SECRET_KEY": "secret", "HOME": "/nonexistent"}
    return S3(Store({**keys, "S3_ENDPOINT_URL": server.url, **env}, IMPATIENT))


def error(code: str, extra: str = "") -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code>{extra}</Error>".encode()


class TestRegions:
    FOUND = Reply(200, b"", {"ETag": '"tag"'})

    def scope(self, call: Call) -> str:
        return call.headers["authorization"].split("/")[2]

    @pytest.mark.parametrize(
        "wrong",
        [
            Reply(301, error("PermanentRedirect"), {"x-amz-bucket-region": "eu-north-1"}),
            Reply(400, error("AuthorizationHeaderMalformed", "<Region>eu-north-1</Region>")),
            Reply(307, b"", {"x-amz-bucket-region": "eu-north-1", "Location": "http://x.test/"}),
        ],
    )
    def test_the_region_that_the_store_names_is_used(self, serve: Serve, wrong: Reply) -> None:
        server = serve(lambda call: self.FOUND if self.scope(call) == "eu-north-1" else wrong)
        s3 = client(server)
        s3.put_bytes("s3://bucket/key", b"x")
        s3.put_bytes("s3://bucket/other", b"x")
        assert [self.scope(call) for call in server.calls] == [
            "us-east-1",
            "eu-north-1",
            "eu-north-1",
        ]

    def test_it_is_used_for_what_was_on_its_way_already(self, serve: Serve, tmp_path: Path) -> None:
        """Small files are sent one behind the other, before the first answer is read."""

        def answer(call: Call) -> Reply:
            if self.scope(call) == "us-east-1":
                region = {"x-amz-bucket-region": "eu-north-1"}
                return Reply(301, error("PermanentRedirect"), region)
            tag = hashlib.md5(call.body).hexdigest()  # noqa: S324 - as a store does
            return Reply(200, b"", {"ETag": f'"{tag}"'})

        files = [tmp_path / str(number) for number in range(10)]
        for file in files:
            file.write_bytes(b"x" * 100)
        pairs = [(str(file), f"s3://bucket/{file.name}") for file in files]
        assert client(serve(answer)).upload_all(pairs, Tally(), threads=30) == []

    def test_only_once(self, serve: Serve) -> None:
        def contrary(call: Call) -> Reply:
            other = "eu-north-1" if self.scope(call) == "us-east-1" else "us-east-1"
            return Reply(301, error("PermanentRedirect"), {"x-amz-bucket-region": other})

        server = serve(contrary)
        with pytest.raises(TransferError, match=r"PermanentRedirect.*AWS_REGION"):
            client(server).put_bytes("s3://bucket/key", b"x")
        assert len(server.calls) == 2

    @pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION", "CLOUD_REGION"])
    def test_variables(self, serve: Serve, name: str) -> None:
        server = serve(lambda _: self.FOUND)
        client(server, **{name: "ap-east-1"}).put_bytes("s3://bucket/key", b"x")
        assert self.scope(server.calls[0]) == "ap-east-1"

    def test_the_profile_knows_one(self, serve: Serve, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("[default]\nregion = sa-east-1\n")
        server = serve(lambda _: self.FOUND)
        s3 = client(server, AWS_CONFIG_FILE=str(tmp_path / "config"))
        s3.put_bytes("s3://bucket/key", b"x")
        assert self.scope(server.calls[0]) == "sa-east-1"


class Parts:
    """A store that takes uploads in parts; what it says to them is changed by tests."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.tag: Callable[[bytes], str] = lambda data: hashlib.md5(data).hexdigest()  # noqa: S324 - as stores and the Hub do
        self.completed = Reply(200, b"<CompleteMultipartUploadResult/>")
        self.head = Reply(404)

    def __call__(self, call: Call) -> Reply:
        if call.method == "POST" and "uploads" in call.target:
            return Reply(200, b"<X><UploadId>id&amp;1</UploadId></X>")
        assert call.method == "HEAD" or call.query["uploadId"] == "id&1"
        if call.method == "PUT":
            self.parts[call.query["partNumber"]] = call.body
            return Reply(200, b"", {"ETag": f'"{self.tag(call.body)}"'})
        return {"POST": self.completed, "HEAD": self.head, "DELETE": Reply(204)}[call.method]


class TestParts:
    @pytest.fixture
    def store(self) -> Parts:
        return Parts()

    @pytest.fixture
    def big(self, tmp_path: Path) -> Path:
        (tmp_path / "big").write_bytes(noise(18 * MIB))
        return tmp_path / "big"

    def upload(self, server: WireServer, path: Path) -> list[tuple[str, str]]:
        return client(server).upload_all([(str(path), "s3://b/k")], Tally(), threads=2)

    def test_they_are_the_file(self, serve: Serve, store: Parts, big: Path) -> None:
        server = serve(store)
        assert self.upload(server, big) == []
        assert b"".join(store.parts[n] for n in ("1", "2", "3")) == big.read_bytes()
        (done,) = [call for call in server.calls if call.method == "POST" and call.body]
        assert done.body.count(b"<Part>") == 3

    def test_tags_that_say_nothing(self, serve: Serve, store: Parts, big: Path) -> None:
        """Then the store has to compare what arrives, and every part is sent with its MD5."""
        store.tag = lambda data: f"opaque-{len(data)}"
        server = serve(store)
        assert self.upload(server, big) == []
        last = {call.query["partNumber"]: call for call in server.asked("partNumber")}
        for number, call in last.items():
            assert "content-md5" in call.headers, number

    def test_tags_of_something_else(self, serve: Serve, store: Parts, big: Path) -> None:
        store.tag = lambda data: "0" * 32
        server = serve(store)
        ((_, reason),) = self.upload(server, big)
        assert "other bytes than were sent" in reason
        assert [call.method for call in server.calls].count("DELETE") == 1

    def test_an_answer_that_was_lost(self, serve: Serve, store: Parts, big: Path) -> None:
        """Completion is asked for again, and the upload is gone by then: is the object there?"""
        store.completed = Reply(404, error("NoSuchUpload"))
        server = serve(store)
        ((_, reason),) = self.upload(server, big)
        assert "NoSuchUpload" in reason
        digests = b"".join(
            hashlib.md5(big.read_bytes()[at : at + 8 * MIB]).digest()  # noqa: S324 - as stores and the Hub do
            for at in range(0, 18 * MIB, 8 * MIB)
        )
        tag = f'"{hashlib.md5(digests).hexdigest()}-3"'  # noqa: S324 - as stores and the Hub do
        store.head = Reply(200, b"", {"ETag": tag})
        assert self.upload(server, big) == []
        store.head = Reply(200, b"", {"ETag": f'"{"0" * 32}-3"'})
        assert "NoSuchUpload" in self.upload(server, big)[0][1]

    @pytest.mark.parametrize(
        ("seconds", "size", "is_ours"),
        [(60, 18 * MIB, True), (-60, 18 * MIB, False), (60, 5, False)],
    )
    def test_where_tags_do_not_tell_the_date_does(
        self, serve: Serve, store: Parts, big: Path, seconds: int, size: int, is_ours: bool
    ) -> None:
        """rclone's server gives an object of parts the MD5 of the whole, which we do not know."""
        store.completed = Reply(404, error("NoSuchUpload"))
        date = formatdate(time.time() + seconds, usegmt=True)
        store.head = Reply(200, bytes(size), {"ETag": f'"{"a" * 32}"', "Last-Modified": date})
        assert (self.upload(serve(store), big) == []) is is_ours


def test_no_secret_is_in_an_error(serve: Serve) -> None:
    server = serve(lambda _: Reply(403, error("AccessDenied")))
    with pytest.raises(CredentialError) as caught:
        client(server, SECRET_KEY="hidden-value", ACCESS_KEY="hidden-key").listing("s3://b/k/")  # noqa: S106 - a canary
    assert "hidden" not in str(caught.value)


def test_a_listing_that_is_none(serve: Serve) -> None:
    server = serve(lambda _: Reply(200, b"<html>a login page"))
    with pytest.raises(RunnerError, match="s3://b/k/: the store's listing is not XML"):
        client(server).listing("s3://b/k/")
