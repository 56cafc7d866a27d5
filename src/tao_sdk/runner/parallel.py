"""Many small tasks in a few threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    Rest = Callable[[], None]
    Task = Callable[[], Rest | None]

FEW = 3
_LOOK_SECONDS = 0.02
_BUSY = 0.3


class Progress(Protocol):
    """Who is told how far it is. Called by many threads."""

    def add(self, nbytes: int, /) -> None:
        """Bytes have moved; negative ones have to be moved again."""

    def file_done(self) -> None: ...


def run_all(tasks: Iterable[Task], most: int, stop: threading.Event, first: int = FEW) -> None:
    """Do all tasks, `most` at once. The first failure sets `stop`, ends the others, and is raised.

    A task that has to wait for an answer may return the rest of itself, which is called later: the
    thread begins others meanwhile. Threads get into each other's way, so there are few of them
    (`first` to begin with) while they keep a processor busy, and more where they do not; of those
    that can begin others, a third as many as may be under way (each has some answers to wait for).
    """
    waiting, lock = iter(tasks), threading.Lock()
    workers: list[threading.Thread] = []
    failures: list[BaseException] = []
    limit = most = max(1, most)

    def work() -> None:
        nonlocal limit
        begun: deque[Rest] = deque()
        while not stop.is_set():
            try:
                with lock:
                    task = next(waiting, None)
                rest = task() if task else None
                if rest:
                    begun.append(rest)
                    limit = most // FEW
                elif not task and not begun:
                    return
                if begun and (not task or len(begun) * len(workers) >= most):
                    begun.popleft()()
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                failures.append(error)
                stop.set()

    def add_threads(count: int) -> None:
        for _ in range(min(count, limit - len(workers))):
            # Daemons: a signal that ends the main thread does not wait for a slow server.
            worker = threading.Thread(target=work, daemon=True)
            workers.append(worker)
            worker.start()

    try:
        add_threads(first)
        for worker in workers:  # which become more on the way
            while worker.is_alive():
                began, used = time.monotonic(), time.process_time()
                worker.join(_LOOK_SECONDS)
                elapsed = time.monotonic() - began
                if worker.is_alive() and time.process_time() - used < _BUSY * elapsed:
                    add_threads(len(workers))
    except BaseException:
        stop.set()
        raise
    if failures:
        raise failures[0]
