"""Answers that are good for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class TtlCache(Generic[_Value]):
    """Remembers answers by their question for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[str, tuple[float, _Value]] = {}

    def get(self, question: str, ask: Callable[[], _Value]) -> _Value:
        """The remembered answer, or a new one."""
        if not self.has(question):
            self.put(question, ask())
        return self._kept[question][1]

    def has(self, question: str) -> bool:
        kept = self._kept.get(question)
        return kept is not None and time.monotonic() - kept[0] <= self._seconds

    def put(self, question: str, answer: _Value) -> None:
        self._kept[question] = time.monotonic(), answer

    def forget(self, question: str) -> None:
        self._kept.pop(question, None)
