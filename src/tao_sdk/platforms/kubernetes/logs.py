"""The log of a job: those of its pods one after the other, gone on with by cursor.

Pods that are gone have left theirs in a file, if somebody saw the job end or cancelled it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.backend import LogChunk, LogLine
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.log_lines import (
    START,
    Place,
    TimedLine,
    TimedLines,
    parse_cursor,
    print_cursor,
)
from tao_sdk.platforms.kubernetes.pods import has_begun, in_order, name_of, rank_of

# So long may a log that is not followed keep us waiting for its next bytes.
PATIENCE_SECONDS = 60.0
_PIECE = 64 * 1024
# Runtimes give lines that were printed together the same time.
_AT_ONE_TIME = 100


class LogSource:
    """The log of one pod, there or in a file of ours."""

    def __init__(
        self, api: KubernetesClient, namespace: str, pod: str, rank: int, kept: Path | None
    ) -> None:
        self._api = api
        self._path = naming.core_path(namespace, "pods", f"{pod}/log")
        self._kept = kept
        self.pod = pod
        self.rank = rank

    def pieces(
        self, opened: ExitStack, *, since: str = "", last: int | None = None
    ) -> Iterator[bytes]:
        """Its bytes, each line with its time."""
        if self._kept is not None:
            file = opened.enter_context(self._kept.open("rb"))
            if last is not None:
                return iter(deque(file, maxlen=last))
            return iter(lambda: file.read(_PIECE), b"")
        query = {"container": naming.CONTAINER, "timestamps": "true"}
        if since:
            query["sinceTime"] = since
        if last is not None:
            query["tailLines"] = str(last)
        try:
            return opened.enter_context(
                self._api.stream(self._path, silence=PATIENCE_SECONDS, **query)
            )
        except ApiError as error:
            if error.missing or error.status == 400:
                return iter(())  # gone a moment ago, or not begun yet
            raise BackendUnreachableError(
                f"the log of pod {self.pod} cannot be read: {error.message}"
            ) from error

    def last_lines(self, count: int) -> list[TimedLine]:
        """Its last lines."""
        with ExitStack() as opened:
            lines = TimedLines(START, 1 << 30)
            found: deque[TimedLine] = deque(maxlen=count)
            for piece in self.pieces(opened, last=count):
                found.extend(lines.feed(piece))
            found.extend(lines.flush())
            return list(found)


class LogReader:
    """The logs of one cluster's jobs."""

    def __init__(self, api: KubernetesClient, kept: JobFiles) -> None:
        self._api = api
        self._kept = kept
        self._lock = threading.Lock()
        # Reads that stopped in the middle. Several readers of one log have one each.
        self._open: list[_Reading] = []

    def read(
        self,
        namespace: str,
        job_id: str,
        uid: str = "",
        *,
        cursor: str,
        tail: int | None,
        limit: int,
        flush: bool,
        labelled: bool,
    ) -> LogChunk:
        """The next lines of a job's log."""
        if tail is not None and tail < 0:
            raise ValidationError(f"tail: {tail} is less than 0")
        places = parse_cursor(cursor)
        reading = self._take(job_id, cursor)
        if reading is None:
            sources = self.sources(namespace, job_id, uid)
            last = _shares(sources, tail) if tail is not None and not cursor else {}
            reading = _Reading(job_id, sources, places, last, limit, labelled=labelled)
        try:
            chunk = reading.read(limit, flush=flush)
        except BaseException:
            reading.close()
            raise
        if chunk.more:
            with self._lock:
                self._open.append(reading)
        else:
            reading.close()
        return chunk

    def sources(self, namespace: str, job_id: str, uid: str) -> list[LogSource]:
        """The logs that there are, by rank."""
        name = naming.job_name(job_id)
        kept = self._kept.named(job_id, naming.LOG_SUFFIX)
        try:
            listed = self._api.list_all(
                naming.core_path(namespace, "pods"),
                labelSelector=naming.pods_selector(job_id, uid),
            ).items
        except ApiError as error:
            if not error.missing and not kept:
                raise BackendUnreachableError(
                    f"the pods of {name} cannot be listed: {error.message}"
                ) from error
            listed = []
        pods = [pod for pod in in_order(listed) if has_begun(pod)]
        found = [self.source(namespace, pod) for pod in pods]
        there = {source.pod for source in found}
        gone = [
            LogSource(self._api, namespace, pod, _rank_in(pod, name), path)
            for pod, path in kept.items()
            if pod not in there
        ]
        return sorted([*gone, *found], key=lambda source: source.rank)

    def source(self, namespace: str, pod: Mapping[str, Any]) -> LogSource:
        return LogSource(self._api, namespace, name_of(pod), rank_of(pod), None)

    def release(self, job_id: str, cursor: str) -> None:
        """Nobody reads on from there."""
        if reading := self._take(job_id, cursor):
            reading.close()

    def close(self) -> None:
        """Let go of everything that is open."""
        while self._open:
            self._open.pop().close()

    def _take(self, job_id: str, cursor: str) -> _Reading | None:
        with self._lock:
            for place, reading in enumerate(self._open):
                if reading.job_id == job_id and reading.cursor == cursor:
                    return self._open.pop(place)
        return None


