"""The rules that make a status trustworthy."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tao_sdk.models import JobState
from tao_sdk.platforms.backend import Observation
from tao_sdk.platforms.observation import (
    describe,
    update_for_missing,
    update_for_unreachable,
    update_from_observation,
)
from tao_sdk.result_record import ResultRecord

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=timezone.utc)
GRACE = timedelta(seconds=60)


def row(**changes: Any) -> dict[str, Any]:
    base = {
        "job_id": "j",
        "status": "Running",
        "message": "",
        "poll_error": "",
        "poll_error_since": "",
        "missing_since": "",
        "cancel_requested_at": "",
        "updated_at": "t",
    }
    return {**base, **changes}


def record(code: int, rank: int = 0, ended: str = "2026-01-01T11:59:00Z") -> ResultRecord:
    return ResultRecord("j", code, "2026-01-01T11:00:00Z", ended, rank=rank)


def test_seen_again_clears_every_doubt() -> None:
    update = update_from_observation(row(missing_since="x"), Observation(JobState.RUNNING, "m"))
    assert (update.status, update.message, update.missing_since, update.poll_error) == (
        "Running",
        "m",
        "",
        "",
    )


def test_a_failed_poll_is_not_a_state() -> None:
    update = update_for_unreachable(row(), "connection refused")
    assert update.status is None
    assert update.poll_error == "connection refused"


def test_the_message_says_since_when_and_what_was_known() -> None:
    status = describe(row(poll_error="refused", poll_error_since="10:00", message="step 3"))
    assert status.status == "Running"
    assert status.message == (
        "cannot reach the platform since 10:00: refused; last known state Running (step 3)"
    )
    ended = describe(row(status="Complete", poll_error="refused", message="completed"))
    assert ended.message == "completed"


@pytest.mark.parametrize(
    ("asked", "ended", "state"),
    [
        ("", "2026-01-01T12:00:00Z", "Error"),
        ("2026-01-01T12:00:00+00:00", "2026-01-01T12:00:05Z", "Canceled"),
        ("2026-01-01T12:00:00.900000+00:00", "2026-01-01T12:00:00Z", "Canceled"),
        ("2026-01-01T12:00:10+00:00", "2026-01-01T12:00:05Z", "Error"),
        ("2026-01-01T12:00:00+00:00", "", "Canceled"),
    ],
)
def test_cancelled_or_failed(asked: str, ended: str, state: str) -> None:
    seen = Observation(JobState.ERROR, "x", 143, ended_at=ended)
    assert update_from_observation(row(cancel_requested_at=asked), seen).status == state


def test_a_job_that_finished_first_was_not_cancelled() -> None:
    asked = row(cancel_requested_at="2026-01-01T12:00:00+00:00")
    assert update_from_observation(asked, Observation(JobState.COMPLETE)).status == "Complete"


class TestMissing:
    def test_settled_by_its_record(self) -> None:
        update = update_for_missing(row(), [record(0)], 1, NOW, GRACE)
        assert (update.status, update.exit_code) == ("Complete", 0)
        update = update_for_missing(row(), [record(0), record(7, rank=1)], 2, NOW, GRACE)
        assert (update.status, update.exit_code) == ("Error", 7)

    def test_half_the_records_prove_nothing(self) -> None:
        update = update_for_missing(row(), [record(0)], 2, NOW, GRACE)
        assert update.status is None
        assert update.missing_since == NOW.isoformat()

    def test_within_the_grace_period_nothing_is_decided(self) -> None:
        missing = row(missing_since=(NOW - GRACE / 2).isoformat())
        assert update_for_missing(missing, [], 1, NOW, GRACE).status is None

    @pytest.mark.parametrize(("asked", "state"), [("", "Error"), ("t", "Canceled")])
    def test_afterwards_it_ends(self, asked: str, state: str) -> None:
        """Lessons W12, F11: never Pending for ever."""
        missing = row(missing_since=(NOW - GRACE).isoformat(), cancel_requested_at=asked)
        update = update_for_missing(missing, [], 1, NOW, GRACE)
        assert update.status == state
        assert update.ended_at == NOW.isoformat()
