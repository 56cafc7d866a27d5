"""A whole answer, and after which delay its request may be repeated. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.secrets import Secret, redact

BUSY = 429
# Answers of a server, or of a gateway before it, that may be different a moment later.
_TEMPORARY = (500, 502, 503, 504)
_QUOTED_CHARACTERS = 300
# Seconds before each repeat. A shorter Retry-After does not count: zero would be a busy loop.
_DELAYS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
_MAX_REPEATS_AFTER_FAILURE = 3
_MAX_RETRY_AFTER_SECONDS = 86400.0


class Response(NamedTuple):
    """A whole answer, decompressed. Names of headers are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_temporary(self) -> bool:
        """The server says neither yes nor no: it is too busy, or has failed."""
        return self.status == BUSY or self.status >= 500

    def json(self) -> Any:
        """The body as JSON; `ValueError` if it is something else."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def quoted(self) -> str:
        """The beginning of an answer that is not what was expected, for messages."""
        kind = self.headers.get("Content-Type", "no content type")
        text = " ".join(self.body[:_QUOTED_CHARACTERS].decode("utf-8", "replace").split())
        return f"HTTP {self.status}, {kind}: {text}" if text else f"HTTP {self.status}"

    def without(self, hide: Sequence[Secret]) -> Response:
        """The same, without these values in any form."""
        if not hide:
            return self
        return self._replace(body=redact(self.body.decode("utf-8", "replace"), hide).encode())

    def delay(self, repeats: int, *, repeatable: bool) -> float | None:
        """Seconds until the request may be repeated, after so many repeats; None for not at all.

        "Too busy" means that nothing was done. After a failure something may have been done, so
        only what is harmless to repeat is repeated.
        """
        if self.status != BUSY:
            temporary = repeatable and self.status in _TEMPORARY
            if not temporary or repeats >= _MAX_REPEATS_AFTER_FAILURE:
                return None
        least = _DELAYS[min(repeats, len(_DELAYS) - 1)]
        return max(least, self.retry_after)

    @property
    def retry_after(self) -> float:
        """Seconds that the server asks us to wait; 0 if it does not say, or makes no sense."""
        from urllib3.exceptions import InvalidHeader
        from urllib3.util import Retry

        try:
            asked = Retry().parse_retry_after(self.headers.get("Retry-After", "0"))
        except (InvalidHeader, ValueError, OverflowError):  # of a number or year that is too large
            return 0.0
        return min(asked, _MAX_RETRY_AFTER_SECONDS)
