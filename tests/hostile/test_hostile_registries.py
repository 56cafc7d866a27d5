"""What the Hub and the NGC registry answer is checked before it is believed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
from fuzzing import DEEP, Findings, broken, counts, mutated

from lab.hub import Hub
from lab.ngc import Ngc
from lab.wire import Call, Reply
from tao_sdk.runner import http
from tao_sdk.runner import hub as runner_hub
from tao_sdk.runner import ngc as runner_ngc
from tao_sdk.runner.errors import RunnerError, TransferError
from tao_sdk.runner.http.routes import origin_of
from tao_sdk.runner.remote import Listing

FILES = {"config.json": b"{}", "weights/model.bin": b"w" * 2000, "weights/labels.txt": b"cat"}
HEADERS = ["link", "location", "x-error-code", "x-error-message", "retry-after"]
NASTY_HEADERS = ["", "\x80\xff", "<?", '<x?a=b c>; rel="next"', "http://[", "ftp://x/y", "9" * 5000]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt: nothing here gets better."""
    client = partial(http.Client, patience=http.Patience(attempts=1, stall_seconds=20))
    monkeypatch.setattr(runner_hub, "Client", client)
    monkeypatch.setattr(runner_ngc, "Client", client)


def spoilt(reply: Reply, chance: random.Random) -> Reply:
    """The answer with one thing wrong in its JSON, its text, its headers or its status."""
    kind = chance.randrange(6)
    if kind == 0:
        return replace(reply, status=chance.choice([204, 302, 400, 401, 404, 429, 500]))
    if kind == 1:
        name, value = chance.choice(HEADERS), chance.choice(NASTY_HEADERS)
        return replace(reply, headers={**reply.headers, name: value})
    text = reply.body.decode()
    if kind == 2 or not text:
        text = broken(text, chance)
    elif kind == 3 and chance.random() < 0.1:
        text = DEEP
    else:
        content = mutated(json.loads(text), chance)
        text = json.dumps(content)
    return replace(reply, body=text.encode("utf-8", "surrogatepass"))


def spoil(
    answer: Callable[[Call], Reply], chance: random.Random
) -> tuple[Callable[[Call], Reply], list[Reply]]:
    """A server whose answers are spoilt, one or more of each conversation; and what they were."""
    told: list[Reply] = []

    def spoiling(call: Call) -> Reply:
        reply = answer(call)
        if chance.random() < 0.6:
            reply = spoilt(reply, chance)
            told.append(reply)
        return reply

    return spoiling, told


def use(listing: Listing) -> None:
    """Do what a download does with a listing, up to the request for the content."""
    for file in listing.files[:3]:
        request = file.request()
        origin_of(request.url)
        assert f"{file.path}{file.fingerprint}{file.checksum}".encode()


