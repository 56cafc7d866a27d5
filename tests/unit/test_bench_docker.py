"""The Docker platform's targets are judged by what was measured, and by nothing else."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, UnixStreamServer

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `bench`

from bench import docker_cases
from bench.docker_cases import CALLS, FIRST_LINE, GROWN, JOBS
from bench.docker_targets import judge_docker
from bench.harness import Case, Contender, Measurement, Result, Sample


def never() -> Sample:
    raise AssertionError("nothing is measured here")


def took(seconds: float, *, peer: str = "", **facts: float) -> Measurement:
    named = {name.replace("_", " "): value for name, value in facts.items()}
    return Measurement(Contender("x", never, peer=peer), [Sample(seconds, named)])


def judged(key: str, *measurements: Measurement, floor: bool = False) -> dict[str, bool | None]:
    first = measurements[0].contender if floor else None
    others = [one.contender for one in measurements[1 if floor else 0 :]]
    result = Result(key, Case("", "", others, floor=first), measurements, 0.0)
    return {verdict.target: verdict.met for verdict in judge_docker({key: result})}


@pytest.mark.parametrize(("ours", "met"), [(1.14, True), (1.16, False)])
def test_a_start_beside_docker_py_used_bare(ours: float, met: bool) -> None:
    [found] = judged("docker_start", took(1.0), took(ours), floor=True).values()
    assert found is met


@pytest.mark.parametrize(
    ("calls", "theirs", "expected"),
    [(1, 51, [True, True]), (2, 51, [False, True]), (1, 49, [True, False])],
)
def test_a_sweep(calls: int, theirs: float, expected: list[bool]) -> None:
    ours = Measurement(Contender("x", never), [Sample(1.0, {CALLS: calls, JOBS: 1000})])
    reference = took(theirs, peer="reference", jobs=1000)
    assert list(judged("docker_sweep", ours, reference).values()) == expected
    assert list(judged("docker_sweep", ours).values()) == [expected[0], None]


@pytest.mark.parametrize(
    ("first", "grown", "expected"),
    [(0.199, 15.9, [True, True]), (0.201, 15.9, [False, True]), (0.199, 16.1, [True, False])],
)
def test_a_log(first: float, grown: float, expected: list[bool]) -> None:
    """The first line within 200 ms, and memory that does not grow with the log."""
    ours = Measurement(Contender("x", never), [Sample(9.0, {FIRST_LINE: first, GROWN: grown})])
    found = judged("docker_log", took(8.0), ours, floor=True)
    assert list(found.values()) == expected
    assert any("200 ms" in target for target in found)


def test_memory_that_was_needed_before_hides_nothing() -> None:
    earlier = bytearray(64 << 20)
    del earlier
    docker_cases._forget_peak()
    before = docker_cases._peak_kib()
    now = bytearray(32 << 20)
    assert docker_cases._peak_kib() - before > 31 << 10
    del now


def test_the_floor_takes_everything_to_the_end(tmp_path: Path) -> None:
    sent = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1_000_000)
    asked = []

    class Daemon(StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline().decode())
            self.wfile.write(sent)

    with UnixStreamServer(str(tmp_path / "d.sock"), Daemon) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        received = docker_cases._discard_log(f"unix://{tmp_path}/d.sock", "tao-job-x")
        serving.join()
    assert received == len(sent)
    assert asked[0].startswith("GET /containers/tao-job-x/logs?follow=true&")
