"""Logs on a real engine: rotated away, interleaved, long; and what is left open afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from common_lab import isolated
from docker_lab import DockerLab

from lab.docker import private_engine
from lab.follower import Follower
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually

LONG = 90


@pytest.fixture
def rotating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerLab]:
    """An engine that keeps a few hundred lines of a log."""
    rotation = ("--log-opt", "max-size=20k", "--log-opt", "max-file=2")
    with (
        private_engine(*rotation) as engine,
        isolated(monkeypatch, DockerLab(tmp_path, engine)) as lab,
    ):
        yield lab


@pytest.mark.timeout(300)
def test_a_cursor_is_good_whatever_was_rotated_away(rotating: DockerLab) -> None:
    lab = rotating
    steps = ((1, 600), (601, 1200), (1201, 1300))
    step = "while [ ! -e /starts/{0} ]; do sleep 0.05; done; seq {0} {1}"
    script = "; ".join(step.format(*numbers) for numbers in steps)
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job(f"{script}; sleep 600"))
    cursor, kept = "", []
    for first, last in steps:
        (lab.starts / str(first)).touch()
        eventually(lambda end=str(last): end in sdk.get_job_logs(job.id).split(), LONG)
        kept = lab.engine.docker("logs", f"tao-job-{job.id}").split()
        stream = lab.sdk().stream_logs(job.id, follow=False, cursor=cursor)
        assert list(stream) == [line for line in kept if int(line) >= first]
        cursor = stream.cursor
    assert int(kept[0]) > 600, "there was rotation"
    assert len(kept) > 100, "and some of what was known was still there"
    assert sdk.get_job_logs(job.id, tail=3).split() == kept[-3:]


def set_back(lab: DockerLab, job: Job, first: int, by: timedelta) -> None:
    """Make the log what it is on a daemon whose clock is set back before that line."""
    words = ("inspect", "-f", "{{.LogPath}}", f"tao-job-{job.id}")
    log = Path(lab.engine.docker(*words).strip())
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries[first - 1 :]:
        second, dot, fraction = entry["time"].partition(".")
        entry["time"] = f"{(datetime.fromisoformat(second) - by).isoformat()}{dot}{fraction}"
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("lines", [50, 9000], ids=["short", "long"])
def test_a_clock_that_is_set_back_costs_no_line(lab: DockerLab, lines: int, follow: bool) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job(f"seq {lines}"))
    assert job.wait(timeout=LONG).status == "Complete"
    whole = [str(number) for number in range(1, lines + 1)]
    turn = lines // 3
    cursors = {}
    for amount in (timedelta(seconds=5), timedelta(hours=1)):
        set_back(lab, job, turn, amount)
        stream = sdk.stream_logs(job.id, follow=follow)
        for number, line in enumerate(stream, start=1):
            assert line == whole[number - 1]
            cursors[number] = stream.cursor
        for number in (1, turn - 1, turn, turn + 1, lines - 1, lines):
            rest = lab.sdk().stream_logs(job.id, follow=follow, cursor=cursors[number])
            assert list(rest) == whole[number:]
    assert sdk.get_job_logs(job.id, tail=3).split() == whole[-3:]


def test_a_follower_goes_on_after_the_clock_was_set_back(lab: DockerLab) -> None:
    """Its connection is lost, and all that was written since looks older than what it has read."""
    sdk = lab.sdk()
    script = "seq 20; while [ ! -e /starts/go ]; do sleep 0.05; done; echo new; sleep 600"
    job = sdk.create_job(**lab.job(script))
    whole = [str(number) for number in range(1, 21)]
    eventually(lambda: sdk.get_job_logs(job.id).split() == whole)
    set_back(lab, job, 1, timedelta(hours=-1))  # what is there is from before
    before = lab.sdk().stream_logs(job.id, follow=False)
    assert list(before) == whole
    follower = lab.sdk().stream_logs(job.id, cursor=before.cursor)
    (lab.starts / "go").touch()
    assert next(follower) == "new"
    follower.close()


def test_closed_by_another_thread(lab: DockerLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("echo up; sleep 600"))
    stream = sdk.stream_logs(job.id)
    assert next(stream) == "up"
    follower = Follower(stream)
    stream.close()
    assert follower.all(LONG) == []
    assert list(stream) == []


def test_output_and_errors_as_the_daemon_has_them(lab: DockerLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(
        **lab.job(
            "for i in $(seq 500); do echo $i; echo e$i >&2; [ $((i % 50)) != 0 ] || sleep 0.1; done"
        )
    )
    followed = list(job.logs(follow=True))
    assert [line for line in followed if line[0] != "e"] == [str(i) for i in range(1, 501)]
    assert [line for line in followed if line[0] == "e"] == [f"e{i}" for i in range(1, 501)]
    stream = sdk.stream_logs(job.id)
    for number, line in enumerate(stream, start=1):
        assert line == followed[number - 1]
        if number % 97 == 0:
            rest = lab.sdk().stream_logs(job.id, cursor=stream.cursor)
            assert list(rest) == followed[number:]


def test_the_last_lines_are_lines_however_long(lab: DockerLab) -> None:
    """The engine cuts at 16 KiB, and would count the pieces; here also in the middle of an é."""
    sdk = lab.sdk()
    long = "head -c 20001 /dev/zero | tr '\\0' x | sed 's/x/é/g'"
    job = sdk.create_job(**lab.job(f"echo 1; {long}; echo; echo 3; {long}; printf '\\nend'"))
    assert job.wait(timeout=LONG).status == "Complete"
    expected = ["1", "é" * 20001, "3", "é" * 20001, "end"]
    assert sdk.get_job_logs(job.id).splitlines() == expected
    for count in range(6):
        assert sdk.get_job_logs(job.id, tail=count).splitlines() == expected[5 - count :]


def test_several_followers_of_one_job_have_a_stream_each(lab: DockerLab) -> None:
    """Two of them used to close each other's at every line."""
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("for i in $(seq 40); do echo $i; sleep 0.05; done"))
    transport = sdk.backend.transport
    before = len(transport.calls)
    followers = [Follower(job.logs(follow=True)) for _ in range(3)]
    for follower in followers:
        assert follower.all(LONG) == [str(i) for i in range(1, 41)]
    reads = [call for call in tuple(transport.calls)[before:] if call.endswith("/logs")]
    assert len(reads) < 20, reads


