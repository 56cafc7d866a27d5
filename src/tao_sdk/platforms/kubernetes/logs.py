"""The log of a job: a source for each rank, which reads the rank's pods one after another.

A running pod is followed through one request, however long it runs. When that breaks off, the
source is opened again at the position of its last line (`log_lines`), so no line is lost or
repeated. Pods that the cluster removed are read from the files that `cleanup` saved.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tao_sdk.errors import BackendUnreachableError, PlatformError
from tao_sdk.platforms.backend import JobRef, LogChunk, LogLine
from tao_sdk.platforms.common.job_files import JobFiles
from tao_sdk.platforms.common.times import parse_time
from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient, Stream
from tao_sdk.platforms.kubernetes.log_lines import START, Place, Position, TimedLine, TimedLines
from tao_sdk.platforms.kubernetes.pods import (
    Pod,
    created_at,
    has_begun,
    has_ended,
    in_order,
    name_of,
    rank_of,
)

# Longer lines are returned in pieces.
_LINE_BYTES = 256 * 1024
# How long to wait for the next bytes of a log that is not followed.
_SILENCE_SECONDS = 30.0
# How long the ranks of a job share a list of its pods.
_LIST_SECONDS = 1.0
# How long to wait for a change of the pods before another list.
_CHANGE_SECONDS = 300
# The same after the end of a followed log whose pod has not ended: the cluster will notice its end
# soon, or the log must be followed again.
_END_SECONDS = 5
# So many more lines than asked for usually reach back to the beginning of a second.
_TAIL_MARGIN = 100


class PodLog(NamedTuple):
    """The log of one pod."""

    pod: str
    rank: int
    created_at: str = ""
    has_ended: bool = True
    """Whether the log is complete."""
    saved: Path | None = None
    """The file that it is read from, if the pod is gone."""


class Listing(NamedTuple):
    """The pods of a job that have a log, in the order in which they were created."""

    logs: list[PodLog]
    version: str
    """The version of the cluster's state that the list shows."""


class JobLogs:
    """The logs of one job's pods, shared by the sources of its ranks."""

    def __init__(self, client: KubernetesClient, files: JobFiles, job: JobRef) -> None:
        self._client = client
        self._files = files
        self._job_id = job.job_id
        self._pods_path = naming.core_path(job.native["namespace"], "pods")
        self._selector = naming.pods_selector(job.job_id, job.native.get("uid", ""))
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._listing: Listing | None = None
        self._listed_at = 0.0

    def list(self, seen: str = "") -> Listing:
        """The pods that have a log: a list of this second, unless it has the version `seen`."""
        if self._process_id != os.getpid():  # another thread of the parent may hold the lock
            self._process_id, self._lock = os.getpid(), threading.Lock()
        with self._lock:
            listing = self._listing
            age = time.monotonic() - self._listed_at
            if listing is None or age > _LIST_SECONDS or listing.version == seen:
                listing = self._listing = self._listed()
                self._listed_at = time.monotonic()
            return listing

    def changes(self, version: str, seconds: int) -> Stream:
        """A stream with bytes as soon as a pod of the job changes; it ends after `seconds`."""
        return self._client.stream(
            self._pods_path,
            watch="true",
            labelSelector=self._selector,
            resourceVersion=version,
            timeoutSeconds=str(seconds),
        )

    def open(
        self, log: PodLog, *, since: str = "", last: int | None = None, follow: bool = False
    ) -> Stream | None:
        """The bytes of a pod's log, each line with its time; None if there is no log now."""
        return open_log(
            self._client, f"{self._pods_path}/{log.pod}/log", since=since, last=last, follow=follow
        )

    def _listed(self) -> Listing:
        saved = self._files.named(self._job_id, naming.LOG_SUFFIX)
        try:
            found = self._client.list_all(self._pods_path, labelSelector=self._selector)
        except ApiError as error:
            if not error.missing and not saved:
                raise BackendUnreachableError(
                    f"the pods of {naming.job_name(self._job_id)} cannot be listed: {error.message}"
                ) from error
            pods, version = [], ""
        else:
            pods, version = found.items, found.resource_version
        logs = [
            PodLog(name_of(pod), rank_of(pod), created_at(pod), has_ended(pod))
            for pod in in_order(pods)
            if has_begun(pod)
        ]
        there = {log.pod for log in logs}
        name = naming.job_name(self._job_id)
        gone = [
            PodLog(pod, _rank_in(pod, name), saved=path)
            for pod, path in saved.items()
            if pod not in there
        ]
        return Listing([*gone, *logs], version)


