"""A line at the bottom of the terminal, below the output that scrolls past."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from tao_sdk.cli.output import Output
from tao_sdk.visible_text import one_line, visible

_ERASE = "\r\x1b[2K"
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_PATIENCE = 2.0
_KEPT_FREE = 3
"""Columns at the end: the terminal itself writes ^C there, which must not begin a new row."""


class LiveLine:
    """Shows `text(width)`, refreshed at intervals, until the block ends."""

    def __init__(self, out: Output, text: Callable[[int], str], seconds: float) -> None:
        from tao_sdk.cli.consoles import console

        self._out = out
        self._text = text
        self._seconds = seconds
        self._console = console()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._drawn = ""
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> LiveLine:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._ended.set()
            if self._drawn:
                self._out.draw(_ERASE)
        # It may be waiting for a platform; its answer is not shown any more.
        self._thread.join(_PATIENCE)

    def print_above(self, line: str, *, exact: bool = False) -> None:
        """A line of output; `exact` writes it as it is."""
        line = line if exact else visible(line)
        with self._lock:
            self._out.draw(f"{_ERASE}{line}\n{self._drawn}" if self._drawn else f"{line}\n")

    def _tick(self) -> None:
        while True:
            width = max(1, self._console.width - _KEPT_FREE)
            text = self._text(width)
            with self._lock:
                if self._ended.is_set():
                    return
                self._drawn = _fit(text, width)
                self._out.draw(_ERASE + self._drawn)
            if self._ended.wait(self._seconds):
                return


def _fit(text: str, width: int) -> str:
    """In one row: a longer line could not be erased."""
    from tao_sdk.cli.consoles import plain

    line = plain(one_line(text))
    line.truncate(width, overflow="ellipsis")
    return f"{_DIM}{line.plain}{_PLAIN}"
