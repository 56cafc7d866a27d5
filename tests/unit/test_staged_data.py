"""What platforms do for commands that carry the runner."""

from __future__ import annotations

import pytest

from tao_sdk.platforms.staged_data import stop_seconds
from tao_sdk.script_runner import build_entrypoint


def test_the_runner_has_time_for_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace period and the delivery it writes its record and says how it ended."""
    monkeypatch.setenv("TAO_GRACE_SECONDS", "3")
    monkeypatch.setenv("TAO_DELIVERY_SECONDS", "40")
    assert stop_seconds("sleep 1") == 3
    assert stop_seconds(build_entrypoint(command="sleep 1")["command"]) == 53