class RankLog:
    """The log of one rank, as a source of its job's log."""

    ends_with_job = True

    def __init__(self, logs: JobLogs, rank: int) -> None:
        self.rank = rank
        self._logs = logs
        self._read: set[str] = set()
        """Pods that were followed to their end."""

    def open(self, position: str, *, tail: int | None, follow: bool) -> RankLogReader:
        read = self._read if follow else set()
        return RankLogReader(self._logs, self.rank, position, read, tail=tail, follow=follow)


class RankLogReader(Iterator[LogChunk]):
    """One read of a rank's log."""

    def __init__(
        self,
        logs: JobLogs,
        rank: int,
        position: str,
        read: set[str],
        *,
        tail: int | None,
        follow: bool,
    ) -> None:
        self._logs = logs
        self._rank = rank
        self._position = Position.parse(position)
        self._pods_read = read
        self._follow = follow
        self._stream: Stream | None = None
        self._closed = False
        self._chunks = self._read_all(None if position else tail)

    def __next__(self) -> LogChunk:
        try:
            return next(self._chunks)
        except BackendUnreachableError:
            if self._closed:
                raise StopIteration from None
            raise

    def close(self) -> None:
        self._closed = True
        if self._stream is not None:
            self._stream.hang_up()
        with contextlib.suppress(ValueError):  # the thread that is reading ends it
            self._chunks.close()

    def _read_all(self, tail: int | None) -> Generator[LogChunk, None, None]:
        listing = self._logs.list()
        if tail is not None:
            self._position = self._position_of_tail(listing, tail)
            start = str(self._position)
            yield LogChunk((), more=True, cursor=start, start=start)
        while not self._closed:
            log = self._next_log(listing)
            if log is None:
                if not (self._follow and self._wait_for_change(listing, _CHANGE_SECONDS)):
                    return
                listing = self._logs.list(seen=listing.version)
                continue
            yield from self._read_log(log)
            if self._closed:
                return
            if self._may_grow(log):
                listing = self._logs.list(seen=listing.version)
                now = next((other for other in listing.logs if other.pod == log.pod), None)
                if now is not None:
                    # If it has ended, what was written last is read without following.
                    if not now.has_ended:
                        if not self._wait_for_change(listing, _END_SECONDS):
                            return
                        listing = self._logs.list(seen=listing.version)
                    continue
            self._pods_read.add(log.pod)
            if self._next_log(listing) is None:
                return

    def _next_log(self, listing: Listing) -> PodLog | None:
        """The first log that is not read completely."""
        logs = [log for log in listing.logs if log.rank == self._rank]
        pod, place = self._position
        names = [log.pod for log in logs]
        if pod in names:
            logs = logs[names.index(pod) :]
        elif place.newest:
            # That pod is gone; another one is created after the end of the one that it replaces.
            end = parse_time(place.since)
            logs = [log for log in logs if log.created_at and parse_time(log.created_at) >= end]
        return next((log for log in logs if log.pod not in self._pods_read), None)

    def _wait_for_change(self, listing: Listing, seconds: int) -> bool:
        """Wait until the job's pods change; False if that cannot be noticed."""
        try:
            with self._use(self._logs.changes(listing.version, seconds)) as changes:
                next(changes, None)
        except ApiError:  # we may list pods and not watch them: the source is opened again
            return False
        return not self._closed

    def _read_log(self, log: PodLog) -> Iterator[LogChunk]:
        """Read a log from the position on."""
        place = self._position.place if log.pod == self._position.pod else START
        self._position = Position(log.pod, place)
        lines = TimedLines(place, _LINE_BYTES)
        with self._pieces(log, since=place.since) as pieces:
            for piece in pieces:
                if chunk := self._chunk(lines.feed(piece)):
                    yield chunk
        if not (self._closed or self._may_grow(log)) and (chunk := self._chunk(lines.flush())):
            yield chunk

    def _may_grow(self, log: PodLog) -> bool:
        return self._follow and not log.has_ended

    def _chunk(self, lines: Iterable[TimedLine]) -> LogChunk | None:
        pod, place = self._position
        found = []
        for line in lines:
            if not line.time and self._follow:
                continue  # the node repeats its messages in every answer: they come at the end
            if line.whole:  # a line is read again from its beginning
                place = place.after(line.time)
            found.append(LogLine(line.text, str(Position(pod, place))))
        start, self._position = str(self._position), Position(pod, place)
        return LogChunk(tuple(found), True, str(self._position), start) if found else None

    # ------------------------------------------------------------------ the tail

    def _position_of_tail(self, listing: Listing, count: int) -> Position:
        """Where the last `count` lines of all the rank's pods begin."""
        logs = [log for log in listing.logs if log.rank == self._rank]
        position = Position()
        for log in reversed(logs):
            place, lines = self._place_of_tail(log, count)
            position, count = Position(log.pod, place), count - lines
            if count <= 0:
                break
        return position

    def _place_of_tail(self, log: PodLog, count: int) -> tuple[Place, int]:
        """Where the last `count` lines of a log begin, and how many there are."""
        asked = count + _TAIL_MARGIN
        while True:
            place, first, number = START, "", 0
            places = deque([START], maxlen=count + 1)
            lines = TimedLines(START, _LINE_BYTES)
            with self._pieces(log, last=asked) as pieces:
                for line in _all_lines(lines, pieces, flush=not self._may_grow(log)):
                    if line.whole and line.time:
                        place, first, number = (
                            place.after(line.time),
                            first or line.time,
                            number + 1,
                        )
                        places.append(place)
            # A place counts the lines of its second: the second must have begun in what we read.
            if number < asked or places[0].since > START.after(first).since:
                return places[0], min(number, count)
            asked *= 8

    # ------------------------------------------------------------------ streams

    @contextlib.contextmanager
    def _pieces(
        self, log: PodLog, *, since: str = "", last: int | None = None
    ) -> Iterator[Iterable[bytes]]:
        if log.saved is not None:
            with log.saved.open("rb") as file:
                yield file if last is None else deque(file, maxlen=last)
            return
        follow = last is None and self._may_grow(log)
        stream = self._logs.open(log, since=since, last=last, follow=follow)
        if stream is None:
            yield ()
            return
        with self._use(stream):
            yield stream

    def _use(self, stream: Stream) -> Stream:
        self._stream = stream
        if self._closed:  # meanwhile, by another thread
            stream.hang_up()
        return stream