def test_nothing_is_left_open_by_a_follower(lab: DockerLab) -> None:
    found = lab.run_python_json(
        "import json, os, sys, threading\n"
        "def is_socket(number):\n"
        "    try: return os.readlink(f'/proc/self/fd/{number}').startswith('socket:')\n"
        "    except OSError: return False\n"
        "def left():\n"
        "    sockets = sum(map(is_socket, os.listdir('/proc/self/fd')))\n"
        "    return sockets, threading.active_count()\n"
        "job = sdk.create_job(**json.loads(sys.argv[1]))\n"
        "job.refresh()\n"
        "found = {'before': left()}\n"
        "stream = sdk.stream_logs(job.id)\n"
        "next(stream)\n"
        "found['following'] = left()\n"
        "stream.close()\n"
        "assert list(stream) == []\n"
        "found['closed'] = left()\n"
        "for _ in range(6):\n"
        "    other = sdk.stream_logs(job.id, cursor=stream.cursor)\n"
        "    assert next(other) == 'also up'\n"
        "    del other\n"
        "found['followers dropped'] = left()\n"
        "stream = sdk.stream_logs(job.id)\n"
        "next(stream)\n"
        "sdk.close()\n"
        "found['SDK closed'] = left()\n"
        "del stream\n"
        "stream = sdk.stream_logs(job.id)\n"
        "next(stream)\n"
        "del job, stream, sdk\n"
        "found['SDK dropped'] = left()\n"
        "print(json.dumps(found))",
        json.dumps(lab.job("echo up; echo also up; sleep 600")),
    )
    sockets, threads = found["before"]
    assert sockets, "the connection on which the job was made is kept for the next request"
    assert found["following"] == [sockets + 1, threads + 2]
    assert found["closed"] == [sockets, threads]
    # A finished read may leave its connection for the next request, beside the one of before.
    assert found["followers dropped"] in ([sockets, threads], [sockets + 1, threads])
    assert found["SDK closed"] == found["SDK dropped"] == [0, threads]
