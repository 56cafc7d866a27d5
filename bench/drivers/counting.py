"""How many HTTP requests this process sends, whoever of it sends them.

Every client here, urllib3 included, ends up in one method of the standard library.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Any

_sent: list[str] = []
"""What was asked for; appending is safe in threads."""
_put_request: Callable[..., None] = http.client.HTTPConnection.putrequest


def _note(
    connection: http.client.HTTPConnection, method: str, url: str, *rest: Any, **options: Any
) -> None:
    _sent.append(url)
    _put_request(connection, method, url, *rest, **options)


http.client.HTTPConnection.putrequest = _note  # type: ignore[method-assign]  # played by the test


class Counter:
    """Counts, and takes the time, from its making on."""

    def __init__(self) -> None:
        self._before, self._began = len(_sent), time.monotonic()

    def taken(self) -> dict[str, float]:
        """What it took until now."""
        return {"seconds": time.monotonic() - self._began, "requests": float(self.requests)}

    @property
    def watches(self) -> int:
        """Requests whose answer is a stream of changes."""
        return sum("watch=" in url for url in _sent[self._before :])

    @property
    def requests(self) -> int:
        """All others."""
        return len(_sent) - self._before - self.watches
