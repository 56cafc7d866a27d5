"""The client's credentials, as jobs get them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tao_sdk import settings


def job_credentials(own: Mapping[str, Any]) -> dict[str, str]:
    """The client's credentials under their names in a job, without those that `own` sets.

    Values are secret.
    """
    return {
        name: value for name, value in settings.injected_credentials().items() if name not in own
    }
