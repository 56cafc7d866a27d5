"""Answers that are read as they come: in pieces of any size, never more than was said."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import cast

import pytest

from tao_sdk.platforms.remote.framing import Call
from tao_sdk.platforms.remote.results import ProgramRunner, RemoteResults
from tao_sdk.platforms.remote.streams import AnswerStream, CutOffError, started
from tao_sdk.platforms.slurm.client import call
from tao_sdk.results.parts import Parts
from tao_sdk.results.sources import Entry, Kind


@pytest.fixture
def sent() -> Call:
    return call(("paths", {}))


def answer_of(sent: Call, *sections: bytes, noise: bytes = b"") -> bytes:
    marked = (sent.mark + section for section in (b"begin\n", *sections, b"end-of-answer\n"))
    return noise + b"".join(marked)


def stream_of(sent: Call, data: bytes, pieces: int = 1 << 20) -> AnswerStream:
    file = io.BytesIO(data)
    return AnswerStream(sent, lambda: file.read(pieces))


def content(stream: AnswerStream, limit: int = 1 << 20) -> bytes:
    found = b""
    while block := stream.read(limit):
        assert len(block) <= limit
        found += block
    return found


def read_all(stream: AnswerStream) -> None:
    while stream.next_section() is not None:
        content(stream)


def test_no_more_of_a_large_file_is_written_than_it_has(sent: Call, tmp_path: Path) -> None:
    entry = Entry("model.pth", Kind.FILE, 1000)
    endless = chain([answer_of(sent)[:-20], sent.mark + b"tail\n"], repeat(b"x" * 300))

    class Endless:
        """A machine that sends the tail of a file for ever."""

        @contextlib.contextmanager
        def stream(self, *_: object) -> Iterator[AnswerStream]:
            stream = AnswerStream(sent, lambda: next(endless))
            assert stream.next_section() == ("begin", "")
            yield stream

    results = RemoteResults(cast("ProgramRunner", Endless()), "lustre:///r", "/r", "user", "there")
    parts, counted = Parts(tmp_path, results.address), list[int]()
    assert results._bring_large(entry, parts, counted.append) == "more of it was sent than it has"
    assert max(accumulate(counted)) <= entry.size
    assert sum(counted) == 0
    assert parts.size_of(entry) == 0


@pytest.mark.parametrize("pieces", [1, 2, 7, 19, 20, 64, 100_000])
@pytest.mark.parametrize("limit", [1, 5, 100_000])
def test_sections_in_pieces_of_any_size(sent: Call, pieces: int, limit: int) -> None:
    tricky = b"\n@" + sent.nonce.encode()[:-1] + b"! \n\n@\n"
    said = answer_of(
        sent, b"one with words\n" + tricky, b"empty\n", b"two\n\n", noise=b"hello\n@ x"
    )
    stream = stream_of(sent, said, pieces)
    assert stream.next_section() == ("begin", "")
    assert stream.next_section() == ("one", "with words")
    assert content(stream, limit) == tricky
    assert stream.next_section() == ("empty", "")
    assert content(stream, limit) == b""
    assert stream.next_section() == ("two", "")
    assert content(stream, limit) == b"\n"
    assert stream.next_section() is None


def test_what_is_not_read_is_passed_over(sent: Call) -> None:
    stream = stream_of(sent, answer_of(sent, b"one\n" + b"x" * 1000, b"two\ny"), pieces=10)
    assert [stream.next_section() for _ in range(2)][1] == ("one", "")
    assert stream.read(3) == b"xxx"
    assert stream.next_section() == ("two", "")
    assert content(stream) == b"y"


def test_every_way_to_cut_an_answer_is_noticed(sent: Call) -> None:
    said = answer_of(sent, b"one\nabc")
    for size in range(len(said)):
        with pytest.raises(CutOffError):
            read_all(stream_of(sent, said[:size]))
    read_all(stream_of(sent, said))


def test_silence_is_not_waited_out() -> None:
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    with started(words, b"", idle=0.1) as running, pytest.raises(CutOffError, match=r"0\.1 s"):
        running.read()
    assert running.stop() < 0, "it has been ended"


def test_what_it_reads_and_complains_of() -> None:
    program = "import sys; sys.stderr.write('oh'); sys.stdout.write(sys.stdin.read()); sys.exit(3)"
    with started([sys.executable, "-c", program], b"given", idle=60) as running:
        assert running.read() == b"given"
        assert running.read() == b""
        assert running.stop() == 3
        assert running.complaint() == "oh"
