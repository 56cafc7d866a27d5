"""Real services for tests, and what to do when one is not there."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(lab: str, reason: str, install: str) -> NoReturn:
    """Skip with the reason and the command that would help; fail where the lab is demanded."""
    required = os.environ.get("TAO_LAB_REQUIRE", "").replace(",", " ").split()
    message = f"lab {lab!r} is not available: {reason}. To have it: {install}"
    if lab in required:
        pytest.fail(message)
    pytest.skip(message)
