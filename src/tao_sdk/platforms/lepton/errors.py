"""Refusals of the server as exceptions. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tao_sdk.platforms.rest import RefusedError, Response

_QUOTED_CHARACTERS = 300


def refusal(response: Response, call: str, workspace: str) -> RefusedError:
    """The answer as an exception; `workspace` is for messages."""
    reason = _reason(response)
    if response.status == 401:
        reason = (
            f"{workspace} does not accept the token ({reason}): it may have expired. Make another "
            "one in the dashboard (Settings > Tokens) and set LEPTON_AUTH_TOKEN"
        )
    elif response.status == 403:
        reason = f"{reason}: the owner of LEPTON_AUTH_TOKEN may not do this ({call})"
    return RefusedError(response.status, reason, call)


def _reason(response: Response) -> str:
    try:
        found = response.json()
    except ValueError:
        return response.quoted()
    reason: Any = found
    if isinstance(found, Mapping):
        reason = found.get("message") or found.get("error") or found.get("detail") or ""
    text = reason if isinstance(reason, str) else json.dumps(reason)
    status = f"HTTP {response.status}"
    return f"{status}: {text[:_QUOTED_CHARACTERS]}" if text else status
