"""Real services and data for tests, and what to do when one is not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest


def unavailable(lab: str, reason: str, install: str) -> NoReturn:
    """Skip with the reason and the command that would help; fail where the lab is demanded."""
    required = os.environ.get("TAO_LAB_REQUIRE", "").replace(",", " ").split()
    message = f"lab {lab!r} is not available: {reason}. To have it: {install}"
    if lab in required:
        pytest.fail(message)
    pytest.skip(message)


def skill_bank() -> Path:
    """The folder with real skill-bank data that TAO_TEST_BANK names."""
    named = os.environ.get("TAO_TEST_BANK", "")
    if not named or not Path(named).is_dir():
        unavailable(
            "bank",
            f"TAO_TEST_BANK={named!r} is not a folder",
            "TAO_TEST_BANK=/path/to/a/skill/bank make test",
        )
    return Path(named)
