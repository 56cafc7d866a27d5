"""Logs of jobs: one source for each worker, read from storage and followed by a stream.

Stored logs come in pages and may be some seconds behind. A stream starts with the worker's first
line; lines that were read are skipped by their number, and the last of them must be the one that
was read, or the stream is not used. A cursor leads from one to the other.
"""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef, LogChunk, LogLine
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.log_lines import (
    UNCOUNTED,
    Line,
    Position,
    parse_answer,
    read_lines,
    settled,
)
from tao_sdk.platforms.lepton.status import has_just_ended, rank_of
from tao_sdk.platforms.rest import RefusedError, Stream
from tao_sdk.result_record import RECORD_WORD, ResultRecord, first_failure, told_record

PAGE_LINES = 5000
_NS = 1_000_000_000
# Tolerated difference between the server's clock and that of the machine that planned the job.
_SKEW_SECONDS = 600
# How long to wait for the last lines of a job that has just ended.
_LAST_LINES_SECONDS = 5.0
_LAST_LINES_PAUSE = 0.25
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
# Longer logs are followed by polling, because a stream starts with the first line.
_MAX_SKIPPED_LINES = 50_000
_STREAM_SILENCE_SECONDS = 300.0
_STREAM_RETRY_SECONDS = 10.0


class _Page(NamedTuple):
    """Some kept lines, and the position at which they begin."""

    position: Position
    before: str | None
    """The line right before; None at the start, or if it is not known."""
    lines: list[Line]
    more: bool


class JobLogs:
    """Logs of the jobs of one workspace."""

    def __init__(self, client: LeptonClient) -> None:
        self.client = client
        self._records_of_failed: dict[str, list[ResultRecord]] = {}

    def source(self, job: JobRef, rank: int) -> WorkerLog:
        return WorkerLog(self, job, rank)

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        """The workers of a job; [] if the server has forgotten them."""
        path = naming.below(naming.JOBS, job.native["id"], "replicas")
        try:
            return self.client.get_list(path, job_query_mode=naming.EVERYWHERE)
        except RefusedError as error:
            if not error.missing:
                raise
            return []

    def worker(self, job: JobRef, rank: int) -> str:
        """The id of the worker of that rank; "" if it is not known."""
        found = {
            rank_of(replica, job.native["id"], position): naming.id_of(replica)
            for position, replica in enumerate(self.replicas(job))
        }
        return found.get(rank, "")

    def page(self, job: JobRef, worker: str, position: Position) -> _Page:
        """The kept lines behind a position."""
        start = position.time or _begin(job)
        before = None
        while True:
            lines = self._ask(job, worker, start, _end(), "forward", PAGE_LINES)
            full = len(lines) >= PAGE_LINES
            new = position.unread(lines)
            if position.time and len(new) < len(lines):
                before = lines[len(lines) - len(new) - 1].text
            if position.extra and len(new) < position.extra and not full:
                # The kept log is behind what came by the stream.
                return _Page(position, None, [], more=False)
            for line in new[: position.extra]:
                position, before, new = position.after(line), line.text, new[1:]
            if new or not full:
                return _Page(position, before, new, full)
            # If more lines have one time than fit into a page, the rest of them is lost.
            start = max(position.time, lines[-1].time + (position.time == lines[0].time))

    def tail(self, job: JobRef, worker: str, count: int) -> tuple[Position, list[Line]]:
        """The last lines, at least `count` if the log has them, and the position before them.

        Lines of the earliest time are left out if others may precede them, so that lines of one
        time are always counted from the first.
        """
        begin, end = _begin(job), _end()
        found: list[Line] = []
        while True:
            wanted = min(PAGE_LINES, count - len(found) + 200)
            lines = self._ask(job, worker, begin, end, "backward", wanted)
            if len(lines) < wanted:
                return Position(), lines + found
            if lines[0].time != lines[-1].time:
                lines = [line for line in lines if line.time != lines[0].time]
            found = lines + found
            if len(found) > count:
                return UNCOUNTED._replace(time=found[0].time), found
            end = lines[0].time  # the end of a range is not part of it

    def last_lines(self, job: JobRef, worker: str, count: int) -> list[str]:
        """The last visible lines, oldest first."""
        before, lines = self.tail(job, worker, count)
        shown, _ = read_lines(lines, before, job.job_id)
        return [line.text for line in shown[-count:]]

    def whole(self, job: JobRef) -> Iterator[str]:
        """All lines of all workers."""
        position, more = Position(), True
        while more:
            _, _, lines, more = self.page(job, "", position)
            for line in lines:
                position = position.after(line)
                yield line.text

    def records(self, job: JobRef) -> list[ResultRecord]:
        """How each rank ended in its last attempt, by rank."""
        lines = self._ask(job, "", _begin(job), _end(), "backward", PAGE_LINES, q=RECORD_WORD)
        found: dict[int, ResultRecord] = {}
        for line in lines:
            record = told_record(line.text, job.job_id)
            if record is not None:
                found[record.rank] = record
        return [found[rank] for rank in sorted(found)]

    def records_of_failed(self, job: JobRef, deadline: float) -> list[ResultRecord]:
        """Of a failed job. Waits until `deadline` (monotonic clock) for that of a failed rank."""
        kept = self._records_of_failed
        while job.job_id not in kept:
            found = self.records(job)
            if first_failure(found) is not None:
                kept[job.job_id] = found
            elif time.monotonic() >= deadline:
                return found
            else:
                time.sleep(_LAST_LINES_PAUSE)
        return kept[job.job_id]

    def _ask(
        self,
        job: JobRef,
        worker: str,
        start: int,
        end: int,
        direction: str,
        limit: int,
        **query: str,
    ) -> list[Line]:
        asked: dict[str, str | int] = {
            "job": str(job.native["id"]),
            "start": start,
            "end": max(end, start + 1),
            "direction": direction,
            "limit": limit,
            "timestamps": "true",
            "job_query_mode": naming.EVERYWHERE,
            **query,
        }
        if worker:
            asked["replica"] = worker
        answer = self.client.get(naming.LOGS, **asked)
        try:
            return parse_answer(answer, backward=direction == "backward")
        except ValueError as error:
            raise self.client.unreachable(f"GET {naming.LOGS}: {error}") from error


