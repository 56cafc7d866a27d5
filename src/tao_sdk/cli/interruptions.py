"""SIGTERM as an exception, so that a command can report on its unfinished work."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class TerminatedError(BaseException):
    """SIGTERM. Like KeyboardInterrupt, not for `except Exception`."""


@contextlib.contextmanager
def termination_raises() -> Iterator[None]:
    """Within the block SIGTERM raises `TerminatedError`."""

    def terminate(*_: object) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