def open_log(
    client: KubernetesClient,
    path: str,
    *,
    since: str = "",
    last: int | None = None,
    follow: bool = False,
) -> Stream | None:
    """The log of a pod, each line with its time; None if the pod is gone or has not begun."""
    query = {"container": naming.CONTAINER, "timestamps": "true"}
    if since:
        query["sinceTime"] = since
    if last is not None:
        query["tailLines"] = str(last)
    if follow:
        query["follow"] = "true"
    try:
        return client.stream(path, silence=None if follow else _SILENCE_SECONDS, **query)
    except ApiError as error:
        if error.missing or error.status == 400:
            return None
        kind = PlatformError if error.forbidden else BackendUnreachableError
        raise kind(f"cannot read the log {path}: {error.message}") from error


def last_lines(client: KubernetesClient, namespace: str, pod: Pod, count: int) -> list[str]:
    """The last lines of a pod's log, without their times."""
    stream = open_log(
        client, naming.core_path(namespace, "pods", f"{name_of(pod)}/log"), last=count
    )
    if stream is None:
        return []
    with stream:
        lines = _all_lines(TimedLines(START, _LINE_BYTES), stream, flush=True)
        return [line.text for line in deque(lines, maxlen=count)]


def _all_lines(lines: TimedLines, pieces: Iterable[bytes], *, flush: bool) -> Iterator[TimedLine]:
    for piece in pieces:
        yield from lines.feed(piece)
    if flush:
        yield from lines.flush()


def _rank_in(pod: str, job: str) -> int:
    """The rank in the name of a pod: <job>[-…]-<rank>-<word>."""
    *_, rank, _ = ("0", *pod.removeprefix(f"{job}-").split("-"))
    return int(rank) if rank.isdigit() else 0