@counts(150, 2_000)
def test_no_answer_of_a_hub_raises(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, found = random.Random(3), Findings("answers of the Hub")
    with Hub(page_size=2) as hub:
        hub.add("models", "org/net", FILES)
        hub.add("models", "org/gated", FILES, gated=True)
        answer, told = spoil(hub.server.answer, chance)
        monkeypatch.setattr(hub.server, "answer", answer)
        env = {"HF_ENDPOINT": hub.url, "HOME": "/nowhere"}
        for _ in range(count):
            told.clear()
            uri = chance.choice(
                ["hf_model://org/net", "hf_model://org/net/weights", "hf_model://org/gated"]
            )
            found.attempt(told, lambda uri=uri: use(runner_hub.listing(uri, env)), [RunnerError])
    found.check()


@counts(150, 2_000)
def test_no_answer_of_a_registry_raises(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, found = random.Random(4), Findings("answers of the registry")
    with Ngc() as ngc:
        ngc.keys, ngc.page_size = {"nvapi-key": "acme", "old-key": "acme"}, 2
        ngc.add("org/acme/team/vision", "dino", "v1", FILES, public=True)
        answer, told = spoil(ngc.server.answer, chance)
        monkeypatch.setattr(ngc.server, "answer", answer)
        for _ in range(count):
            told.clear()
            ngc.redirects = chance.random() < 0.5
            env = {**ngc.env, "NGC_KEY": chance.choice(["", "nvapi-key", "old-key"])}
            act = lambda env=env: use(runner_ngc.listing("ngc://acme/vision/dino:v1", env))  # noqa: E731
            found.attempt(told, act, [RunnerError])
    found.check()


def answering(body: object, headers: Mapping[str, str] | None = None) -> Callable[[Call], Reply]:
    content = body if isinstance(body, str) else json.dumps(body)
    return lambda _: Reply(200, content.encode(), headers or {})


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"sha": 5},
        DEEP,
        '{"sha": "' + "a" * (17 << 20) + '"}',
        {"sha": "c", "0": [{"type": "file", "path": 5, "size": 1, "oid": "o"}]},
    ],
    ids=["list", "number", "deep", "long", "no page"],
)
def test_a_hub_that_is_none_is_named(body: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub() as hub:
        monkeypatch.setattr(hub.server, "answer", answering(body))
        with pytest.raises(TransferError, match=f"{hub.url} does not answer as a Hub does"):
            runner_hub.listing("hf_model://org/net", {"HF_ENDPOINT": hub.url})


@pytest.mark.parametrize(
    "change",
    [
        {"path": ""},
        {"path": "\ud800"},
        {"path": "a\0b"},
        {"path": ["a"]},
        {"size": -5},
        {"size": 1e9},
        {"size": 10**30},
        {"size": True},
        {"oid": None},
        {"lfs": "x"},
    ],
    ids=str,
)
def test_an_impossible_file_is_refused(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"type": "file", "path": "a", "size": 1, "oid": "o", **change}
    with Hub() as hub:
        hub.add("models", "org/net", FILES)
        answer, page = hub.server.answer, answering([entry])
        monkeypatch.setattr(
            hub.server, "answer", lambda call: (page if "/tree/" in call.path else answer)(call)
        )
        with pytest.raises(TransferError, match="does not answer as a Hub does"):
            runner_hub.listing("hf_model://org/net", {"HF_ENDPOINT": hub.url})


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"modelFiles": [{"path": 5}]},
        {"paginationInfo": {"totalPages": "9"}},
        {"filepath": "word"},
        {"filepath": ["a"], "sha256_base64": [5]},
        {"paginationInfo": {"totalResults": [1]}},
    ],
    ids=str,
)
def test_a_registry_that_is_none_is_named(body: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ngc() as ngc:
        monkeypatch.setattr(ngc.server, "answer", answering(body))
        with pytest.raises(TransferError, match="does not answer as the registry does"):
            runner_ngc.listing("ngc://acme/vision/dino:v1", {**ngc.env, "NGC_KEY": "nvapi-k"})


def test_a_list_of_pages_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer names another page; and a number of pages with thirty digits."""
    monkeypatch.setattr(runner_hub, "MOST_PAGES", 20)
    monkeypatch.setattr(runner_ngc, "MOST_PAGES", 20)
    with Hub() as hub:
        hub.add("models", "org/net", FILES)
        answer = hub.server.answer

        def endless(call: Call) -> Reply:
            if "/tree/" not in call.path:
                return answer(call)
            link = {"Link": f'<{hub.url}/x?page={len(hub.server.calls)}>; rel="next"'}
            return Reply(200, b"[]", link)

        monkeypatch.setattr(hub.server, "answer", endless)
        with pytest.raises(TransferError, match="listing has no end"):
            runner_hub.listing("hf_model://org/net", {"HF_ENDPOINT": hub.url})
        assert len(hub.server.calls) == 21
    with Ngc() as ngc:
        page = {"modelFiles": [], "paginationInfo": {"totalPages": 10**30, "totalResults": 5}}
        monkeypatch.setattr(ngc.server, "answer", answering(page))
        with pytest.raises(TransferError, match="listed 0 of 5 files"):
            runner_ngc.listing("ngc://acme/vision/dino:v1", {**ngc.env, "NGC_KEY": "nvapi-k"})
        assert len(ngc.server.calls) == 20
