"""A cache whose entries expire."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class TtlCache(Generic[_Value]):
    """Keeps values by key for a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[str, tuple[float, _Value]] = {}

    def get(self, key: str, compute: Callable[[], _Value]) -> _Value:
        """The cached value, or a new one from `compute`."""
        if not self.has(key):
            self.put(key, compute())
        return self._kept[key][1]

    def has(self, key: str) -> bool:
        kept = self._kept.get(key)
        return kept is not None and time.monotonic() - kept[0] <= self._seconds

    def put(self, key: str, value: _Value) -> None:
        self._kept[key] = time.monotonic(), value

    def forget(self, key: str) -> None:
        self._kept.pop(key, None)
