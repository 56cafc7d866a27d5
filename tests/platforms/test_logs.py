"""A log of several sources as one iterator: prefixes, cursors, following, closing."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.follower import Follower
from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms import logs
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.common.log_files import read_chunk
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.logs import LogStream

LONG = 30


def file_log(path: Path, rank: int = 0) -> PolledLog:
    return PolledLog(lambda **wanted: read_chunk(path, **wanted), rank=rank)


@pytest.fixture
def ranks(tmp_path: Path) -> list[PolledLog]:
    """Three ranks with ten lines each."""
    sources = []
    for rank in range(3):
        path = tmp_path / f"rank-{rank}.log"
        path.write_text("".join(f"r{rank} l{n}\n" for n in range(10)))
        sources.append(file_log(path, rank))
    return sources


class Dictated:
    """A source whose reader does what the test says, and blocks in between."""

    rank = 0

    def __init__(self) -> None:
        self.ends_with_job = True
        self.opened: list[DictatedReader] = []

    def open(self, position: str, *, tail: int | None, follow: bool) -> DictatedReader:
        del tail
        reader = DictatedReader(int(position or 0), follow=follow)
        self.opened.append(reader)
        return reader


class DictatedReader:
    """Line n has position n. Follows until line 3, then waits for a close."""

    def __init__(self, position: int, *, follow: bool) -> None:
        self._position = position
        self._follow = follow
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[LogChunk]:
        return self

    def __next__(self) -> LogChunk:
        if self._position == 3:
            if self._follow:
                self.closed.wait(LONG)
            raise StopIteration
        self._position += 1
        line = LogLine(f"line {self._position}", str(self._position))
        return LogChunk((line,), more=True, cursor=line.cursor)

    def close(self) -> None:
        self.closed.set()


class TestMerging:
    def test_ranks_are_named_and_come_in_order(self, ranks: list[PolledLog]) -> None:
        lines = list(LogStream(ranks))
        assert lines[:2] == ["[rank 0] r0 l0", "[rank 0] r0 l1"]
        assert len(lines) == 30
        assert lines[-1] == "[rank 2] r2 l9"

    def test_one_source_has_no_prefix(self, ranks: list[PolledLog]) -> None:
        assert next(LogStream(ranks[1:2])) == "r1 l0"

    def test_tail_counts_the_lines_of_all_ranks(self, ranks: list[PolledLog]) -> None:
        """Part 2 of the lessons: a tail of N lines was up to 2N lines."""
        assert list(LogStream(ranks, tail=4)) == [
            "[rank 0] r0 l8",
            "[rank 0] r0 l9",
            "[rank 1] r1 l9",
            "[rank 2] r2 l9",
        ]

    @pytest.mark.parametrize("tail", [None, 0, 4, 20])
    def test_every_cursor_leads_on(self, ranks: list[PolledLog], tail: int | None) -> None:
        """Also those from before another rank was read for the first time."""
        whole = list(LogStream(ranks, tail=tail))
        stream = LogStream(ranks, tail=tail)
        for number, _ in enumerate(stream, start=1):
            assert list(LogStream(ranks, cursor=stream.cursor)) == whole[number:]

    def test_tail_of_none_still_has_a_cursor(self, ranks: list[PolledLog]) -> None:
        stream = LogStream(ranks[:1], tail=0)
        assert list(stream) == []
        assert stream.cursor == str(len("r0 l0\n") * 10)

    def test_wrong_cursors_and_tails_are_refused_at_once(self, ranks: list[PolledLog]) -> None:
        with pytest.raises(ValidationError, match="cursor '1' does not belong"):
            LogStream(ranks, cursor="1")
        with pytest.raises(ValidationError, match="tail: -1"):
            LogStream(ranks, tail=-1)


class TestFollowing:
    def test_all_ranks_are_followed_until_the_end(self, tmp_path: Path) -> None:
        paths = [tmp_path / "0", tmp_path / "1"]
        over = threading.Event()
        stream = LogStream(
            [file_log(path, rank) for rank, path in enumerate(paths)], has_ended=over.is_set
        )
        follower = Follower(stream)
        paths[1].write_text("one\nunfinish")
        eventually(lambda: follower.lines == ["[rank 1] one"])
        paths[0].write_text("zero\n")
        eventually(lambda: "[rank 0] zero" in follower.lines)
        with paths[1].open("a") as log:
            log.write("ed")
        over.set()
        assert follower.all(LONG)[2:] == ["[rank 1] unfinished"]

    def test_a_source_that_cannot_be_reached_is_read_on_later(self) -> None:
        reads = []

        def read(*, cursor: str, **_wanted: object) -> LogChunk:
            reads.append(cursor)
            if len(reads) == 2:
                raise BackendUnreachableError("away")
            number = str(len(reads))
            return LogChunk((LogLine(number, number),), more=False, cursor=number)

        stream = LogStream([PolledLog(read)], has_ended=lambda: False)
        assert [next(stream), next(stream)] == ["1", "3"]
        stream.close()
        assert reads[:3] == ["", "1", "1"]

    def test_unreachable_after_the_end_is_an_error(self) -> None:
        def read(**_wanted: object) -> LogChunk:
            raise BackendUnreachableError("away")

        with pytest.raises(BackendUnreachableError, match="away"):
            list(LogStream([PolledLog(read)], has_ended=lambda: True))

    def test_other_errors_reach_the_reader(self) -> None:
        def read(**_wanted: object) -> LogChunk:
            raise ValidationError("no such cursor")

        with pytest.raises(ValidationError, match="no such cursor"):
            next(LogStream([PolledLog(read)], has_ended=lambda: False))

    def test_an_interrupted_wait_can_be_gone_on_with(self) -> None:
        """Ctrl-C comes while it is asked whether the job has ended."""
        answers: list[BaseException | bool] = [KeyboardInterrupt(), False]
        path_lines = ["one"]

        def has_ended() -> bool:
            answer = answers.pop(0) if answers else False
            if isinstance(answer, BaseException):
                raise answer
            path_lines.append("two")
            return False

        def read(*, cursor: str, **_wanted: object) -> LogChunk:
            number = int(cursor or 0)
            lines = tuple(
                LogLine(text, str(index))
                for index, text in enumerate(path_lines[number:], start=number + 1)
            )
            return LogChunk(lines, more=False, cursor=str(number + len(lines)))

        stream = LogStream([PolledLog(read)], has_ended=has_ended)
        assert next(stream) == "one"
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        assert next(stream) == "two"
        stream.close()

    def test_an_error_ends_it_and_leaves_no_thread(self) -> None:
        threads = threading.active_count()

        def fails() -> bool:
            raise ValidationError("cannot be asked")

        source = Dictated()
        source.ends_with_job = False
        stream = LogStream([source], has_ended=fails)
        with pytest.raises(ValidationError, match="cannot be asked"):
            list(stream)
        assert threading.active_count() == threads
        assert list(stream) == []

    def test_a_source_that_ends_again_and_again_is_not_asked_about_each_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A container that is not there yet: its log can be opened, and is over at once."""
        monkeypatch.setattr(logs, "_REOPEN_SECONDS", 0.01)
        monkeypatch.setattr(logs, "_SAFETY_POLL_SECONDS", 0.4)
        opened, asked = [], []

        class Empty(Dictated):
            def open(self, position: str, *, tail: int | None, follow: bool) -> DictatedReader:
                opened.append(follow)
                del position, tail, follow
                return DictatedReader(3, follow=False)

        def has_ended() -> bool:
            asked.append(None)
            return len(opened) > 60

        assert list(LogStream([Empty()], has_ended=has_ended)) == []
        assert len(asked) < len(opened) / 3

    def test_a_caller_that_does_not_read_stops_the_reading_ahead(self) -> None:
        reads = []

        def read(**_wanted: object) -> LogChunk:
            reads.append(None)
            number = str(len(reads))
            return LogChunk((LogLine(number, number),), more=True, cursor=number)

        stream = LogStream([PolledLog(read)], has_ended=lambda: False)
        assert next(stream) == "1"
        eventually(lambda: len(reads) >= 5)
        assert [next(stream) for _ in range(50)] == [str(n) for n in range(2, 52)]
        assert len(reads) <= 51 + 6
        stream.close()

    def test_a_followed_tail_of_several_ranks_outlasts_an_outage(
        self, ranks: list[PolledLog], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logs, "_REOPEN_SECONDS", 0.01)
        outages = [1, 2]

        def read(**wanted: Any) -> LogChunk:
            if outages:
                outages.pop()
                raise BackendUnreachableError("no answer")
            return ranks[0].read(**wanted)

        sources = [PolledLog(read), ranks[1]]
        stream = LogStream(sources, tail=2, has_ended=lambda: True)
        assert sorted(stream) == ["[rank 0] r0 l9", "[rank 1] r1 l9"]  # followed side by side
        outages.append(1)
        with pytest.raises(BackendUnreachableError):
            list(LogStream(sources, tail=2))


