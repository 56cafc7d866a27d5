"""What can go wrong with a request, in words."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import urllib3.exceptions
from urllib3.exceptions import (
    ConnectTimeoutError,
    DecodeError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
)

from tao_sdk.errors import PlatformError
from tao_sdk.platforms.rest.response import BUSY

_BEFORE_SENDING = (NewConnectionError, ConnectTimeoutError, ProxyError)


class RefusedError(PlatformError):
    """The server answered, and the answer is no."""

    def __init__(self, status: int, message: str, call: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.call = call

    @property
    def unauthorized(self) -> bool:
        """The server does not accept our credential."""
        return self.status == 401

    @property
    def forbidden(self) -> bool:
        return self.status == 403

    @property
    def missing(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """It exists already, or was changed by another client."""
        return self.status == 409

    @property
    def busy(self) -> bool:
        """The server did nothing, because it has too much to do."""
        return self.status == BUSY


def describe(error: HTTPError) -> str:
    """What went wrong on the way to the server, or on the way back."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message})"
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {cause.reason or cause}"
    if isinstance(error, ProxyError):
        return f"its proxy does not connect us: {_first_reason(causes[1:] or causes)}"
    if isinstance(error, NameResolutionError):
        return f"its name cannot be resolved: {_first_reason(causes[1:] or causes)}"
    is_time_out = isinstance(error, urllib3.exceptions.TimeoutError)
    if is_time_out and not isinstance(error, NewConnectionError):
        return "it did not answer in time"
    if isinstance(error, DecodeError):
        return "its answer is damaged: it cannot be decompressed"
    return _first_reason(causes)


def may_have_arrived(error: HTTPError) -> bool:
    """Whether the server may have got the request."""
    untrusted = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))
    return not (untrusted or isinstance(error, _BEFORE_SENDING))


def _first_reason(causes: list[BaseException]) -> str:
    """The operating system's own words if it has any, else those of the innermost error."""
    for cause in causes:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return str(causes[-1]) or type(causes[-1]).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it was made of, outermost first."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [inner for inner in (*one.args, one.__cause__) if isinstance(inner, Exception)]
