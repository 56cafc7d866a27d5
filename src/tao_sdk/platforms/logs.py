"""Reading a job's log as an iterator: bounded memory, resumable, followed until the job ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import Backend, JobRef, LogChunk, LogLine
from tao_sdk.platforms.capabilities import ReleasesLogs

CHUNK_BYTES = 256 * 1024
_FOLLOW_FASTEST = 0.05


class LogStream(Iterator[str]):
    """Lines of a log. `cursor` always points behind the last line that was handed out.

    Keep `cursor` and pass it to `stream_logs(cursor=)` to go on later, from any process. Lines
    come without their newline; a line longer than a chunk comes in pieces. One thread reads; any
    may close.
    """

    def __init__(
        self,
        backend: Backend,
        job: JobRef,
        *,
        follow: bool,
        tail: int | None,
        cursor: str,
        has_ended: Callable[[], bool],
    ) -> None:
        self.cursor = cursor
        self._reached = cursor
        self._lines: Iterator[LogLine] = iter(())
        self._closed = threading.Event()
        self._reading = threading.Lock()
        # It knows nothing of this object, and so is closed as soon as nobody has the object.
        self._chunks = _read_chunks(
            backend,
            job,
            follow=follow,
            tail=tail,
            cursor=cursor,
            has_ended=has_ended,
            closed=self._closed,
        )

    def __next__(self) -> str:
        while True:
            for line in self._lines:
                self.cursor = line.cursor
                return line.text
            if self._closed.is_set():
                raise StopIteration
            self.cursor = self._reached
            with self._reading:
                chunk = next(self._chunks)
            self._lines, self._reached = iter(chunk.lines), chunk.cursor

    def close(self) -> None:
        """End here. `cursor` stays, to go on from."""
        self._closed.set()
        self._lines = iter(())
        # Another thread that is reading is told, and lets go itself of what it has open.
        if self._reading.acquire(blocking=False):
            try:
                self._chunks.close()
            finally:
                self._reading.release()


def _read_chunks(
    backend: Backend,
    job: JobRef,
    *,
    follow: bool,
    tail: int | None,
    cursor: str,
    has_ended: Callable[[], bool],
    closed: threading.Event,
) -> Generator[LogChunk, None, None]:
    slowest = max(_FOLLOW_FASTEST, min(1.0, backend.poll_seconds))
    pause = _FOLLOW_FASTEST
    ended = not follow
    try:
        while not closed.is_set():
            try:
                chunk = backend.read_log(
                    job, cursor=cursor, tail=tail, limit=CHUNK_BYTES, flush=ended
                )
            except BackendUnreachableError:
                if ended:
                    raise
                # Whoever follows a log wants to see the rest of it: try again from the cursor.
                closed.wait(slowest)
                continue
            tail, cursor = None, chunk.cursor
            if closed.is_set():
                return
            yield chunk
            if chunk.more:
                continue
            if ended:
                return
            # Asked after a read that found nothing more: once the job has ended, one more round
            # of reading sees everything it wrote.
            ended = has_ended()
            if not ended:
                pause = _FOLLOW_FASTEST if chunk.lines else min(pause * 1.5, slowest)
                closed.wait(pause)
    finally:
        if isinstance(backend, ReleasesLogs):
            backend.release_log(job, cursor)


def in_pieces(lines: Iterable[str], size: int) -> Iterator[str]:
    """Lines put together to texts of about `size` characters."""
    held: list[str] = []
    length = 0
    for line in lines:
        held.append(line + "\n")
        length += len(line) + 1
        if length >= size:
            yield "".join(held)
            held, length = [], 0
    if held:
        yield "".join(held)
