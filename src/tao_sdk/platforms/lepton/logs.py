"""The log of a job: those of its workers one after the other, gone on with by cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tao_sdk.platforms.backend import JobRef, LogChunk, LogLine
from tao_sdk.platforms.common.log_lines import rank_prefix
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.history import History, rank_in
from tao_sdk.platforms.lepton.live import LiveTail
from tao_sdk.platforms.lepton.log_lines import (
    START,
    UNCOUNTED,
    Place,
    Read,
    Shown,
    parse_cursor,
    print_cursor,
    read_kept,
    read_live,
)
from tao_sdk.platforms.lepton.records import has_just_ended
from tao_sdk.platforms.lepton.submit import EVERYWHERE
from tao_sdk.platforms.rest import RefusedError

# For what was printed last, of a job that has just ended.
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.25
# A stream begins at the first line: a log that is longer is asked for by time.
_MOST_SKIPPED = 20_000
_MOST_STREAMS = 8
_SILENT_SECONDS = 300.0
# A stream that could not be had is not asked for again at once.
_AGAIN_SECONDS = 10.0


class Worker(NamedTuple):
    """A worker of a job as its log knows it; "" for the only one."""

    id: str
    rank: int


class _Ahead(NamedTuple):
    """What was fetched and not handed out yet."""

    lines: list[LogLine]
    more: bool
    end: str


class LogReader:
    """Reads logs of jobs of one workspace."""

    def __init__(
        self,
        api: LeptonClient,
        history: History,
        get: Callable[[str], Mapping[str, Any] | None],
    ) -> None:
        self._api = api
        self._history = history
        self._get = get
        self._ahead: dict[tuple[str, str], _Ahead] = {}
        self._live: dict[tuple[str, str], dict[int, LiveTail]] = {}
        """Both by job and cursor: whoever reads on from there finds them."""
        self._last: dict[tuple[str, int], tuple[Place, str]] = {}
        """The last line that was read of each worker, and the place behind it."""
        self._tried: dict[str, float] = {}

    def read(
        self, job: JobRef, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        ahead = self._ahead.pop((job.job_id, cursor), None) if cursor else None
        if ahead is None and (live := self._live.pop((job.job_id, cursor), None)):
            if not flush:
                chunk = self._read_live(job, cursor, live, limit)
                if chunk is not None:
                    return chunk
            _close(live)
        if ahead is None:
            ahead = self._fetch(job, cursor, tail, flush)
            if not (ahead.lines or ahead.more or flush):
                self._follow_live(job, ahead.end)
        lines, more, end = ahead
        size = 0
        for number, line in enumerate(lines):
            size += len(line.text) + 1
            if size >= limit and number + 1 < len(lines):
                rest = _Ahead(lines[number + 1 :], more, end)
                self._ahead[job.job_id, line.cursor] = rest
                return LogChunk(tuple(lines[: number + 1]), more=True, cursor=line.cursor)
        return LogChunk(tuple(lines), more, end)

    def release(self, job_id: str, cursor: str) -> None:
        """Nobody reads on from there."""
        self._ahead.pop((job_id, cursor), None)
        _close(self._live.pop((job_id, cursor), {}))

    def close(self) -> None:
        """Let go of everything that is open."""
        while self._live:
            _close(self._live.popitem()[1])

    # ------------------------------------------------------------------ as it is written

    def _follow_live(self, job: JobRef, cursor: str) -> None:
        """Open streams for whoever reads on: there is nothing more in the kept log."""
        now, places = time.monotonic(), parse_cursor(cursor)
        read = [place.lines for place in places.values() if not place.done]
        # Without a line that both have, nobody knows whether they are the same log.
        if not read or not all(0 < lines <= _MOST_SKIPPED for lines in read):
            return
        if now - self._tried.get(job.job_id, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
            return
        self._tried[job.job_id] = now
        running = {
            rank_in(one, job.native["id"], position): naming.id_of(one)
            for position, one in enumerate(self.replicas(job))
        }
        if not len(running) == int(job.native["nodes"]) == len(places) <= _MOST_STREAMS:
            return
        openers: dict[int, Callable[[], LiveTail]] = {}
        for rank, worker in running.items():
            place = places.get(rank, UNCOUNTED)
            known, text = self._last.get((job.job_id, rank), (START, ""))
            if place.done:
                continue
            if known.lines != place.lines:
                return  # which line was the last is not known in this process
            path = naming.below(naming.JOBS, job.native["id"], "replicas", worker, "log")
            stream = partial(self._api.stream, path, silence=_SILENT_SECONDS)
            openers[rank] = partial(LiveTail, stream, place.lines, text)
        live = {rank: opened() for rank, opened in openers.items()}
        if live:
            self._live[job.job_id, cursor] = live

    def _read_live(
        self, job: JobRef, cursor: str, live: dict[int, LiveTail], limit: int
    ) -> LogChunk | None:
        """What has come since; None when the kept log has to be asked instead."""
        places = dict.fromkeys(sorted(live), START) | parse_cursor(cursor)
        found: list[LogLine] = []
        for rank, tail in live.items():
            lines = tail.take(limit)
            if not lines:
                continue
            read = read_live(lines, places[rank], job.job_id)
            prefix = self._prefix(job, rank)
            for shown in read.shown:
                places[rank] = shown.place
                found.append(LogLine(prefix + shown.text, print_cursor(places)))
            places[rank] = read.end
            self._last[job.job_id, rank] = read.end, lines[-1]
        if not found and any(tail.over for tail in live.values()):
            return None
        end = print_cursor(places)
        self._live[job.job_id, end] = live
        return LogChunk(tuple(found), more=False, cursor=end)

    # ------------------------------------------------------------------ from what is kept

    def workers(self, job: JobRef) -> list[Worker]:
        """Whose logs there are, by rank."""
        if int(job.native["nodes"]) == 1:
            return [Worker("", 0)]
        return sorted(
            (
                Worker(naming.id_of(one), rank_in(one, job.native["id"], position))
                for position, one in enumerate(self.replicas(job))
            ),
            key=lambda worker: worker.rank,
        )

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        """The workers of a job as the server tells of them; [] when it has forgotten them."""
        path = naming.below(naming.JOBS, job.native["id"], "replicas")
        try:
            return self._api.get_list(path, job_query_mode=EVERYWHERE)
        except RefusedError as error:
            if not error.missing:
                raise
            return []

    def last_lines(self, job: JobRef, worker: Worker, count: int) -> list[Shown]:
        """The last lines of one worker, oldest first."""
        lines = self._history.last(job, worker.id, count)
        return read_kept(lines, UNCOUNTED, job.job_id, all_of_it=True).shown[-count:]

    def _fetch(self, job: JobRef, cursor: str, tail: int | None, flush: bool) -> _Ahead:
        workers = self.workers(job)
        if tail is not None and not cursor:
            return self._fetch_tail(job, workers, tail)
        places = {worker.rank: START for worker in workers} | parse_cursor(cursor)
        found: list[LogLine] = []
        for worker in workers:
            read, more = self._page(job, worker, places[worker.rank], flush)
            found += self._told(job, worker, read.shown, places)
            places[worker.rank] = read.end
            if more:
                return _Ahead(found, True, print_cursor(places))
        return _Ahead(found, False, print_cursor(places))

    def _page(self, job: JobRef, worker: Worker, place: Place, flush: bool) -> tuple[Read, bool]:
        """One page of a worker's log, and whether there are more."""
        deadline = 0.0
        while True:
            page = self._history.page(job, worker.id, place)
            whole = flush and not page.more
            read = read_kept(page.lines, page.place, job.job_id, all_of_it=whole)
            if not whole or read.end.done:
                break
            # All lines are wanted; if the job has just ended, the last may be on their way.
            if not deadline:
                fresh = has_just_ended(self._get(job.native["id"]))
                patience = _PATIENCE_SECONDS if fresh else 0.0
                deadline = time.monotonic() + patience
            if time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE_SECONDS)
        if page.lines and not page.place.extra:
            count = read.end.lines - page.place.lines
            if read.end.lines >= 0 and count:
                self._last[job.job_id, worker.rank] = read.end, page.lines[count - 1].text
        return read, page.more

    def _told(
        self, job: JobRef, worker: Worker, shown: Sequence[Shown], places: dict[int, Place]
    ) -> list[LogLine]:
        prefix = self._prefix(job, worker.rank)
        told = []
        for line in shown:
            places[worker.rank] = line.place
            told.append(LogLine(prefix + line.text, print_cursor(places)))
        return told

    def _prefix(self, job: JobRef, rank: int) -> str:
        return rank_prefix(rank, int(job.native["nodes"]))

    def _fetch_tail(self, job: JobRef, workers: Sequence[Worker], tail: int) -> _Ahead:
        """The last lines of all workers together; the cursor is behind everything there was."""
        ends: dict[int, Place] = {}
        shown: dict[int, list[Shown]] = {}
        for worker in workers:
            lines = self._history.last(job, worker.id, tail)
            read = read_kept(lines, UNCOUNTED, job.job_id, all_of_it=True)
            shown[worker.rank], ends[worker.rank] = read
        newest = sorted(
            ((line.time, rank) for rank, lines in shown.items() for line in lines), reverse=True
        )[:tail]
        share = {worker.rank: sum(rank == worker.rank for _, rank in newest) for worker in workers}
        # Of a worker whose turn has not come, the place is before what is shown of it.
        places = {
            rank: lines[-share[rank] - 1].place if len(lines) > share[rank] else START
            for rank, lines in shown.items()
        }
        places |= {rank: ends[rank] for rank, count in share.items() if not count}
        told: list[LogLine] = []
        for worker in workers:
            count = share[worker.rank]
            told += self._told(job, worker, shown[worker.rank][-count:] if count else [], places)
            places[worker.rank] = ends[worker.rank]
        return _Ahead(told, False, print_cursor(ends))


def _close(live: Mapping[int, LiveTail]) -> None:
    for tail in live.values():
        tail.close()
