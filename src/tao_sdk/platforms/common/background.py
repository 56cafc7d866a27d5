"""A background thread that does tasks one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Task = TypeVar("_Task")


class BackgroundQueue(Generic[_Task]):
    """A queue with a thread of its own, which runs while there are tasks.

    `do` handles its own errors. A program does not exit before its tasks are done.
    """

    def __init__(self, name: str, do: Callable[[_Task], None]) -> None:
        self._name = name
        self._do = do
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    def add(self, task: _Task) -> None:
        with self._lock:
            self._tasks.put(task)
            # After a fork the thread is the parent's.
            if self._worker is None or not self._worker.is_alive():
                self._worker = threading.Thread(target=self._work, name=self._name)
                self._worker.start()

    def drop(self) -> None:
        """Forget the tasks that have not begun."""
        with self._lock:
            while not self._tasks.empty():
                self._tasks.get()

    def finish(self) -> None:
        """Wait until all tasks are done."""
        worker = self._worker
        # The worker itself may close a client that has no other user left.
        if worker is not None and worker is not threading.current_thread():
            worker.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._tasks.empty():
                    self._worker = None
                    return
                task = self._tasks.get()
            self._do(task)
