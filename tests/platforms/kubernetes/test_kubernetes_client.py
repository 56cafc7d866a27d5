"""What the client of an API server adds to the REST client: refusals, lists, credentials, TLS."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import (
    CHUNKED,
    LAST_CHUNK,
    PODS,
    ApiServer,
    Certificates,
    Handler,
    HangUpError,
    Request,
    answer,
    chunk,
    encoded,
    failure,
    kubeconfig,
    says,
)

from tao_sdk.errors import BackendUnreachableError, CredentialError
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient, Timeouts

TOKEN = "canary-token-value"  # noqa: S105 - to be found where it must not be
FINE = answer({"kind": "Fine"})
QUICK = Timeouts(connect=5, read=5, write=5, busy=5)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAO_K8S_CONTEXT", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Lab:
    """Servers, and clients for them."""

    def __init__(
        self, folder: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder, self.certificates, self._monkeypatch = folder, certificates, monkeypatch
        self._servers: list[ApiServer] = []

    def server(self, handler: Handler) -> ApiServer:
        server = ApiServer(self.certificates, handler)
        self._servers.append(server)
        return server

    def api(
        self,
        url: str,
        user: dict[str, Any] | None = None,
        timeouts: Timeouts = QUICK,
        **cluster: Any,
    ) -> KubernetesClient:
        file = self.folder / f"config-{len(list(self.folder.iterdir()))}"
        trusted = {"certificate-authority-data": encoded(self.certificates.authority)}
        kubeconfig(file, url, user or {"token": TOKEN}, {**trusted, **cluster})
        self._monkeypatch.setenv("KUBECONFIG", str(file))
        return KubernetesClient(ClusterAccess.find(), timeouts)

    def talking_to(self, handler: Handler, **options: Any) -> tuple[KubernetesClient, ApiServer]:
        server = self.server(handler)
        return self.api(server.url, **options), server

    def close(self) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
def lab(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    lab = Lab(tmp_path, certificates, monkeypatch)
    yield lab
    lab.close()


class TestRequests:
    def test_what_is_sent(self, lab: Lab) -> None:
        api, server = lab.talking_to(says(FINE))
        api.get(PODS, labelSelector="a=b,c in (d)", limit="5")
        api.create(PODS, {"kind": "Pod"}, dryRun="All")
        api.patch(f"{PODS}/x", {"metadata": {}})
        api.delete(f"{PODS}/x")
        api.delete(f"{PODS}/x", {"propagationPolicy": "Background"})
        sent = [(seen.method, seen.target.removeprefix(PODS)) for seen in server.requests]
        assert sent == [
            ("GET", "?labelSelector=a%3Db%2Cc+in+%28d%29&limit=5"),
            ("POST", "?dryRun=All"),
            ("PATCH", "/x"),
            ("DELETE", "/x"),
            ("DELETE", "/x"),
        ]
        assert [seen.header("content-type") for seen in server.requests] == [
            "",
            "application/json",
            "application/merge-patch+json",
            "",
            "application/json",
        ]
        assert json.loads(server.requests[1].body) == {"kind": "Pod"}
        assert {seen.header("authorization") for seen in server.requests} == {f"Bearer {TOKEN}"}
        assert [call.partition(" ")[0] for call in api.calls] == [method for method, _ in sent]
        assert server.connections == 1, "one connection serves them all"

    def test_a_server_below_a_path(self, lab: Lab) -> None:
        server = lab.server(says(FINE))
        lab.api(f"{server.url}/k8s/clusters/c-1").get(PODS)
        assert server.targets() == [f"GET /k8s/clusters/c-1{PODS}"]

    def test_impersonation(self, lab: Lab) -> None:
        user = {"token": TOKEN, "as": "jane", "as-groups": ["a", "b"]}
        api, server = lab.talking_to(says(FINE), user=user)
        api.get("/version")
        assert server.requests[0].headers["impersonate-user"] == ["jane"]
        assert server.requests[0].headers["impersonate-group"] == ["a", "b"]

    def test_may_we(self, lab: Lab) -> None:
        review = {"status": {"allowed": False, "reason": "no rule"}}
        api, server = lab.talking_to(says(answer(review, 201)))
        assert api.review("create", "jobs", group="batch", namespace="ns") == (False, "no rule")
        assert json.loads(server.requests[0].body)["spec"]["resourceAttributes"] == {
            "verb": "create",
            "resource": "jobs",
            "group": "batch",
            "namespace": "ns",
        }

    @pytest.mark.parametrize(
        "sent",
        [
            answer({"kind": "Fine", "padding": "x" * 200_000}, packed=True),
            CHUNKED + chunk(b'{"kind": ') + chunk(b'"Fine"}') + LAST_CHUNK,
        ],
        ids=["gzip", "chunked"],
    )
    def test_packed_and_in_pieces(self, lab: Lab, sent: bytes) -> None:
        api, server = lab.talking_to(says(sent))
        for _ in range(2):
            assert api.get("/x")["kind"] == "Fine"
        assert server.connections == 1

    def test_compression_can_be_declined(self, lab: Lab) -> None:
        api, server = lab.talking_to(says(FINE), **{"disable-compression": True})
        api.get("/x")
        assert server.requests[0].header("accept-encoding") == "identity"

    def test_a_log_of_any_bytes(self, lab: Lab) -> None:
        api, _ = lab.talking_to(says(answer("grüße\n".encode() + b"\xff\n")))
        assert api.text(f"{PODS}/x/log", limitBytes="100") == "grüße\n\ufffd\n"


class TestLists:
    def test_pieces_are_put_together(self, lab: Lab) -> None:
        first = {"metadata": {"continue": "a+b", "resourceVersion": "7"}, "items": [{"n": 1}]}
        last = {"metadata": {"resourceVersion": "7"}, "items": [{"n": 2}]}
        api, server = lab.talking_to(says(answer(first), answer(last)))
        found = api.list_all(PODS, limit="1", resourceVersion="0")
        assert (found.items, found.resource_version) == ([{"n": 1}, {"n": 2}], "7")
        assert server.targets()[1] == f"GET {PODS}?limit=1&continue=a%2Bb"

    def test_a_continuation_that_expired_begins_anew(self, lab: Lab) -> None:
        first = {"metadata": {"continue": "x"}, "items": [{"n": 1}]}
        whole = {"metadata": {"resourceVersion": "9"}, "items": [{"n": 1}, {"n": 2}]}
        expired = failure(410, "Expired", "The provided continue parameter is too old")
        api, server = lab.talking_to(says(answer(first), expired, answer(whole)))
        assert api.list_all(PODS, limit="1") == ([{"n": 1}, {"n": 2}], "9")
        assert server.targets()[2] == f"GET {PODS}"

    def test_an_empty_list(self, lab: Lab) -> None:
        nothing = {"metadata": {"resourceVersion": "1"}, "items": None}
        api, _ = lab.talking_to(says(answer(nothing)))
        assert api.list_all(PODS) == ([], "1")


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "reason", "question"),
        [
            (403, "Forbidden", "forbidden"),
            (404, "NotFound", "missing"),
            (409, "AlreadyExists", "conflict"),
            (410, "Expired", "expired"),
            (422, "Invalid", ""),
        ],
    )
    def test_are_told_apart(self, lab: Lab, code: int, reason: str, question: str) -> None:
        api, server = lab.talking_to(says(failure(code, reason, 'pods "x": no')))
        with pytest.raises(ApiError, match='pods "x": no') as caught:
            api.create(PODS, {})
        error = caught.value
        assert (error.status, error.reason) == (code, reason)
        assert error.call == f"POST {PODS}"
        assert not isinstance(error, BackendUnreachableError), "the server was reached"
        told = [
            name
            for name in ("forbidden", "missing", "conflict", "expired", "unauthorized")
            if getattr(error, name)
        ]
        assert told == ([question] if question else [])
        assert len(server.requests) == 1

    def test_a_refused_credential(self, lab: Lab) -> None:
        """Lesson W12: a refused credential reads as such, and keeps the state of jobs."""
        api, server = lab.talking_to(says(failure(401, "Unauthorized", "Unauthorized")))
        with pytest.raises(ApiError, match=r"^Could not authenticate to a Kubernetes") as caught:
            api.get(PODS)
        assert isinstance(caught.value, CredentialError)
        assert isinstance(caught.value, BackendUnreachableError)
        assert caught.value.unauthorized
        assert TOKEN not in str(caught.value)
        assert len(server.requests) == 1, "there is no other credential to try"

    @pytest.mark.parametrize("method", ["get", "create"])
    def test_a_renewed_token_file_is_tried(self, lab: Lab, method: str) -> None:
        file = lab.folder / "token"
        file.write_text("old")

        def handler(request: Request, connection: ssl.SSLSocket) -> None:
            if request.header("authorization") == "Bearer new":
                connection.sendall(FINE)
            else:
                file.write_text("new")
                connection.sendall(failure(401, "Unauthorized", "expired"))

        api, server = lab.talking_to(handler, user={"tokenFile": str(file)})
        assert (api.get("/x") if method == "get" else api.create("/x", {})) == {"kind": "Fine"}
        api.get("/x")
        tokens = [seen.header("authorization") for seen in server.requests]
        assert tokens == ["Bearer old", "Bearer new", "Bearer new"]

    @pytest.mark.parametrize(
        ("sent", "said"),
        [
            (answer(b"<html>Log in</html>"), "something else answers.*Log in"),
            (answer([1, 2]), "something else answers"),
            (answer({}, 302, {"Location": "https://login.test"}), r"redirects us.*login\.test"),
            (b"garbage\r\n\r\n", "garbage"),
        ],
        ids=["login page", "no object", "redirect", "no HTTP"],
    )
    def test_something_else_answers(self, lab: Lab, sent: bytes, said: str) -> None:
        def handler(request: Request, connection: ssl.SSLSocket) -> None:
            connection.sendall(sent)
            raise HangUpError

        api, server = lab.talking_to(handler)
        with pytest.raises(BackendUnreachableError, match=said) as caught:
            api.get("/x")
        assert server.url in str(caught.value)


class TestBusyServers:
    def test_too_many_requests_are_repeated_even_for_a_creation(self, lab: Lab) -> None:
        """429 means that nothing was done."""
        busy = failure(429, "TooManyRequests", "later", Retry_After="0")
        api, server = lab.talking_to(says(busy, FINE))
        assert api.create("/x", {}) == {"kind": "Fine"}
        assert len(server.requests) == len(api.calls) == 2

    def test_a_failing_server_was_not_reached(self, lab: Lab) -> None:
        api, server = lab.talking_to(says(failure(503, "InternalError", "webhook failed"), FINE))
        with pytest.raises(BackendUnreachableError, match="HTTP 503: webhook failed") as caught:
            api.create("/x", {})
        assert not isinstance(caught.value, ApiError)
        assert len(server.requests) == 1


class TestConnections:
    def dropping(self, drop: Callable[[Request], bool]) -> Handler:
        """Reads some requests and hangs up without an answer."""

        def handler(request: Request, connection: ssl.SSLSocket) -> None:
            if drop(request):
                raise HangUpError
            connection.sendall(FINE)

        return handler

    @pytest.mark.parametrize(
        ("ask", "sent"),
        [
            (lambda api: api.create("/x", {}), 1),
            (lambda api: api.patch("/x", {}), 1),
            (lambda api: api.delete("/x"), 1),
            (lambda api: api.delete("/x", {"preconditions": {"uid": "u"}}), 2),
        ],
        ids=["create", "patch", "delete", "delete by uid"],
    )
    def test_only_what_is_harmless_is_repeated(
        self, lab: Lab, ask: Callable[[KubernetesClient], Any], sent: int
    ) -> None:
        api, server = lab.talking_to(self.dropping(lambda _: True))
        with pytest.raises(BackendUnreachableError) as caught:
            ask(api)
        assert len(server.requests) == sent
        assert ("may or may not have been done" in str(caught.value)) == (sent == 1)

    def test_a_forked_process_has_its_own(self, lab: Lab) -> None:
        """Each would read answers to the other."""

        def handler(request: Request, connection: ssl.SSLSocket) -> None:
            connection.sendall(answer({"target": request.target}))

        server = lab.server(handler)
        lab.api(server.url)
        program = """
