"""Reading a job's log as an iterator: bounded memory, resumable, followed until the job ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import Backend, JobRef

CHUNK_BYTES = 256 * 1024
_FOLLOW_FASTEST = 0.05


class LogStream(Iterator[str]):
    """Lines of a log. `cursor` always points behind the last line that was handed out.

    Keep `cursor` and pass it to `stream_logs(cursor=)` to go on later, from any process. Lines
    come without their newline; a line longer than a chunk comes in pieces.
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
        self._backend = backend
        self._job = job
        self._tail = tail
        self._follow = follow
        self._has_ended = has_ended
        self._lines = self._read_lines()

    def __next__(self) -> str:
        return next(self._lines)

    def _read_lines(self) -> Iterator[str]:
        pause = _FOLLOW_FASTEST
        ended = not self._follow
        while True:
            try:
                chunk = self._backend.read_log(
                    self._job, cursor=self.cursor, tail=self._tail, limit=CHUNK_BYTES, flush=ended
                )
            except BackendUnreachableError:
                if ended:
                    raise
                # Whoever follows a log wants to see the rest of it: try again from the cursor.
                time.sleep(self._slowest)
                continue
            for line in chunk.lines:
                self.cursor = line.cursor
                yield line.text
            self._tail = None
            self.cursor = chunk.cursor
            if chunk.more:
                continue
            if ended:
                return
            # Asked after a read that found nothing more: once the job has ended, one more round
            # of reading sees everything it wrote.
            ended = self._has_ended()
            if not ended:
                pause = _FOLLOW_FASTEST if chunk.lines else min(pause * 1.5, self._slowest)
                time.sleep(pause)

    @property
    def _slowest(self) -> float:
        return max(_FOLLOW_FASTEST, min(1.0, self._backend.poll_seconds))
