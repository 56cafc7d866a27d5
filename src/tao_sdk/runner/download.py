"""Downloads: many files at once, large ones in pieces, nothing under its name before it is whole.

A file is written under a hidden name beside its target, compared with the size and the checksum
that its store gave, and renamed. What is not large is one request. The answers to requests for
small files are awaited together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .errors import RunnerError
from .http import Client
from .incoming import PIECE, Incoming, InPieces, Shared, piece_count
from .parallel import FEW, run_all

if TYPE_CHECKING:
    from .http import Patience
    from .parallel import Progress, Task
    from .remote import RemoteFile

_SMALL = 256 * 1024
"""Bytes of a file that are in the kernel's hands while others are read."""
LARGE = 2 * PIECE
_AT_A_TIME = 4


def download_all(
    pairs: Sequence[tuple[RemoteFile, str]],
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


def _tasks(ordered: Sequence[tuple[RemoteFile, str]], shared: Shared) -> Iterator[Task]:
    large = [pair for pair in ordered if pair[0].size > LARGE]
    # A few large files at a time: each is hashed by one thread.
    for first in range(0, len(large), _AT_A_TIME):
        files = [InPieces(*pair, shared) for pair in large[first : first + _AT_A_TIME]]
        for index in range(max(file.pieces for file in files)):
            yield from (partial(file.work, index) for file in files if index < file.pieces)
    for file, target in ordered[len(large) :]:
        incoming = Incoming(file, target, shared)
        yield incoming.begin if 0 <= file.size <= _SMALL else incoming.fetch
