"""Many small tasks in a few threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol


class Progress(Protocol):
    """Who is told how far it is. Called by many threads."""

    def add(self, nbytes: int, /) -> None:
        """Bytes have moved; negative ones have to be moved again."""

    def file_done(self) -> None: ...


def run_all(tasks: Iterable[Callable[[], None]], threads: int, stop: threading.Event) -> None:
    """Do all tasks. The first failure sets `stop`, which ends the others, and is raised."""
    waiting, lock = iter(tasks), threading.Lock()
    failures: list[BaseException] = []

    def work() -> None:
        while not stop.is_set():
            try:
                with lock:
                    task = next(waiting, None)
                if task is None:
                    return
                task()
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                failures.append(error)
                stop.set()

    # Daemons: a signal that ends the main thread does not wait for a slow server.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(max(1, threads))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException:
        stop.set()
        raise
    if failures:
        raise failures[0]