class _Reading:
    """A read of a job's log that may take several chunks."""

    def __init__(
        self,
        job_id: str,
        sources: Sequence[LogSource],
        places: dict[str, Place],
        last: Mapping[str, int],
        limit: int,
        *,
        labelled: bool,
    ) -> None:
        self.job_id = job_id
        self._places = places
        for source in sources:
            self._places.setdefault(source.pod, START)
        self._left = deque(sources)
        self._last = last
        self._labelled = labelled
        self._limit = limit
        self._opened = ExitStack()
        self._pieces: Iterator[bytes] | None = None
        self._lines = TimedLines(START, limit)
        self._around: Callable[[Place], str] = str

    @property
    def cursor(self) -> str:
        return print_cursor(self._places)

    def read(self, limit: int, *, flush: bool) -> LogChunk:
        lines: list[LogLine] = []
        size = 0
        while self._left and size < limit:
            source = self._left[0]
            if self._pieces is None:
                self._begin(source)
                assert self._pieces is not None  # noqa: S101 - what `_begin` is for
            piece = next(self._pieces, b"")
            if piece:
                size += len(piece)
                lines += self._told(source, self._lines.feed(piece), flush=flush)
                continue
            if flush:
                lines += self._told(source, self._lines.flush(), flush=True)
            self._left.popleft()
            self._pieces = None
            self._opened.close()
        return LogChunk(tuple(lines), more=bool(self._left), cursor=self.cursor)

    def close(self) -> None:
        self._opened.close()

    def _begin(self, source: LogSource) -> None:
        place, last = self._places[source.pod], self._last.get(source.pod)
        before, _, after = print_cursor({**self._places, source.pod: START}).partition(
            f"{source.pod}={START}"
        )
        self._around = lambda place: f"{before}{source.pod}={place}{after}"
        if last == 0:
            # Nothing of what was: but how far that is has to be known.
            for line in source.last_lines(_AT_ONE_TIME):
                place = place.after(line.time)
            self._places[source.pod] = place
            self._pieces = iter(())
        else:
            self._pieces = source.pieces(self._opened, since=place.since, last=last)
        self._lines = TimedLines(place if last is None else START, self._limit)

    def _told(self, source: LogSource, lines: Sequence[TimedLine], *, flush: bool) -> list[LogLine]:
        place = self._places[source.pod]
        prefix = f"[rank {source.rank}] " if self._labelled else ""
        found = []
        for line in lines:
            if not line.time and not flush:
                continue  # the node's complaint, which comes with every answer: told at the end
            if line.whole:  # a part of a line is read again by whoever goes on later
                place = place.after(line.time)
            found.append(LogLine(prefix + line.text, self._around(place)))
        self._places[source.pod] = place
        return found


def _shares(sources: Sequence[LogSource], tail: int) -> dict[str, int]:
    """How many lines of each log are among the last so many of all."""
    if len(sources) == 1:
        return {sources[0].pod: tail}
    newest = sorted(
        ((line.time, source.pod) for source in sources for line in source.last_lines(tail)),
        reverse=True,
    )[:tail]
    return {source.pod: sum(pod == source.pod for _, pod in newest) for source in sources}


def _rank_in(pod: str, job: str) -> int:
    """The rank in the name of a pod that is gone: <job>-<rank>-<word>."""
    rank, dash, _ = pod.removeprefix(f"{job}-").partition("-")
    return int(rank) if dash and rank.isdigit() else 0
