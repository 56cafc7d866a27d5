"""Addresses in a storage that a registry signs for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .remote import Request

_LIFETIME_SECONDS = 60.0


class SignedAddress:
    """How to ask for one file's content; the registry is asked again after a minute.

    Not before every request: a large file comes in a thousand pieces, and registries limit how
    often they may be asked. Not only once: signatures expire.
    """

    def __init__(self, ask: Callable[[], Request]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._known: tuple[float, Request] | None = None

    def request(self) -> Request:
        with self._lock:  # whoever comes meanwhile waits for the same answer
            if self._known is None or time.monotonic() > self._known[0] + _LIFETIME_SECONDS:
                self._known = (time.monotonic(), self._ask())
            return self._known[1]
