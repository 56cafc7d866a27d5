"""Downloads by several processes: Python's threads have one processor among them.

A child tells what it has moved, and what ends it, in lines of JSON. It ends at once when nobody
reads them any more: its parent is gone, or has given up. That may leave files under their hidden
names, as any kill may; the next attempt sweeps them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .download import download_all
from .errors import RunnerError, TransferError

if TYPE_CHECKING:
    from .parallel import Progress
    from .remote import RemoteFile

    Pairs = Sequence[tuple[RemoteFile, str]]

_WORTH_WHILE = 100
_MOST = 8
# With JSON's escapes it is still written in one piece, which no other child's words divide.
_LONGEST_WORD = 600
_TELL_SECONDS = 0.2


def download_by_processes(pairs: Pairs, progress: Progress, *, threads: int) -> None:
    """`download_all`, by as many processes as the files and the machine are good for.

    A copy of this process has none of its other threads. What these may be using, the requests
    for the files must not need: open connections, for one.
    """
    count = 1
    if sys.platform == "linux":  # elsewhere a process that has threads cannot safely be forked
        count = min(len(pairs) // _WORTH_WHILE, len(os.sched_getaffinity(0)), threads, _MOST)
    if count < 2:
        download_all(pairs, progress, threads=threads)
        return
    reading, writing = os.pipe()
    children = []
    for first in range(count):
        child = os.fork()
        if not child:
            os.close(reading)
            _work(pairs[first::count], threads // count, writing)
        children.append(child)
    os.close(writing)
    with open(reading, encoding="ascii") as words:
        for line in words:
            word = json.loads(line)
            if isinstance(word, str):
                raise TransferError(word)
            nbytes, files = word
            progress.add(nbytes)
            for _ in range(files):
                progress.file_done()
    if any(os.waitpid(child, 0)[1] for child in children):
        raise TransferError("a process that fetches files was killed: give the job more memory")


def _work(pairs: Pairs, threads: int, pipe: int) -> None:
    teller = _Teller(pipe)
    try:
        signal.set_wakeup_fd(-1)  # what it is told by signals is not its parent's business
        threading.Thread(target=_end_with_reader, args=(pipe,), daemon=True).start()
        download_all(pairs, teller, threads=threads, first_threads=1)
        teller.pass_on(teller.sums)
    except BaseException as error:  # noqa: BLE001 - raised by the parent
        text = str(error) if isinstance(error, RunnerError) else repr(error)
        teller.pass_on(text[:_LONGEST_WORD])
    finally:
        os._exit(0)


def _end_with_reader(pipe: int) -> None:
    watch = select.poll()
    watch.register(pipe, 0)  # of what can happen to it, only the worst
    watch.poll()
    os._exit(1)


class _Teller:
    """The progress of a child, told now and then."""

    def __init__(self, pipe: int) -> None:
        self.sums = [0, 0]
        """Bytes and files that were not told yet."""
        self._pipe, self._lock, self._told = pipe, threading.Lock(), 0.0

    def add(self, nbytes: int) -> None:
        self._count(nbytes, 0)

    def file_done(self) -> None:
        self._count(0, 1)

    def _count(self, nbytes: int, files: int) -> None:
        with self._lock:
            self.sums[0] += nbytes
            self.sums[1] += files
            now = time.monotonic()
            if now > self._told + _TELL_SECONDS:
                self.pass_on(self.sums)
                self.sums, self._told = [0, 0], now

    def pass_on(self, word: object) -> None:
        os.write(self._pipe, f"{json.dumps(word)}\n".encode())
