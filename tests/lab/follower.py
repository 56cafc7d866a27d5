"""Reading a log while the test goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Follower:
    """A thread that reads a stream of lines to its end."""

    def __init__(self, stream: Iterable[str]) -> None:
        self.lines: list[str] = []
        """Those that have come."""
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._read, args=(stream,))
        self._thread.start()

    def _read(self, stream: Iterable[str]) -> None:
        try:
            self.lines.extend(stream)
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            self._errors.append(error)

    def all(self, seconds: float) -> list[str]:
        """All of them, once the stream has ended by itself."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the stream does not end"
        assert not self._errors
        return self.lines
