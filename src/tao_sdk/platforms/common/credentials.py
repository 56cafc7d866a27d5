"""The client's credentials under their names in jobs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tao_sdk import settings
from tao_sdk.secrets import Secret


def job_credentials(own: Mapping[str, Any]) -> dict[str, str]:
    """The client's credentials under their names in a job, without those that `own` sets.

    Values are secret.
    """
    return {
        name: value for name, value in settings.injected_credentials().items() if name not in own
    }


def values_in(environment: str) -> list[Secret]:
    """The values that a staged shell environment (`export NAME=value`) sets, as secrets."""
    pairs = (word.partition("=") for word in shlex.split(environment))
    return [Secret(value) for _, equals, value in pairs if equals and value]