class WorkerLog:
    """The log of one worker, as a source of its job's log."""

    ends_with_job = True

    def __init__(self, logs: JobLogs, job: JobRef, rank: int) -> None:
        self._logs = logs
        self._job = job
        self.rank = rank

    def open(self, position: str, *, tail: int | None, follow: bool) -> WorkerLogReader:
        return WorkerLogReader(self._logs, self._job, self.rank, position, tail=tail, follow=follow)


class WorkerLogReader(Iterator[LogChunk]):
    """One read of a worker's log. Any thread may close it."""

    def __init__(
        self,
        logs: JobLogs,
        job: JobRef,
        rank: int,
        position: str,
        *,
        tail: int | None,
        follow: bool,
    ) -> None:
        self._logs = logs
        self._job = job
        self._rank = rank
        self._worker = ""
        self._position = Position.parse(position)
        self._tail = None if position else tail
        self._follow = follow
        self._last: str | None = None
        """The line right before the position, if it is known."""
        self._at_end = not job.native["id"]  # it was never submitted
        self._live: _LiveLines | None = None
        self._next_stream = 0.0
        self._pause = 0.0
        self._closed = threading.Event()
        self._reading = threading.Lock()

    def __next__(self) -> LogChunk:
        with self._reading:
            try:
                with self._logs.client.reaching():
                    chunk = self._next_chunk()
            except BackendUnreachableError:
                self._close_stream()
                if not self._closed.is_set():
                    raise
                chunk = None
            if chunk is None or self._closed.is_set():
                self._close_stream()
                raise StopIteration
            return chunk

    def close(self) -> None:
        self._closed.set()
        live = self._live
        if live is not None:
            live.stream.hang_up()
        if self._reading.acquire(blocking=False):  # otherwise the reading thread closes it
            try:
                self._close_stream()
            finally:
                self._reading.release()

    def _next_chunk(self) -> LogChunk | None:
        if self._tail is not None:
            return self._start_of_tail(self._tail)
        while not (self._at_end or self._closed.wait(self._pause)):
            lines = self._read_kept() if self._live is None else self._read_live(self._live)
            if lines:
                return LogChunk(tuple(lines), more=True, cursor=str(self._position))
        return None

    def _start_of_tail(self, tail: int) -> LogChunk:
        self._tail = None
        if not self._at_end and self._find_worker():
            before, lines = self._logs.tail(self._job, self._worker, tail)
            shown, _ = read_lines(lines, before, self._job.job_id)
            self._position = before
            if len(shown) > tail:
                self._position = Position.parse(shown[len(shown) - tail - 1].cursor)
        position = str(self._position)
        return LogChunk((), more=True, cursor=position, start=position)

    def _read_kept(self) -> list[LogLine]:
        page = self._page()
        lines = page.lines if page.more or not self._follow else settled(page.lines)
        shown, self._position = read_lines(lines, page.position, self._job.job_id)
        self._last = lines[-1].text if lines else page.before
        if not page.more:
            self._at_end = not self._follow or self._position.done
            if not (shown or self._at_end or self._open_stream()):
                longer = max(_SHORTEST_PAUSE, self._pause * 1.5)
                self._pause = min(longer, _LONGEST_PAUSE)
        if shown:
            self._pause = 0.0
        return shown

    def _find_worker(self) -> bool:
        """Whether it is known whose kept log to ask for; of a single worker, that of the job."""
        if not self._worker and int(self._job.native["nodes"]) > 1:
            self._worker = self._logs.worker(self._job, self._rank)
            return bool(self._worker)
        return True

    def _page(self) -> _Page:
        """One page. The last one is repeated while lines of a job that has just ended are due."""
        if not self._find_worker():
            return _Page(self._position, None, [], more=False)
        page = self._logs.page(self._job, self._worker, self._position)
        if self._follow:
            return page
        deadline = None
        while not page.more:
            _, end = read_lines(page.lines, page.position, self._job.job_id)
            if end.done or (deadline is not None and time.monotonic() >= deadline):
                break
            if deadline is None:
                if not has_just_ended(self._logs.client.job(self._job.native["id"])):
                    break
                deadline = time.monotonic() + _LAST_LINES_SECONDS
            if self._closed.wait(_LAST_LINES_PAUSE):
                break
            page = self._logs.page(self._job, self._worker, self._position)
        return page

    def _read_live(self, live: _LiveLines) -> list[LogLine]:
        lines = live.next_lines()
        if lines is None:
            self._close_stream()
            if live.is_another_log:
                self._next_stream = float("inf")
            else:
                self._at_end = True
            return []
        shown, self._position = read_lines(lines, self._position, self._job.job_id)
        return shown

    def _open_stream(self) -> bool:
        """Follow by a stream, if it can be had."""
        position, now = self._position, time.monotonic()
        # Without a line that was read, it is not known whether the stream is the same log.
        if self._last is None or not 0 < position.lines <= _MAX_SKIPPED_LINES:
            return False
        if now < self._next_stream:
            return False
        self._next_stream = now + _STREAM_RETRY_SECONDS
        worker = self._logs.worker(self._job, self._rank)
        if not worker:
            return False
        path = naming.below(naming.JOBS, self._job.native["id"], "replicas", worker, "log")
        try:
            stream = self._logs.client.stream(path, silence=_STREAM_SILENCE_SECONDS)
        except RefusedError:
            return False
        self._live = _LiveLines(stream, position.lines, self._last)
        self._pause = 0.0
        if self._closed.is_set():  # meanwhile, by another thread
            stream.hang_up()
        return True

    def _close_stream(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stream.close()


class _LiveLines:
    """Whole lines of a worker's stream, behind those that were read."""

    def __init__(self, stream: Stream, skip: int, last: str) -> None:
        self.stream = stream
        self.is_another_log = False
        self._skip = skip
        self._last = last
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._unfinished = ""
        self._held: list[Line] = []

    def next_lines(self) -> list[Line] | None:
        """What has come, perhaps nothing new; None at the end, or if this is another log.

        An unfinished line, or an empty one, at the end is left to the kept log.
        """
        piece = next(self.stream, None)
        if piece is None:
            return None
        *whole, self._unfinished = (self._unfinished + self._decode(piece)).split("\n")
        if 0 < self._skip <= len(whole):
            self.is_another_log = whole[self._skip - 1] != self._last
        new = whole[self._skip :]
        self._skip = max(0, self._skip - len(whole))
        if self.is_another_log:
            return None
        lines = [*self._held, *(Line(0, text) for text in new)]
        ready = settled(lines)
        self._held = list(lines[len(ready) :])
        return list(ready)


def _begin(job: JobRef) -> int:
    return max(1, (int(job.native["made_at"]) - _SKEW_SECONDS) * _NS)


def _end() -> int:
    return int((time.time() + _SKEW_SECONDS) * _NS)
