"""The runner's voice: lines for people, and the progress lines that the SDK reads."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from tao_sdk.progress import ProgressReader
from tao_sdk.runner.report import Reporter, moment, public_uri, size_text


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tao_sdk.runner.report.time", SimpleNamespace(monotonic=clock))
    return clock


def progress_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    prefix = "tao-progress: "
    return [
        json.loads(line[len(prefix) :])
        for line in stream.getvalue().splitlines()
        if line.startswith(prefix)
    ]


def test_the_sdk_reads_what_the_runner_prints(clock: Clock) -> None:
    stream = io.StringIO()
    stage = Reporter(stream).stage(
        "staging", bytes_total=4 << 20, files_total=4, uri="s3://bucket/data"
    )
    reader = ProgressReader()
    for _ in range(2):
        clock.now += 1
        stage.add(1 << 20)
        stage.file_done()
    for line in stream.getvalue().splitlines():
        reader.feed(line, at=clock.now)
    seen = reader.progress
    assert (seen.stage, seen.fraction) == ("staging", 0.5)
    assert (seen.bytes_done, seen.bytes_total) == (2 << 20, 4 << 20)
    assert seen.files_total == 4
    assert seen.rate == pytest.approx((1 << 20) / 1e6, rel=0.05)
    clock.now += 1
    stage.add(2 << 20)
    stage.file_done()
    stage.file_done()
    stage.done()
    for line in stream.getvalue().splitlines():
        reader.feed(line, at=clock.now)
    assert (reader.progress.fraction, reader.progress.files_done) == (1.0, 4)


def test_a_line_at_the_start_and_the_end_and_one_a_second_between(clock: Clock) -> None:
    stream = io.StringIO()
    stage = Reporter(stream).stage("delivering", bytes_total=1000, files_total=1)
    for _ in range(100):  # ten a second, for ten seconds
        clock.now += 0.1
        stage.add(10)
    assert 10 <= len(progress_lines(stream)) <= 11
    stage.file_done()
    stage.done()
    first, last = progress_lines(stream)[0], progress_lines(stream)[-1]
    assert (first["bytes_done"], first["files_done"]) == (0, 0)
    assert (last["bytes_done"], last["files_done"]) == (1000, 1)


def test_the_rate_is_the_recent_one(clock: Clock) -> None:
    stream = io.StringIO()
    stage = Reporter(stream).stage("staging", bytes_total=10**9, files_total=1)
    for nbytes in [10**7] * 20 + [10**3] * 20:
        clock.now += 1
        stage.add(nbytes)
    assert progress_lines(stream)[20]["rate"] == 10**7
    assert progress_lines(stream)[-1]["rate"] == 10**3


def test_a_retry_takes_bytes_back_and_surprises_raise_the_total(clock: Clock) -> None:
    stream = io.StringIO()
    stage = Reporter(stream).stage("staging", bytes_total=100, files_total=1)
    stage.add(60)
    stage.add(-60)
    stage.expect(50, 1, "hf_model://org/name")
    stage.add(300)
    stage.done()
    last = progress_lines(stream)[-1]
    assert (last["bytes_done"], last["bytes_total"], last["files_total"]) == (300, 300, 2)
    assert last["uri"] == "hf_model://org/name"


def test_the_start_of_the_command_is_announced_without_numbers() -> None:
    stream = io.StringIO()
    Reporter(stream, attempt=3).stage("running")
    assert progress_lines(stream) == [{"stage": "running", "attempt": 3}]


def test_a_higher_attempt_begins_anew() -> None:
    reader = ProgressReader()
    for attempt in (1, 2):
        stream = io.StringIO()
        Reporter(stream, attempt=attempt).stage("running")
        reader.feed(stream.getvalue().strip())
        assert reader.progress.epoch is None
        reader.feed(f"Epoch {4 - attempt}/10 loss=0.5")
        assert reader.progress.epoch == 4 - attempt


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://host/a?X-Amz-Signature=secret&b=c", "https://host/a"),
        ("https://user:secret@host/a", "https://host/a"),
        ("https://secret@host/a", "https://host/a"),
        ("hf_model://org/name@revision", "hf_model://org/name@revision"),
    ],
)
def test_no_credential_is_shown(uri: str, shown: str) -> None:
    assert public_uri(uri) == shown
    stream = io.StringIO()
    stage = Reporter(stream).stage("staging", bytes_total=1, files_total=1, uri=uri)
    stage.expect(1, 1, uri)
    stage.done()
    assert {line["uri"] for line in progress_lines(stream)} == {shown}


def test_people_read_a_summary(clock: Clock) -> None:
    stream = io.StringIO()
    stage = Reporter(stream).stage("staging", bytes_total=64 << 20, files_total=1000)
    for _ in range(1000):
        stage.add((64 << 20) // 1000)
        stage.file_done()
    clock.now += 1.1
    stage.done()
    assert "tao-runner: staged 1,000 files, 64.0 MiB in 1.1 s (58 MiB/s)" in stream.getvalue()


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes_are_readable(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


def test_warnings_are_said_and_kept() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream)
    reporter.warn("two\nlines")
    assert stream.getvalue() == "tao-runner: warning: two lines\n"
    assert reporter.warnings == ["two\nlines"]


def test_many_threads_make_whole_lines_and_lose_no_byte() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream)
    stage = reporter.stage("staging", bytes_total=8000, files_total=8000)

    def move() -> None:
        for _ in range(1000):
            stage.add(1)
            stage.file_done()
            reporter.say("word")

    threads = [threading.Thread(target=move) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stage.done()
    assert progress_lines(stream)[-1]["bytes_done"] == 8000
    assert stream.getvalue().splitlines().count("tao-runner: word") == 8000


def test_a_log_that_nobody_reads_ends_no_job() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(write_end, "w")
    reporter = Reporter(stream)
    reporter.say("into the void")
    reporter.warn("still here")
    assert reporter.warnings == ["still here"]
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_moments_are_read_back() -> None:
    before = time.time()
    text = moment()
    read = datetime.fromisoformat(text.replace("Z", "+00:00"))
    assert read.tzinfo == timezone.utc
    assert before - 0.001 <= read.timestamp() <= time.time()
