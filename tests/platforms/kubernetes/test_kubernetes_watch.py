"""Being told of changes: lists, events, bookmarks, and everything that interrupts them."""

from __future__ import annotations

import json
import queue
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from api_server import (
    CHUNKED,
    LAST_CHUNK,
    PODS,
    ApiServer,
    Certificates,
    HangUpError,
    Request,
    answer,
    chunk,
    encoded,
    failure,
    kubeconfig,
)

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.kubernetes import watch as watch_module
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient, Timeouts
from tao_sdk.platforms.kubernetes.watch import Watch, lines

LONG = 30.0


def pod(uid: str, version: int, phase: str = "Pending") -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": uid, "resourceVersion": str(version)},
        "status": {"phase": phase},
    }


def event(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class Cluster:
    """Answers lists with `pods`, and watches with what is put into `events`."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = [pod("a", 1)]
        self.version = 1
        self.events: queue.Queue[bytes | None] = queue.Queue()
        self.list_refusal: bytes | None = None
        self.watch_refusals: list[bytes] = []
        self.watching = threading.Event()
        self.head = CHUNKED

    def handle(self, request: Request, connection: ssl.SSLSocket) -> None:
        if "watch=true" not in request.target:
            listed = {"metadata": {"resourceVersion": str(self.version)}, "items": self.pods}
            connection.sendall(self.list_refusal or answer(listed))
            return
        if self.watch_refusals:
            connection.sendall(self.watch_refusals.pop(0))
            return
        connection.sendall(self.head)
        self.watching.set()
        while (told := self.events.get(timeout=LONG)) is not None:
            if told == b"":
                raise HangUpError
            connection.sendall(chunk(told))
        connection.sendall(LAST_CHUNK)

    def tell(self, *told: bytes | None) -> None:
        for one in told:
            self.events.put(one)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def server(certificates: Certificates, cluster: Cluster) -> Iterator[ApiServer]:
    server = ApiServer(certificates, cluster.handle)
    yield server
    cluster.tell(*[None] * 8)
    server.close()


@pytest.fixture
def api(
    server: ApiServer,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> KubernetesClient:
    trusted = {"certificate-authority-data": encoded(certificates.authority)}
    file = kubeconfig(tmp_path / "config", server.url, {"token": "x"}, trusted)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("TAO_K8S_CONTEXT", raising=False)
    return KubernetesClient(ClusterAccess.find(), Timeouts(5, 5, 5, 0))


@pytest.fixture
def watch(api: KubernetesClient) -> Iterator[Watch]:
    with closing(Watch(api, PODS, labelSelector="tao=true")) as watch:
        yield watch


def phases(watch: Watch) -> dict[str, str]:
    return {uid: item["status"]["phase"] for uid, item in watch.snapshot().items()}


def until(watch: Watch, wanted: Callable[[], bool]) -> None:
    """Look as a caller does: whenever something changed."""
    deadline = time.monotonic() + LONG
    while not wanted():
        assert time.monotonic() < deadline
        watch.wait(watch.changes, 0.5)


def watches(server: ApiServer) -> list[str]:
    """From which version each watch went on."""
    found = [seen.target for seen in list(server.requests) if "watch=true" in seen.target]
    return [target.partition("resourceVersion=")[2].partition("&")[0] for target in found]


def lists(server: ApiServer) -> int:
    return sum("watch=true" not in seen.target for seen in list(server.requests))


class TestLines:
    @pytest.mark.parametrize("size", [1, 2, 7, 1000])
    def test_pieces_of_any_size(self, size: int) -> None:
        data = b"one\n\ntwo and more\nhalf"
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert list(lines(pieces)) == [b"one", b"", b"two and more"]


class TestChanges:
    def test_one_list_then_events(self, watch: Watch, cluster: Cluster, server: ApiServer) -> None:
        assert phases(watch) == {"a": "Pending"}
        cluster.tell(event("ADDED", pod("b", 2)), event("MODIFIED", pod("a", 3, "Running")))
        until(watch, lambda: phases(watch) == {"a": "Running", "b": "Pending"})
        cluster.tell(event("DELETED", pod("a", 4)))
        until(watch, lambda: phases(watch) == {"b": "Pending"})
        assert (lists(server), watches(server)) == (1, ["1"])
        [asked] = server.targets("watch=true")
        assert "labelSelector=tao%3Dtrue" in asked
        assert "allowWatchBookmarks=true" in asked
        assert "timeoutSeconds=60" in asked

    def test_waiting_ends_with_a_change(self, watch: Watch, cluster: Cluster) -> None:
        assert watch.wait(0, LONG), "the first list"
        assert watch.changes == 1
        assert not watch.wait(1, 0.01)
        cluster.tell(event("MODIFIED", pod("a", 2, "Running")))
        assert watch.wait(1, LONG)
        assert watch.wait(1, LONG), "for each caller that has not seen it"
        assert not watch.wait(2, 0.01)

    def test_no_more_is_kept_than_is_needed(self, api: KubernetesClient, cluster: Cluster) -> None:
        def trim(item: dict[str, Any]) -> dict[str, Any]:
            return {"status": item["status"]}

        with closing(Watch(api, PODS, trim)) as watch:
            assert watch.snapshot()["a"] == {"status": {"phase": "Pending"}}
            cluster.tell(event("MODIFIED", pod("a", 2, "Running")))
            until(watch, lambda: watch.snapshot()["a"] == {"status": {"phase": "Running"}})

    def test_an_answer_with_connection_close(
        self, watch: Watch, cluster: Cluster, server: ApiServer
    ) -> None:
        """As gateways answer; it ended the thread."""
        cluster.head = CHUNKED.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        watch.snapshot()
        cluster.tell(event("MODIFIED", pod("a", 2, "Running")), None)
        until(watch, lambda: phases(watch) == {"a": "Running"})
        until(watch, lambda: watches(server) == ["1", "2"])

    def test_a_bookmark_moves_the_version_and_nothing_else(
        self, watch: Watch, cluster: Cluster, server: ApiServer
    ) -> None:
        watch.snapshot()
        bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "77"}}
        cluster.tell(event("BOOKMARK", bookmark), None)
        until(watch, lambda: watches(server) == ["1", "77"])
        assert phases(watch) == {"a": "Pending"}
        assert lists(server) == 1, "a watch that ended is gone on with"

    def test_an_event_in_small_pieces(self, watch: Watch, cluster: Cluster) -> None:
        watch.snapshot()
        told = event("ADDED", pod("b", 2))
        cluster.tell(*(told[start : start + 10] for start in range(0, len(told), 10)))
        until(watch, lambda: "b" in watch.snapshot())

    def test_a_snapshot_does_not_change(self, watch: Watch, cluster: Cluster) -> None:
        before = watch.snapshot()
        cluster.tell(event("DELETED", pod("a", 2)))
        until(watch, lambda: not watch.snapshot())
        assert list(before) == ["a"]


class TestInterruptions:
    def test_a_forgotten_version_in_the_stream(
        self, watch: Watch, cluster: Cluster, server: ApiServer
    ) -> None:
        watch.snapshot()
        cluster.pods, cluster.version = [pod("c", 90)], 90
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        cluster.tell(event("ERROR", gone), None)
        until(watch, lambda: phases(watch) == {"c": "Pending"})
        assert (lists(server), watches(server)[-1]) == (2, "90")

    def test_a_forgotten_version_at_the_beginning(
        self, watch: Watch, cluster: Cluster, server: ApiServer
    ) -> None:
        cluster.watch_refusals = [failure(410, "Expired", "too old")]
        assert phases(watch) == {"a": "Pending"}
        assert lists(server) == 2

    def test_a_connection_that_breaks_off(
        self, watch: Watch, cluster: Cluster, server: ApiServer
    ) -> None:
        watch.snapshot()
        cluster.tell(event("MODIFIED", pod("a", 5, "Running")), b"")
        until(watch, lambda: watches(server) == ["1", "5"])
        cluster.tell(event("MODIFIED", pod("a", 6, "Succeeded")))
        until(watch, lambda: phases(watch) == {"a": "Succeeded"})
        assert lists(server) == 1

    def test_a_connection_that_died_silently(
        self,
        watch: Watch,
        server: ApiServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Nothing comes, not even the end that the server had promised."""
        monkeypatch.setattr(watch_module, "WATCH_SECONDS", 0)
        monkeypatch.setattr(watch_module, "OVERDUE_SECONDS", 0.3)
        watch.snapshot()
        until(watch, lambda: len(watches(server)) > 1)
        assert lists(server) == 1

    @pytest.mark.parametrize(
        "broken",
        [
            event("ERROR", {"kind": "Status", "code": 500, "message": "etcd is away"}),
            b"no event\n",
            b'{"type": "ADDED"}\n',
        ],
        ids=["error", "no JSON", "no object"],
    )
    def test_what_is_no_event_is_trouble_and_then_listed(
        self, watch: Watch, cluster: Cluster, server: ApiServer, broken: bytes
    ) -> None:
        watch.snapshot()
        cluster.pods = [pod("a", 9, "Running")]
        cluster.tell(broken, None)
        until(watch, lambda: lists(server) == 2)
        until(watch, lambda: _answers(watch) == {"a": "Running"})


def _answers(watch: Watch) -> dict[str, str] | None:
    try:
        return phases(watch)
    except BackendUnreachableError:
        return None


class TestTrouble:
    def test_the_past_is_not_shown_as_the_present(
        self, watch: Watch, cluster: Cluster, server: ApiServer
    ) -> None:
        """Lesson W12: whoever cannot ask says so."""
        watch.snapshot()
        cluster.list_refusal = failure(403, "Forbidden", "pods is forbidden")
        cluster.watch_refusals = [failure(403, "Forbidden", "pods is forbidden")] * 50
        cluster.tell(None)
        assert watch.wait(1, LONG), "that there is trouble is news"
        for _ in range(2):
            with pytest.raises(ApiError, match="pods is forbidden") as caught:
                watch.snapshot()
            assert caught.value.forbidden
        assert not watch.wait(2, 0.01), "that there still is, is none"
        cluster.pods, cluster.list_refusal = [pod("a", 9, "Succeeded")], None
        cluster.watch_refusals.clear()
        assert watch.wait(2, LONG), "that it is over, is"
        assert phases(watch) == {"a": "Succeeded"}

    def test_listing_without_watching_is_not_enough(self, watch: Watch, cluster: Cluster) -> None:
        """A role may allow the one and not the other: nobody would tell of changes."""
        cluster.watch_refusals = [failure(403, "Forbidden", "cannot watch")] * 50
        for _ in range(5):
            with pytest.raises(ApiError, match="cannot watch"):
                watch.snapshot()

    def test_nobody_is_there(self, watch: Watch, server: ApiServer) -> None:
        server.close()
        with pytest.raises(BackendUnreachableError, match="Connection refused"):
            watch.snapshot()

    def test_a_mistake_of_ours_reaches_whoever_asks(
        self, watch: Watch, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
        cluster.pods = [{"no": "metadata"}]
        with pytest.raises(KeyError):
            watch.snapshot()


class TestEnd:
    def threads(self) -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if "tao-kubernetes" in thread.name]

    def test_constructing_begins_nothing(self, api: KubernetesClient, server: ApiServer) -> None:
        Watch(api, PODS)
        assert not self.threads()
        assert not server.connections

    def test_closing_ends_the_thread(self, watch: Watch, cluster: Cluster) -> None:
        watch.snapshot()
        [thread] = self.threads()
        watch.close()
        assert not thread.is_alive()
        watch.close()

    def test_it_ends_when_nobody_wants_to_know(
        self,
        watch: Watch,
        cluster: Cluster,
        server: ApiServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        watch.snapshot()
        [thread] = self.threads()
        monkeypatch.setattr(watch_module, "_UNUSED_SECONDS", 0.0)
        cluster.tell(None)  # it would be renewed now
        thread.join(LONG)
        assert not thread.is_alive()
        monkeypatch.undo()
        assert len(watches(server)) == 1

    def test_a_later_question_begins_anew(
        self, watch: Watch, cluster: Cluster, server: ApiServer
    ) -> None:
        watch.snapshot()
        watch.close()
        cluster.pods = [pod("z", 5)]
        assert list(watch.snapshot()) == ["z"]
        assert lists(server) == 2

    def test_whoever_waits_is_let_go(self, watch: Watch) -> None:
        watch.snapshot()
        loop = watch._loop
        assert loop is not None
        waited: list[bool] = []
        waiting = threading.Thread(target=lambda: waited.append(loop.wait(1, LONG)))
        waiting.start()
        watch.close()
        waiting.join(LONG)
        assert waited == [True]
        with pytest.raises(BackendUnreachableError, match="was closed"):
            loop.snapshot()

    def test_a_forked_process_has_no_thread_and_begins_its_own(
        self, api: KubernetesClient, server: ApiServer
    ) -> None:
        program = f"""
import os, signal, sys, threading
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import KubernetesClient
from tao_sdk.platforms.kubernetes.watch import Watch
signal.alarm(60)
watch = Watch(KubernetesClient(ClusterAccess.find()), {PODS!r})
watch.snapshot()
with watch._lock, watch._loop._changed:  # as another thread might
    child = os.fork()
if not child:
    alone = threading.active_count() == 1
    found = list(watch.snapshot())
    os._exit(0 if alone and found == ["a"] else 1)
ended = os.waitpid(child, 0)[1]
sys.exit(0 if ended == 0 and list(watch.snapshot()) == ["a"] else 1)
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=90)
        assert lists(server) == 2

    def test_a_program_ends_without_closing(self, api: KubernetesClient) -> None:
        program = f"""
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import KubernetesClient
from tao_sdk.platforms.kubernetes.watch import Watch
Watch(KubernetesClient(ClusterAccess.find()), {PODS!r}).snapshot()
"""
        ran = subprocess.run(
            [sys.executable, "-c", program], check=True, timeout=60, capture_output=True
        )
        assert ran.stderr == b""
