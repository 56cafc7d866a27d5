"""What a server says: refusals told apart, and whether to ask again."""

from __future__ import annotations

import http.client
import json
import ssl
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk.errors import PlatformError
from tao_sdk.platforms.kubernetes import binary
from tao_sdk.platforms.kubernetes.credentials import COULD_NOT, NoAccessError

BUSY = 429
_REPEATABLE = (500, 502, 503, 504)
_QUOTED_CHARACTERS = 300
# For a server in trouble that does not say how long: it may be restarting.
_PAUSES = (0.25, 1.0)


class ApiError(PlatformError):
    """The server answered, and the answer is no."""

    def __init__(
        self, status: int, reason: str, message: str, details: Mapping[str, Any], call: str
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """One word of Kubernetes: NotFound, AlreadyExists, Forbidden, Invalid, Expired, ..."""
        self.message = message
        self.details = dict(details)
        self.call = call

    @property
    def missing(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """It exists already, or somebody else has changed it."""
        return self.status == 409

    @property
    def unauthorized(self) -> bool:
        return self.status == 401

    @property
    def forbidden(self) -> bool:
        return self.status == 403

    @property
    def expired(self) -> bool:
        """The version that was asked for is too old: list again."""
        return self.status == 410


class UnauthorizedError(ApiError, NoAccessError):
    """The server does not accept our credential (401)."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def content(self) -> bytes:
        """The body, unpacked. Raises `ValueError` for a damaged one."""
        if self.headers.get("Content-Encoding", "").lower() != "gzip":
            return self.body
        try:
            return zlib.decompress(self.body, 16 + zlib.MAX_WBITS)
        except zlib.error:
            raise ValueError("a damaged gzip stream") from None

    def is_of(self, media_type: str) -> bool:
        told = self.headers.get("Content-Type", "")
        return told.partition(";")[0].strip().lower() == media_type

    @property
    def in_trouble(self) -> bool:
        """The server has not said yes or no, but that it cannot say."""
        return self.status == BUSY or self.status >= 500

    def pause(self, attempt: int, repeatable: bool) -> float | None:
        """In how many seconds to ask again, after so many attempts; None: not at all."""
        # 429 comes before anything is done; the others may come afterwards.
        if not (self.status == BUSY or (repeatable and self.status in _REPEATABLE)):
            return None
        told = self.headers.get("Retry-After", "")
        if told.isdigit():
            return float(told)
        return _PAUSES[attempt] if attempt < len(_PAUSES) else None

    def error(self, call: str, whom: str) -> ApiError:
        """The refusal as an exception; `whom` is the server, for messages."""
        status = self._status()
        message = str(status.get("message") or f"HTTP {self.status}")
        reason = str(status.get("reason") or "")
        details = status.get("details")
        if self.status == 401:
            message = (
                f"{COULD_NOT}: {whom} does not accept the credential ({message}). Log in again, or "
                "check with `kubectl get nodes`."
            )
        kind = UnauthorizedError if self.status == 401 else ApiError
        return kind(
            self.status, reason, message, details if isinstance(details, dict) else {}, call
        )

    def _status(self) -> Mapping[str, Any]:
        try:
            if self.is_of(binary.MEDIA_TYPE):
                return binary.read(self.content, binary.STATUS)
            found = json.loads(self.content)
        except ValueError:
            # Not of Kubernetes: a proxy or load balancer on the way.
            return {"message": self.quoted()}
        return found if isinstance(found, dict) else {}

    def quoted(self) -> str:
        """The beginning of an answer that is not what was expected."""
        kind = self.headers.get("Content-Type", "no content type")
        text = " ".join(self.body[:_QUOTED_CHARACTERS].decode("utf-8", "replace").split())
        return f"HTTP {self.status}, {kind}: {text}" if text else f"HTTP {self.status}"


def trouble(error: BaseException) -> str:
    """What went wrong on the way, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}): check certificate-authority "
            "and server of the kubeconfig"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