class TestClosing:
    def test_another_thread_ends_a_wait_for_lines(self) -> None:
        source = Dictated()
        stream = LogStream([source], has_ended=lambda: False)
        follower = Follower(stream)
        eventually(lambda: len(follower.lines) == 3)
        stream.close()
        assert follower.all(LONG) == ["line 1", "line 2", "line 3"]
        assert stream.cursor == "3"
        assert all(reader.closed.is_set() for reader in source.opened)

    def test_nothing_is_handed_out_after_it_was_closed(self) -> None:
        reading, go_on = threading.Event(), threading.Event()

        def read(**_wanted: object) -> LogChunk:
            reading.set()
            go_on.wait(LONG)
            return LogChunk((LogLine("late", "1"),), more=False, cursor="1")

        stream = LogStream([PolledLog(read)])
        follower = Follower(stream)
        assert reading.wait(LONG)
        stream.close()
        go_on.set()
        assert follower.all(LONG) == []

    def test_readers_that_hang_are_waited_for_together(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logs, "_CLOSING_SECONDS", 0.2)
        hang = threading.Event()
        asked = threading.Semaphore(0)

        def read(**_wanted: object) -> LogChunk:
            asked.release()
            hang.wait(LONG)
            return LogChunk((), more=False, cursor="")

        over = threading.Event()
        stream = LogStream([PolledLog(read)] * 20, has_ended=over.is_set)
        follower = Follower(stream)
        for _ in range(20):
            assert asked.acquire(timeout=LONG)
        began = time.monotonic()
        stream.close()
        assert time.monotonic() - began < 20 * 0.2
        hang.set()
        assert follower.all(LONG) == []

    def test_a_stream_that_is_dropped_closes_its_readers(self) -> None:
        source, others = Dictated(), set(threading.enumerate())
        stream = LogStream([source], has_ended=lambda: False)
        assert next(stream) == "line 1"
        readers = set(threading.enumerate()) - others
        assert readers
        del stream
        assert source.opened[0].closed.is_set()
        for reader in readers:
            reader.join(LONG)
            assert not reader.is_alive()

    def test_a_stream_is_not_kept_alive_by_its_threads(self) -> None:
        stream = LogStream([Dictated()], has_ended=lambda: False)
        next(stream)
        gone = weakref.ref(stream)
        del stream
        assert gone() is None


def test_after_a_fork_both_processes_read_the_rest() -> None:
    stream = LogStream([Dictated()], has_ended=lambda: True)
    assert next(stream) == "line 1"
    child = os.fork()
    if not child:
        signal.alarm(LONG)
        rest: list[str] = []
        try:
            rest = list(stream)
        finally:
            os._exit(0 if rest == ["line 2", "line 3"] else 1)
    assert list(stream) == ["line 2", "line 3"]
    assert os.waitpid(child, 0)[1] == 0
