"""Following logs: one request for each pod, every line once, whatever happens to the connection."""

from __future__ import annotations

import itertools
import random
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from api_server import (
    CHUNKED,
    LAST_CHUNK,
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
from kubernetes_objects import JOB_ID, NAME, TOKEN, pod, terminated
from kubernetes_sdk import isolate

from tao_sdk.errors import BackendUnreachableError, PlatformError
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes.auth import ClusterAccess
from tao_sdk.platforms.kubernetes.client import KubernetesClient
from tao_sdk.platforms.kubernetes.logs import JobLogs, RankLog
from tao_sdk.platforms.logs import LogStream

RUNNING = {"running": {"startedAt": "2026-04-20T09:00:00Z"}}
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"


def stamp(n: int) -> str:
    """Times of lines: four in each second, and pairs of the same time."""
    return f"2026-04-20T09:{n // 240:02}:{n // 4 % 60:02}.{n % 4 // 2}00000000Z"


def line(n: int) -> bytes:
    return f"{stamp(n)} line {n}\n".encode()


class Cluster:
    """A namespace with the pods of one job, and their logs."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, list[bytes]] = {}
        self.cut: Callable[[], str] = lambda: ""
        """After each line: how the connection ends, if it does ("clean" or "broken")."""
        self.closes = False
        """Whether logs come on a connection that the server closes at their end."""
        self.may_watch = True
        self._changed = threading.Condition()
        self._version = itertools.count(1)
        self.version = 0

    def begin(self, name: str = f"{NAME}-x7k2p", rank: int | None = None) -> str:
        with self.changing():
            self.pods[name] = pod(name, phase="Running", rank=rank, state=RUNNING)
            self.logs.setdefault(name, [])
        return name

    def write(self, name: str, *lines: bytes) -> None:
        with self._changed:
            self.logs[name] += lines
            self._changed.notify_all()

    def end(self, name: str, code: int = 0) -> None:
        rank = self.pods[name]["metadata"]["annotations"].get(
            "batch.kubernetes.io/job-completion-index"
        )
        with self.changing():
            phase = "Failed" if code else "Succeeded"
            of_rank = None if rank is None else int(rank)
            self.pods[name] = pod(name, phase=phase, rank=of_rank, state=terminated(code))

    def remove(self, name: str) -> None:
        with self.changing():
            del self.pods[name]

    def changing(self) -> Any:
        self.version = next(self._version)
        return _Notified(self._changed)

    # ------------------------------------------------------------------ answers

    def handle(self, request: Request, connection: ssl.SSLSocket) -> None:
        parts = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path.endswith("/log"):
            self._send_log(parts.path.split("/")[-2], query, connection)
        elif "watch" in query:
            self._send_changes(int(query["resourceVersion"]), connection)
        else:
            with self._changed:
                body = {
                    "metadata": {"resourceVersion": str(self.version)},
                    "items": list(self.pods.values()),
                }
            connection.sendall(answer(body))

    def _send_changes(self, version: int, connection: ssl.SSLSocket) -> None:
        if not self.may_watch:
            connection.sendall(failure(403, "Forbidden", "no watching here"))
            return
        connection.sendall(CHUNKED)
        with self._changed:
            self._changed.wait_for(lambda: self.version > version)
        connection.sendall(chunk(b'{"type": "MODIFIED"}\n') + LAST_CHUNK)

    def _send_log(self, name: str, query: dict[str, str], connection: ssl.SSLSocket) -> None:
        if name not in self.pods:
            connection.sendall(failure(404, "NotFound", "no such pod"))
            return
        connection.sendall(CLOSING if self.closes else CHUNKED)
        framed = (lambda data: data) if self.closes else chunk
        since = query.get("sinceTime", "")[:19]
        sent = len(self.logs[name]) - int(query.get("tailLines", len(self.logs[name])))
        while True:
            with self._changed:
                if query.get("follow"):
                    self._wait_for_lines(name, sent)
                lines = self.logs[name][max(sent, 0) :]
                sent = len(self.logs[name])
                is_last = not query.get("follow") or self._over(name)
            for one in lines:
                if one.decode()[:19] < since:
                    continue
                how = self.cut() if query.get("follow") else ""
                if how == "broken":
                    connection.sendall(framed(one[: len(one) // 2]))
                    raise HangUpError
                connection.sendall(framed(one))
                if how == "clean":
                    self._end(connection)
                    return
            if is_last:
                self._end(connection)
                return

    def _wait_for_lines(self, name: str, sent: int) -> None:
        self._changed.wait_for(lambda: len(self.logs[name]) > sent or self._over(name))

    def _end(self, connection: ssl.SSLSocket) -> None:
        if self.closes:
            raise HangUpError
        connection.sendall(LAST_CHUNK)

    def _over(self, name: str) -> bool:
        found = self.pods.get(name)
        return found is None or found["status"]["phase"] != "Running"


class _Notified:
    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed

    def __enter__(self) -> None:
        self._changed.acquire()

    def __exit__(self, *_error: object) -> None:
        self._changed.notify_all()
        self._changed.release()


class Bench:
    """A cluster, its client, and the job in it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster()
        certificates = Certificates(folder / "certificates")
        self.server = ApiServer(certificates, self.cluster.handle)
        authority = {"certificate-authority-data": encoded(certificates.authority)}
        path = kubeconfig(folder / "config", self.server.url, {"token": "canary"}, authority)
        isolate(monkeypatch, path)
        self.client = KubernetesClient(ClusterAccess.find())
        self.files = JobFiles(folder / "kept")

    def sources(self, nodes: int = 1) -> list[RankLog]:
        job = JobRef(JobIdentity(JOB_ID, TOKEN), {"namespace": "lab", "uid": "u"})
        logs = JobLogs(self.client, self.files, job)
        return [RankLog(logs, rank) for rank in range(nodes)]

    def read(self, nodes: int = 1, **keywords: Any) -> list[str]:
        return list(LogStream(self.sources(nodes), **keywords))

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.close()


def follow(source: RankLog, position: str = "", tail: int | None = None) -> Iterator[str]:
    """Lines of a source, opened again where its connection breaks, as `LogStream` does."""
    while True:
        reader = source.open(position, tail=tail, follow=True)
        try:
            for found in reader:
                for one in found.lines:
                    position = one.cursor
                    yield one.text
                position, tail = found.cursor, None
        except BackendUnreachableError:
            continue
        finally:
            reader.close()
        return


def texts(count: int) -> list[str]:
    return [f"line {n}" for n in range(count)]


class TestRequests:
    def test_following_takes_two_requests_and_none_for_a_line(self, bench: Bench) -> None:
        """48 requests a second, when each line was asked for."""
        name = bench.cluster.begin()
        lines = follow(bench.sources()[0])
        for n in range(300):
            bench.cluster.write(name, line(n))
            assert next(lines) == f"line {n}"
        assert len(bench.client.calls) == 2

    def test_a_tail_takes_one_more(self, bench: Bench) -> None:
        name = bench.cluster.begin()
        bench.cluster.write(name, *map(line, range(500)))
        lines = follow(bench.sources()[0], tail=2)
        assert [next(lines), next(lines)] == ["line 498", "line 499"]
        bench.cluster.write(name, line(500))
        assert next(lines) == "line 500"
        assert len(bench.client.calls) == 3

    def test_ranks_share_the_list_of_pods(self, bench: Bench) -> None:
        names = [bench.cluster.begin(f"{NAME}-{rank}-x", rank) for rank in range(4)]
        for name in names:
            bench.cluster.write(name, line(0))
        stream = LogStream(bench.sources(4), has_ended=lambda: False)
        found = sorted(next(stream) for _ in names)
        stream.close()
        assert found == [f"[rank {rank}] line 0" for rank in range(4)]
        assert len(bench.client.calls) == 1 + 4

    def test_a_finished_rank_costs_nothing_while_others_run(self, bench: Bench) -> None:
        first = bench.cluster.begin(f"{NAME}-0-x", 0)
        bench.cluster.begin(f"{NAME}-1-x", 1)
        bench.cluster.write(first, line(0))
        bench.cluster.end(first)
        source = bench.sources(2)[0]
        reader = source.open("", tail=None, follow=True)
        position = [found.cursor for found in reader][-1]
        again = source.open(position, tail=None, follow=True)
        waiting = threading.Thread(target=lambda: list(again))
        waiting.start()
        eventually(lambda: any("watch" in target for target in bench.server.targets()))
        assert waiting.is_alive()
        again.close()
        waiting.join(10)
        assert not waiting.is_alive()
        assert sum("/log" in target for target in bench.server.targets()) == 1


class TestEveryLineOnce:
    @pytest.mark.parametrize("closes", [False, True], ids=["chunked", "Connection: close"])
    @pytest.mark.parametrize("seed", range(5))
    def test_over_connections_that_end_anyhow(
        self, bench: Bench, seed: int, *, closes: bool
    ) -> None:
        dice = random.Random(seed)
        bench.cluster.closes = closes
        bench.cluster.may_watch = False
        bench.cluster.cut = lambda: dice.choice(["", "", "", "", "", "broken", "clean"])
        name = bench.cluster.begin()

        def work() -> None:
            for n in range(120):
                bench.cluster.write(name, line(n))
            bench.cluster.write(name, f"{stamp(120)} no end".encode())
            bench.cluster.end(name)

        writer = threading.Thread(target=work)
        writer.start()
        source, found, position = bench.sources()[0], [], ""
        while len(found) < 121:
            reader = source.open(position, tail=None, follow=True)
            try:
                for some in reader:
                    found += [one.text for one in some.lines]
                    position = some.cursor
            except BackendUnreachableError:
                pass
            reader.close()
        writer.join()
        assert found == [*texts(120), "no end"]

    def test_over_a_rotation(self, bench: Bench) -> None:
        """The node keeps the newest file only; what is left of the second is not repeated."""
        name = bench.cluster.begin()
        bench.cluster.write(name, *map(line, range(7)))
        lines = follow(bench.sources()[0])
        assert [next(lines) for _ in range(7)] == texts(7)
        del bench.cluster.logs[name][:6]  # of the second of lines 4 to 7, line 6 is left
        bench.server.hang_up()
        bench.cluster.write(name, line(7), line(8))
        assert [next(lines), next(lines)] == ["line 7", "line 8"]

    def test_of_a_pod_and_the_one_that_replaces_it(self, bench: Bench) -> None:
        first = bench.cluster.begin(f"{NAME}-0-a", 0)
        lines = follow(bench.sources()[0])
        bench.cluster.write(first, line(0), f"{stamp(1)} no end".encode())
        assert next(lines) == "line 0"
        second = bench.cluster.begin(f"{NAME}-0-b", 0)
        bench.cluster.write(second, line(2))
        bench.cluster.end(first, 1)
        bench.cluster.end(second)
        assert list(lines) == ["no end", "line 2"]
        assert bench.read() == ["line 0", "no end", "line 2"]
        assert bench.read(tail=2) == ["no end", "line 2"]

    def test_of_a_pod_that_replaces_a_removed_one(self, bench: Bench) -> None:
        first = bench.cluster.begin(f"{NAME}-0-a", 0)
        bench.cluster.write(first, line(0))
        reader = bench.sources()[0].open("", tail=None, follow=True)
        position = next(reader).cursor
        reader.close()
        bench.cluster.remove(first)
        second = bench.cluster.begin(f"{NAME}-0-b", 0)
        bench.cluster.pods[second]["metadata"]["creationTimestamp"] = stamp(40)
        bench.cluster.write(second, line(50))
        bench.cluster.end(second)
        assert list(follow(bench.sources()[0], position)) == ["line 50"]

    def test_from_any_cursor(self, bench: Bench) -> None:
        name = bench.cluster.begin()
        bench.cluster.write(name, *map(line, range(30)))
        bench.cluster.end(name)
        for count in range(1, 30):
            stream = LogStream(bench.sources())
            head = [next(stream) for _ in range(count)]
            assert head + bench.read(cursor=stream.cursor) == texts(30)

    @pytest.mark.parametrize("tail", [0, 1, 3, 99, 400, 1000])
    def test_from_the_start_of_a_tail(self, bench: Bench, tail: int) -> None:
        """Its position is exact also where more lines were written in a second than are asked
        for at first."""
        name = bench.cluster.begin()
        bench.cluster.write(
            name, *(f"2026-04-20T09:00:00.{n:09}Z line {n}\n".encode() for n in range(400))
        )
        reader = bench.sources()[0].open("", tail=tail, follow=True)
        position = next(reader).cursor
        reader.close()
        bench.cluster.end(name)
        expected = texts(400)[max(0, 400 - tail) :]
        assert bench.read(cursor=position) == expected
        assert bench.read(tail=tail) == expected


class TestWaiting:
    def test_for_a_pod_that_has_not_begun(self, bench: Bench) -> None:
        lines = follow(bench.sources()[0])
        found: list[str] = []
        reading = threading.Thread(target=lambda: found.append(next(lines)))
        reading.start()
        eventually(lambda: any("watch" in target for target in bench.server.targets()))
        name = bench.cluster.begin()
        bench.cluster.write(name, line(0))
        reading.join(10)
        assert found == ["line 0"]
        assert len(bench.client.calls) == 4

    def test_without_the_right_to_watch_the_source_ends(self, bench: Bench) -> None:
        """It is opened again a second later."""
        bench.cluster.may_watch = False
        assert list(bench.sources()[0].open("", tail=None, follow=True)) == []

    @pytest.mark.parametrize("has_begun", [True, False])
    def test_ends_at_once_when_it_is_closed(self, bench: Bench, *, has_begun: bool) -> None:
        if has_begun:
            bench.cluster.begin()
        reader = bench.sources()[0].open("", tail=None, follow=True)
        reading = threading.Thread(target=lambda: list(reader))
        reading.start()
        part = "/log" if has_begun else "watch"
        eventually(lambda: any(part in target for target in bench.server.targets()))
        reader.close()
        reading.join(10)
        assert not reading.is_alive()

    def test_ends_with_the_pod(self, bench: Bench) -> None:
        name = bench.cluster.begin()
        lines = follow(bench.sources()[0])
        bench.cluster.write(name, line(0))
        assert next(lines) == "line 0"
        bench.cluster.remove(name)
        assert list(lines) == []


def test_the_right_to_read_logs_is_missed_aloud(bench: Bench) -> None:
    def refuse(request: Request, connection: ssl.SSLSocket) -> None:
        if "/log" in request.target:
            connection.sendall(failure(403, "Forbidden", "pods/log: no"))
        else:
            bench.cluster.handle(request, connection)

    bench.cluster.begin()
    bench.server.handler = refuse
    with pytest.raises(PlatformError, match="pods/log: no"):
        next(LogStream(bench.sources(), has_ended=lambda: False))
