"""SIGTERM and SIGINT: they end the action at once, or between two batches once it trains."""

from __future__ import annotations

import signal
from types import FrameType

from .errors import InterruptedBySignal


class StopRequests:
    """Turns the two signals into `InterruptedBySignal`, or only notes them after `defer()`."""

    def __init__(self) -> None:
        self.noted = 0
        """The number of the last signal that was noted; 0 when none was."""
        self._deferred = False
        # Also needed for SIGTERM's ordinary effect: process 1 of a container does not get a
        # signal that it has no handler for.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def defer(self) -> None:
        """From now on somebody looks at `noted`."""
        self._deferred = True

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._deferred:
            self.noted = number
            return
        # A signal often comes twice (to the process and to its group): the second must not
        # cut off the handling of the first.
        self._deferred = True
        raise InterruptedBySignal(number)
