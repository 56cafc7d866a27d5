"""Images that are had before a job is written down, each asked for once; and those that are not."""

from __future__ import annotations

import base64
import gc
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from docker_lab import DockerLab

from tao_sdk.errors import (
    BackendUnreachableError,
    CredentialError,
    StoreError,
    SubmissionRejectedError,
)
from tao_sdk.platforms.docker import DockerSDK, images
from tao_sdk.platforms.docker import client as client_module
from tao_sdk.platforms.docker.client import DockerClient
from tao_sdk.platforms.docker.endpoint import Endpoint

LONG = 90


class Registry:
    """Has no image at all, and says so once so many were asked for at the same time."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.asked: list[str] = []
        self.together = threading.Barrier(1)

    def image(self, name: str) -> str:
        return f"{self.host}/lab/{name}:1"

    def answer(self, path: str) -> None:
        if "/manifests/" in path:
            self.asked.append(path)
            self.together.wait(LONG)


@contextmanager
def serving() -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known.answer(self.path)
            found = self.path.rstrip("/") == "/v2"
            body = b"{}" if found else b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the name is the library's

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        known = Registry(f"127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield known
        server.shutdown()
        thread.join()


@pytest.fixture
def empty() -> Iterator[Registry]:
    with serving() as registry:
        yield registry


def pulls(sdk: DockerSDK) -> int:
    return sum(call == "POST /images/create" for call in sdk.backend.transport.calls)


def of(lab: DockerLab, image: str, **extra: Any) -> dict[str, Any]:
    return {**lab.job("true"), "image": image, **extra}


class TestBadImages:
    def test_one_is_tried_once(self, lab: DockerLab, empty: Registry) -> None:
        sdk = lab.sdk()
        with pytest.raises(SubmissionRejectedError, match="cannot be pulled"):
            sdk.create_job(**of(lab, empty.image("none")))
        assert pulls(sdk) == 1
        jobs = sdk.create_jobs([of(lab, empty.image("none"))] * 5)
        assert pulls(sdk) == 2
        for job in jobs:
            assert job.status == "Error"
            assert "cannot be pulled" in job.refresh().message
            assert job.explain()["err_class"] == "ERR_IMAGE"  # type: ignore[index]  # None would fail here as well

    def test_they_are_tried_again_by_the_next_submission(
        self, lab: DockerLab, empty: Registry
    ) -> None:
        sdk = lab.sdk()
        plan = sdk.plan(**of(lab, empty.image("none")))
        with pytest.raises(SubmissionRejectedError):
            sdk.submit(plan)
        other = sdk.plan(**of(lab, empty.image("none")))
        with pytest.raises(SubmissionRejectedError):
            sdk.submit(other)
        assert pulls(sdk) == 2

    def test_they_keep_no_other_job_from_starting(self, lab: DockerLab, empty: Registry) -> None:
        """A name that the daemon itself refuses is no other job's trouble either."""
        sdk = lab.sdk()
        bad = [empty.image("none"), "Upper/Case:1"]
        asked = [*(of(lab, image) for image in bad), lab.job("true")]
        refused, misnamed, good = sdk.create_jobs(asked)
        assert good.wait(timeout=LONG).status == "Complete"
        assert (refused.status, misnamed.status) == ("Error", "Error")
        assert "image Upper/Case:1" in misnamed.refresh().message

    def test_different_ones_are_asked_for_side_by_side(
        self, lab: DockerLab, empty: Registry
    ) -> None:
        empty.together = threading.Barrier(3)  # broken, so answered, when they come one by one
        sdk = lab.sdk()
        sdk.create_jobs([of(lab, empty.image(name)) for name in ("a", "b", "c")])
        assert not empty.together.broken
        assert {path.split("/")[3] for path in empty.asked} == {"a", "b", "c"}

    def test_nothing_is_remembered_of_what_was_never_submitted(
        self, lab: DockerLab, empty: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()

        def full(*_: Any) -> None:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(sdk.store, "begin_submissions", full)
            plan = sdk.plan(**of(lab, empty.image("none"), pull_policy="missing"))
            with pytest.raises(StoreError):
                sdk.submit(plan)
        del plan
        gc.collect()
        assert len(sdk.backend._refusals) == 0  # type: ignore[attr-defined]  # of this backend, not of all


def test_an_interrupted_pull_ends_the_others(
    lab: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C does not wait until everything has been pulled."""
    begun, go_on = threading.Barrier(2), threading.Event()
    told: list[str] = []

    def ensure(_: DockerClient, image: str, __: str, listener: images.Listener) -> None:
        begun.wait(LONG)
        if image == "interrupted":
            go_on.set()
            raise KeyboardInterrupt
        go_on.wait(LONG)
        for count in range(10**6):
            listener(images.PullProgress(image, count, 10**6, 0, 1))

    monkeypatch.setattr(images, "ensure", ensure)
    transport = lab.sdk().backend.transport
    wanted = [("interrupted", "missing"), ("long", "missing")]
    with pytest.raises(KeyboardInterrupt):
        images.provide(transport, wanted, lambda progress: told.append(str(progress)))
    assert len(told) < 10**6


class TestCredentials:
    def store(self, **sections: Any) -> Path:
        import os

        folder = Path(os.environ["DOCKER_CONFIG"])
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "config.json").write_text(json.dumps(sections))
        return folder

    def auth(self, password: str) -> dict[str, str]:
        return {"auth": base64.b64encode(f"me:{password}".encode()).decode()}

    def test_they_are_read_as_they_are_now(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Beside other sections they were found by the first pull of a process only."""
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
        other = {"currentContext": "default", "HttpHeaders": {"X-Lab": "1"}}
        for expected in ("one", "one", "two"):
            self.store(auths={"lab.example:5000": self.auth(expected)}, **other)
            found = images.credentials("lab.example:5000")
            assert found is not None
            assert (found["username"], found["password"]) == ("me", expected)

    def test_those_that_cannot_be_read_are_the_jobs_trouble(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
        transport = DockerClient(Endpoint("unix:///nowhere.sock"))
        folder = self.store(auths={"lab.example": "nonsense"})
        wanted = ("lab.example/image:1", "always")
        refusals = images.provide(transport, [wanted], lambda _: None)
        assert isinstance(refusals[wanted], CredentialError)
        assert str(folder / "config.json") in str(refusals[wanted])


@pytest.mark.parametrize(
    ("said", "is_denied"),
    [
        ("unauthorized: authentication required", True),
        ("no basic auth credentials", True),
        ("pull access denied for x, repository does not exist or may require 'docker login'", True),
        ("error parsing HTTP 403 response body", True),
        ("received unexpected HTTP status: 403 Forbidden", True),
        ("manifest for lab.example/denied/cuda:403 not found: manifest unknown", False),
        ("received unexpected HTTP status: 500 Internal Server Error (4031 bytes)", False),
    ],
)
def test_a_refusal_for_want_of_a_credential(said: str, is_denied: bool) -> None:
    refusal = images._refusal("lab.example/denied/cuda:403", "lab.example", False, said)
    assert isinstance(refusal, CredentialError) == is_denied


class TestBrokenPulls:
    """The daemon says what it does line by line, and breaks off or goes silent."""

    @pytest.fixture
    def breaking(self, tmp_path: Path) -> Iterator[tuple[DockerClient, threading.Event]]:
        """A daemon that begins to report on a pull and then sends what `rest` says."""
        closed = threading.Event()
        begun = b'{"status":"Downloading","id":"aaa","progressDetail":{"current":1,"total":9}}\r\n'
        answer = b"HTTP/1.1 200 OK\r\nApi-Version: 1.47\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer += b"%x\r\n%s\r\n" % (len(begun), begun)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while line := self.rfile.readline():
                    while self.rfile.readline().strip():
                        pass
                    if b"/_ping" in line:
                        self.wfile.write(
                            b"HTTP/1.1 200 OK\r\nApi-Version: 1.47\r\nContent-Length: 2\r\n\r\nOK"
                        )
                        continue
                    if b"page" in line:
                        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
                        continue
                    self.wfile.write(answer)
                    if b"cut" in line:
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    if b"half" in line:
                        self.wfile.write(b'5\r\n{"sta\r\n0\r\n\r\n')
                        continue
                    if not self.rfile.readline():
                        closed.set()

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        with Server(str(tmp_path / "d.sock"), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield DockerClient(Endpoint(f"unix://{tmp_path}/d.sock")), closed
            server.shutdown()

    @pytest.mark.parametrize("image", ["cut", "half", "silent"])
    def test_they_are_an_unreachable_daemon(
        self,
        breaking: tuple[DockerClient, threading.Event],
        monkeypatch: pytest.MonkeyPatch,
        image: str,
    ) -> None:
        monkeypatch.setattr(client_module, "_SILENT_SECONDS", 1)
        with pytest.raises(BackendUnreachableError, match="does not answer"):
            images.provide(breaking[0], [(image, "always")], lambda _: None)

    def test_one_whose_listener_gives_up_is_closed(
        self, breaking: tuple[DockerClient, threading.Event]
    ) -> None:
        client, closed = breaking

        def give_up(_: images.PullProgress) -> None:
            raise BrokenPipeError("nothing reads the progress")

        with pytest.raises(BrokenPipeError):
            images.provide(client, [("silent", "always")], give_up)
        assert closed.wait(LONG)

    def test_what_is_no_json_is_no_answer(
        self, breaking: tuple[DockerClient, threading.Event]
    ) -> None:
        with pytest.raises(BackendUnreachableError, match="does not answer"):
            images.is_present(breaking[0], "page")
