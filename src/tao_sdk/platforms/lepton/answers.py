"""What the server says: refusals told apart, and whether to ask again. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tao_sdk.errors import CredentialError, PlatformError
from tao_sdk.runner.http import Answer
from tao_sdk.secrets import Secret, redact

BUSY = 429
_IN_TROUBLE = (500, 502, 503, 504)
_QUOTED_CHARACTERS = 300
# Where the server does not say how long: it may be restarting, or count requests per second.
_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
_SHORTEST_PAUSE = 0.05
# So often a server in trouble is asked again.
_TROUBLES = 3


class ApiError(PlatformError):
    """The server answered, and the answer is no."""

    def __init__(self, status: int, message: str, call: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.call = call

    @property
    def missing(self) -> bool:
        return self.status == 404

    @property
    def forbidden(self) -> bool:
        return self.status == 403

    @property
    def conflict(self) -> bool:
        return self.status == 409

    @property
    def busy(self) -> bool:
        """It has done nothing, because too much was asked of it."""
        return self.status == BUSY


class UnauthorizedError(ApiError, CredentialError):
    """The server does not accept our token (401)."""


def in_trouble(status: int) -> bool:
    """The server has not said yes or no, but that it cannot say."""
    return status == BUSY or status >= 500


def pause(answer: Answer, earlier: int, *, repeatable: bool) -> float | None:
    """In how many seconds to ask again, after so many answers of this kind; None: not at all."""
    # 429 comes before anything is done; the others may come afterwards.
    if not (answer.status == BUSY or (repeatable and answer.status in _IN_TROUBLE)):
        return None
    if answer.headers.get("retry-after", "").isdecimal():
        return max(_SHORTEST_PAUSE, answer.retry_after)
    if answer.status == BUSY:
        return _PAUSES[min(earlier, len(_PAUSES) - 1)]
    return _PAUSES[earlier] if earlier < _TROUBLES else None


def without(answer: Answer, hidden: Sequence[Secret]) -> Answer:
    """The answer, less what it quotes of these: as they are, and in JSON that is quoted in JSON."""
    texts = [secret.reveal() for secret in hidden]
    inside = [json.dumps(text)[1:-1] for text in texts]
    twice = [json.dumps(text)[1:-1] for text in inside]
    told = answer.body.decode("utf-8", "replace")
    return answer._replace(body=redact(told, map(Secret, [*texts, *inside, *twice])).encode())


def refusal(answer: Answer, call: str, whom: str) -> ApiError:
    """The answer as an exception; `whom` is the workspace, for messages."""
    said = message_of(answer)
    if answer.status == 401:
        return UnauthorizedError(
            401,
            f"{whom} does not accept the token ({said}): it may have expired. Make another one in "
            "the dashboard (Settings > Tokens) and set LEPTON_AUTH_TOKEN",
            call,
        )
    if answer.status == 403:
        said = f"{said}: the owner of LEPTON_AUTH_TOKEN may not do this ({call})"
    return ApiError(answer.status, said, call)


def message_of(answer: Answer) -> str:
    """What the answer says about itself."""
    try:
        found = json.loads(answer.body)
    except ValueError:
        return quoted(answer)
    told: Any = found
    if isinstance(found, Mapping):
        told = found.get("message") or found.get("error") or found.get("detail") or ""
    text = told if isinstance(told, str) else json.dumps(told)
    return f"HTTP {answer.status}: {text[:_QUOTED_CHARACTERS]}" if text else f"HTTP {answer.status}"


def quoted(answer: Answer) -> str:
    """The beginning of an answer that is not what was expected."""
    text = " ".join(answer.body[:_QUOTED_CHARACTERS].decode("utf-8", "replace").split())
    return f"HTTP {answer.status}: {text}" if text else f"HTTP {answer.status}"
