"""Downloads: many files at once, large ones in pieces, nothing under its name before it is whole.

A file is written under a hidden name beside its target, compared with the size and the checksum
that its store gave, and renamed. What is not large is one request. The answers to requests for
small files are awaited together.

Python's threads have one processor among them, so many files are divided among processes. A child
tells what it has moved, and what ends it, in lines of JSON. It ends at once when nobody reads them
any more: its parent is gone, or has given up. That may leave files under their hidden names, as any
kill may; the next attempt sweeps them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .errors import RunnerError, TransferError
from .http import Client
from .incoming import PIECE, Incoming, InPieces, Shared, piece_count
from .parallel import FEW, run_all

if TYPE_CHECKING:
    from .http import Patience
    from .parallel import Progress, Task
    from .remote import RemoteFile

    Pair = tuple[RemoteFile, str]
    Pairs = Sequence[Pair]

_SMALL = 256 * 1024
"""Bytes of a file that are in the kernel's hands while others are read."""
LARGE = 2 * PIECE
_AT_A_TIME = 4
_WORTH_WHILE = 100
"""Files for a process."""
_MOST_PROCESSES = 4
# Bytes. With some escapes it is still written in one piece, which no other child's words divide.
_LONGEST_WORD = 3500
_TELL_SECONDS = 0.2


def download_all(
    pairs: Pairs,
    progress: Progress,
    *,
    threads: int,
    first_threads: int = FEW,
    patience: Patience | None = None,
) -> None:
    """Bring every file to its absolute path. Raises the first failure, naming its URI.

    A target that has the size and checksum already is left alone. Files of unknown checksum are
    fetched anew; proving a whole folder is the caller's business.
    """
    verify = os.environ.get("TAO_VERIFY", "")
    if verify not in ("", "pieces", "full"):
        raise RunnerError(f"TAO_VERIFY={verify!r}: give pieces or full")
    client, stop = Client(os.environ, patience), threading.Event()
    shared = Shared(client, progress, stop, {}, verify)
    # The largest first: at the end all threads have something to do.
    ordered = sorted(pairs, key=lambda pair: -pair[0].size)
    count = sum(piece_count(file.size) if file.size > LARGE else 1 for file, _ in pairs)
    try:
        run_all(_tasks(ordered, shared), min(threads, count), stop, first_threads)
    finally:
        client.close()


def _tasks(ordered: Pairs, shared: Shared) -> Iterator[Task]:
    large = [pair for pair in ordered if pair[0].size > LARGE]
    # A few large files at a time: each is hashed by one thread.
    for first in range(0, len(large), _AT_A_TIME):
        files = [InPieces(*pair, shared) for pair in large[first : first + _AT_A_TIME]]
        for index in range(max(file.pieces for file in files)):
            yield from (partial(file.work, index) for file in files if index < file.pieces)
    for file, target in ordered[len(large) :]:
        incoming = Incoming(file, target, shared)
        yield incoming.begin if 0 <= file.size <= _SMALL else incoming.fetch


def download_by_processes(pairs: Pairs, progress: Progress, *, threads: int) -> None:
    """`download_all`, by as many processes as the files and the machine are good for.

    A copy of this process has none of its other threads. What these may be using, the requests
    for the files must not need: open connections, for one.
    """
    count = 1
    if sys.platform == "linux":  # elsewhere a process that has threads cannot safely be forked
        processors = len(os.sched_getaffinity(0))
        count = min(len(pairs) // _WORTH_WHILE, processors, threads, _MOST_PROCESSES)
    if count < 2:
        download_all(pairs, progress, threads=threads)
        return
    reading, writing = os.pipe()
    left: list[Pair] = []
    children = 0
    for first in range(count):
        # In blocks: whoever looks at its own files copies little of what describes the others.
        blocks = range(first * _WORTH_WHILE, len(pairs), count * _WORTH_WHILE)
        part = [pair for at in blocks for pair in pairs[at : at + _WORTH_WHILE]]
        try:
            child = os.fork()
        except OSError:  # there may be no more processes: then it is for us to do
            left += part
            continue
        if not child:
            _work(part, threads // count, reading, writing)
        children += 1
    threading.Thread(target=lambda: _await_children(children, writing), daemon=True).start()
    download_all(left, progress, threads=threads)
    with open(reading, encoding="utf-8") as words:
        for line in words:
            word = json.loads(line)
            if isinstance(word, str):
                raise TransferError(word)
            nbytes, files = word
            progress.add(nbytes)
            for _ in range(files):
                progress.file_done()


def _await_children(count: int, pipe: int) -> None:
    """Tell of one that was killed, as soon as it is; whoever reads then stops, and so do they."""
    for _ in range(count):
        if os.wait()[1]:
            os.write(pipe, b'"a process that fetches files was killed: give the job more memory"\n')
    os.close(pipe)


def _work(pairs: Pairs, threads: int, reading: int, pipe: int) -> None:
    teller, code = _Teller(pipe), 1
    try:
        os.close(reading)
        signal.set_wakeup_fd(-1)  # what it is told by signals is not its parent's business
        threading.Thread(target=lambda: _end_with_reader(pipe), daemon=True).start()
        download_all(pairs, teller, threads=threads, first_threads=1)
        teller.pass_on()
        code = 0
    except Exception as error:  # noqa: BLE001 - raised by the parent
        if not isinstance(error, RunnerError):
            import traceback

            traceback.print_exc()
        teller.pass_on(str(error) or repr(error))
        code = 0
    finally:
        os._exit(code)  # 0 only where the parent has been told


def _end_with_reader(pipe: int) -> None:
    select.select([pipe], [], [])  # it is written to: what could be read of it is an error only
    os._exit(0)


class _Teller:
    """The progress of a child, told now and then."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._lock, self._next = pipe, threading.Lock(), 0.0
        self._sums = 0, 0

    def file_done(self) -> None:
        self.add(0, 1)

    def add(self, nbytes: int, files: int = 0) -> None:
        with self._lock:
            self._sums = self._sums[0] + nbytes, self._sums[1] + files
            if time.monotonic() > self._next:
                self.pass_on()

    def pass_on(self, word: str = "") -> None:
        """Tell this, or the bytes and files that the parent does not know of yet."""
        text = word.encode()[:_LONGEST_WORD].decode(errors="ignore")
        line = json.dumps(text or self._sums, ensure_ascii=False)
        os.write(self._pipe, f"{line}\n".encode())
        self._sums, self._next = (0, 0), time.monotonic() + _TELL_SECONDS
