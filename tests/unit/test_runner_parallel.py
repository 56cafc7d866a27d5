"""Tasks in threads: as many under way as allowed, in as few threads as will do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tao_sdk.runner.parallel import run_all

SECONDS = 30


class Questions:
    """Tasks that are answered when enough of them are under way."""

    def __init__(self, count: int, together: int) -> None:
        self._count, self._together = count, together
        self._lock = threading.Lock()
        self._enough = threading.Event()
        self._open = self.most = 0
        self.answered: list[int] = []

    def __iter__(self) -> Iterator[Callable[[], Callable[[], None]]]:
        for number in range(self._count):
            yield partial(self._begin, number)

    def _begin(self, number: int) -> Callable[[], None]:
        with self._lock:
            self._open += 1
            self.most = max(self.most, self._open)
            if self._open >= self._together:
                self._enough.set()
        return partial(self._finish, number)

    def _finish(self, number: int) -> None:
        assert self._enough.wait(SECONDS)
        with self._lock:
            self._open -= 1
            self.answered.append(number)


@pytest.mark.parametrize(("count", "most"), [(0, 5), (1, 5), (100, 1), (100, 7), (100, 64)])
def test_as_many_are_under_way_as_allowed_and_all_are_finished(count: int, most: int) -> None:
    questions = Questions(count, min(count, most))
    run_all(questions, most, threading.Event())
    assert sorted(questions.answered) == list(range(count))
    assert questions.most == min(count, most)


def test_idle_threads_get_company() -> None:
    """A task that cannot be divided waits in its thread; the processor has nothing to do."""
    all_here = threading.Barrier(20)
    run_all([lambda: _wait(all_here)] * 20, 20, threading.Event())
    assert not all_here.broken


def _wait(barrier: threading.Barrier) -> None:
    barrier.wait(SECONDS)


def test_a_failure_ends_the_others_and_is_raised() -> None:
    stop, begun = threading.Event(), []

    def fails() -> None:
        raise ValueError("this one")

    def tasks() -> Iterator[Callable[[], Callable[[], None]]]:
        while not stop.is_set():
            begun.append(1)
            yield lambda: fails

    with pytest.raises(ValueError, match="this one"):
        run_all(tasks(), 4, stop)
    assert stop.is_set()
    assert begun