import os, signal, sys
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import KubernetesClient
signal.alarm(60)
api = KubernetesClient(ClusterAccess.find())
api.get("/before")
with api.access._credential._lock:  # as another thread might
    child = os.fork()
name = "parent" if child else "child"
right = all(api.get(f"/{name}/{n}") == {"target": f"/{name}/{n}"} for n in range(50))
if not child:
    os._exit(0 if right else 1)
sys.exit(0 if right and os.waitpid(child, 0)[1] == 0 else 1)
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=90)
        of_children = {seen.connection for seen in server.requests if "child" in seen.target}
        of_parents = {seen.connection for seen in server.requests if "child" not in seen.target}
        assert (len(of_children), len(of_parents)) == (1, 1)
        assert of_children.isdisjoint(of_parents)


class TestTls:
    def test_another_authority(self, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
        server = lab.server(says(FINE))
        other = Certificates(tmp_path_factory.mktemp("other"))
        trusted = {"certificate-authority-data": encoded(other.authority)}
        with pytest.raises(BackendUnreachableError, match="certificate is not trusted"):
            lab.api(server.url, **trusted).get("/x")
        assert not server.requests, "the token went nowhere"

    def test_the_name_must_fit(self, lab: Lab) -> None:
        server = lab.server(says(FINE))
        with pytest.raises(BackendUnreachableError, match="certificate is not trusted"):
            lab.api(server.url, **{"tls-server-name": "other.test"}).get("/x")
        assert lab.api(server.url, **{"tls-server-name": "cluster.test"}).get("/x")

    def test_verification_can_be_left_out(self, lab: Lab) -> None:
        server = lab.server(says(FINE))
        cluster = {"certificate-authority-data": None, "insecure-skip-tls-verify": True}
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the log says it once
            assert lab.api(server.url, **cluster).get("/x") == {"kind": "Fine"}

    @pytest.mark.parametrize("kind", ["data", "files"])
    def test_client_certificates(self, lab: Lab, kind: str) -> None:
        crt, key = lab.certificates.issue("jane")
        user = {"client-certificate-data": encoded(crt), "client-key-data": encoded(key)}
        if kind == "files":
            user = {"client-certificate": str(crt), "client-key": str(key)}
        api, server = lab.talking_to(says(FINE), user=user)
        api.get("/x")
        assert (server.requests[0].client, server.requests[0].header("authorization")) == (
            "jane",
            "",
        )

    def test_a_renewed_certificate_is_used_on_a_new_connection(self, lab: Lab) -> None:
        crt, key = lab.certificates.issue("first")
        user = {"client-certificate": str(crt), "client-key": str(key)}

        def handler(request: Request, connection: ssl.SSLSocket) -> None:
            for file, new in zip((crt, key), lab.certificates.issue("second"), strict=True):
                file.write_bytes(new.read_bytes())
            known = request.client == "second"
            connection.sendall(FINE if known else failure(401, "Unauthorized", "expired"))

        api, server = lab.talking_to(handler, user=user)
        assert api.get("/x") == {"kind": "Fine"}
        assert [seen.client for seen in server.requests] == ["first", "second"]


class TestProxies:
    def test_the_kubeconfigs_proxy_is_used(self, lab: Lab) -> None:
        """Not that of the environment, which NO_PROXY rules out here."""
        asked: list[bytes] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def refuse() -> None:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

            threading.Thread(target=refuse, daemon=True).start()
            url = f"http://me:{TOKEN}@127.0.0.1:{listener.getsockname()[1]}"
            api = lab.api("https://[fd00::1]:6443", **{"proxy-url": url})
            with pytest.raises(BackendUnreachableError, match="407") as caught:
                api.get("/x")
        assert asked[0].startswith(b"CONNECT [fd00::1]:6443 HTTP/1.")
        assert TOKEN not in str(caught.value)


class TestStreams:
    @pytest.mark.parametrize("closing", [False, True], ids=["kept open", "Connection: close"])
    def test_pieces_come_as_they_are_sent(self, lab: Lab, closing: bool) -> None:
        go_on = threading.Event()
        head = CHUNKED.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if closing else CHUNKED

        def handler(request: Request, connection: ssl.SSLSocket) -> None:
            connection.sendall(head + chunk(b"one\n"))
            go_on.wait(30)
            connection.sendall(chunk(b"two\n") + LAST_CHUNK)

        api, server = lab.talking_to(handler)
        with api.stream(f"{PODS}/x/log", follow="true") as pieces:
            assert next(pieces) == b"one\n"
            go_on.set()
            assert list(pieces) == [b"two\n"]
        assert server.requests[0].header("accept-encoding") == "identity"

    def test_a_refusal(self, lab: Lab) -> None:
        api, _ = lab.talking_to(says(failure(404, "NotFound", "no such pod")))
        with pytest.raises(ApiError, match="no such pod"):
            api.stream(f"{PODS}/x/log")

    def test_a_renewed_token_file_is_tried(self, lab: Lab) -> None:
        file = lab.folder / "token"
        file.write_text("old")

        def handler(request: Request, connection: ssl.SSLSocket) -> None:
            file.write_text("new")
            old = request.header("authorization") == "Bearer old"
            connection.sendall(failure(401, "Unauthorized", "expired") if old else FINE)

        api, _ = lab.talking_to(handler, user={"tokenFile": str(file)})
        with api.stream("/log") as pieces:
            assert b"Fine" in b"".join(pieces)


def test_importing_is_cheap() -> None:
    """Neither the official client nor YAML: each would be most of a program's start."""
    program = "import sys, tao_sdk.platforms.kubernetes.watch; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(ran.stdout.split())
    assert loaded.isdisjoint({"kubernetes", "yaml", "requests", "subprocess", "asyncio"})


def test_two_clusters_at_once(lab: Lab) -> None:
    one, first = lab.talking_to(says(answer({"kind": "One"})), user={"token": "one"})
    two, second = lab.talking_to(says(answer({"kind": "Two"})), user={"token": "two"})
    assert [api.get("/x")["kind"] for api in (one, two, one)] == ["One", "Two", "One"]
    assert {seen.header("authorization") for seen in first.requests} == {"Bearer one"}
    assert {seen.header("authorization") for seen in second.requests} == {"Bearer two"}
