"""Stores that answer what S3 would not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from xml.sax.saxutils import escape

import pytest

from lab.scripted import Scripted, say
from lab.wire import Call, Reply, WireServer
from tao_sdk import storage
from tao_sdk.runner.errors import RunnerError, TransferError
from tao_sdk.runner.s3 import S3

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
EMPTY = hashlib.md5(b"", usedforsecurity=False).hexdigest()


class OddStore:
    """Objects without content, and what its listings end with."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.ending = ""
        self.size = "<Size>0</Size>"
        self.server = WireServer(self._answer)
        self.env = {**KEYS, "S3_ENDPOINT_URL": self.server.url}

    def _answer(self, call: Call) -> Reply:
        key = "/".join(call.parts[1:])
        if call.method == "DELETE":
            self.keys.remove(key)
            return Reply(204)
        if key:
            return Reply(404)
        found = "".join(
            f"<Contents><Key>{escape(each)}</Key>{self.size}<ETag>{EMPTY}</ETag></Contents>"
            for each in self.keys
            if each.startswith(call.query.get("prefix", ""))
        )
        return Reply(200, f"<ListBucketResult>{found}{self.ending}</ListBucketResult>".encode())


@pytest.fixture
def odd() -> Iterator[OddStore]:
    store = OddStore()
    yield store
    store.server.close()


@pytest.mark.parametrize("token", ["", "<NextContinuationToken>same</NextContinuationToken>"])
def test_a_listing_that_does_not_go_on_is_not_complete(odd: OddStore, token: str) -> None:
    odd.keys = ["data/a", "data/b"]
    odd.ending = f"<IsTruncated>true</IsTruncated>{token}"
    with pytest.raises(TransferError, match=r"s3://bucket/data/: .* does not say how it goes on"):
        S3.from_environment(odd.env).listing("s3://bucket/data/")
    assert len(odd.server.calls) == (2 if token else 1)


@pytest.mark.parametrize("size", ["", "<Size>many</Size>"])
def test_a_listing_without_sizes(odd: OddStore, size: str) -> None:
    odd.keys, odd.size = ["data/a"], size
    with pytest.raises(TransferError, match="s3://bucket/data/: the store's listing lacks"):
        S3.from_environment(odd.env).listing("s3://bucket/data/")


@pytest.mark.parametrize("length", [b"", b"Content-Length: abc\r\n"])
def test_an_object_without_a_size(length: bytes) -> None:
    server = Scripted(say(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n"))
    store = S3.from_environment({**KEYS, "S3_ENDPOINT_URL": server.url})
    try:
        with pytest.raises(TransferError, match="s3://bucket/f: the store does not tell its size"):
            store.listing("s3://bucket/f")
    finally:
        server.close()


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:99999", "http://a..b", "http://[x", "ftp://x"]
)
def test_an_endpoint_that_cannot_be_one(address: str) -> None:
    with pytest.raises(RunnerError, match=r"S3_ENDPOINT_URL=.*: not an http or https address"):
        S3.from_environment({**KEYS, "S3_ENDPOINT_URL": address}).listing("s3://bucket/f")


def test_a_proxy_that_cannot_be_one(odd: OddStore) -> None:
    env = {**odd.env, "HTTP_PROXY": "http://user:secret@127.0.0.1:99999"}
    with pytest.raises(RunnerError, match=r"127\.0\.0\.1:99999: not an http") as caught:
        S3.from_environment(env).listing("s3://bucket/f")
    assert "secret" not in str(caught.value)


def test_a_folder_is_removed_by_its_real_keys(
    odd: OddStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in odd.env.items():
        monkeypatch.setenv(name, value)
    odd.keys = ["other", "res", "res/a//b", "res/./c", "res/d", "res/sub/", "result"]
    storage.remove_folder("s3://bucket/res")
    assert odd.keys == ["other", "res", "result"]
