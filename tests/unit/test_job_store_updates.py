"""What observations change, what they may not change, and that unchanged polls write nothing."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.errors import JobNotFoundError, ValidationError
from tao_sdk.job_store import JobStore, Row, StatusUpdate, decode

STATES = ("Pending", "Running", "Paused", "Complete", "Error", "Canceled", "Unknown")
ENDED = ("Complete", "Error", "Canceled")


@pytest.fixture
def store() -> JobStore:
    store = JobStore(":memory:")
    store.create_job("job-1", "dino", "train", "local")
    return store


def row_of(store: JobStore, job_id: str = "job-1") -> Row:
    row = store.get_job(job_id)
    assert row is not None
    return row


def apply(store: JobStore, **fields: Any) -> dict[str, str]:
    return store.apply_updates([StatusUpdate("job-1", **fields)])


def status_events(store: JobStore) -> list[tuple[str, str]]:
    return [
        (e["from_status"], e["to_status"]) for e in store.events("job-1") if e["kind"] == "status"
    ]


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_ended_is_final_and_everything_else_moves_freely(before: str, after: str) -> None:
    store = JobStore(":memory:")
    store.create_job("job-1", "dino", "train", "local", status=before)
    changed = apply(store, status=after)
    moves = before not in ENDED and before != after
    assert changed == ({"job-1": after} if moves else {})
    assert row_of(store)["status"] == (after if moves else before)
    assert status_events(store) == ([(before, after)] if moves else [])


def test_every_field_reaches_its_column(store: JobStore) -> None:
    apply(
        store,
        status="Running",
        message="on node 3",
        exit_code=0,
        started_at="2024-01-01T00:00:00+00:00",
        ended_at="2024-01-02T00:00:00+00:00",
        native={"id": "c1"},
        missing_since="2024-01-03T00:00:00+00:00",
        poll_error="unreachable",
        last_epoch=7,
        observed=True,
    )
    row = row_of(store)
    assert row["message"] == "on node 3"
    assert row["exit_code"] == 0
    assert row["started_at"] == "2024-01-01T00:00:00+00:00"
    assert row["ended_at"] == "2024-01-02T00:00:00+00:00"
    assert decode(row, "native") == {"id": "c1"}
    assert row["missing_since"] == "2024-01-03T00:00:00+00:00"
    assert row["poll_error"] == "unreachable"
    assert row["poll_error_since"] == row["observed_at"] != ""
    assert row["last_epoch"] == 7
    event = store.events("job-1")[-1]
    assert event["message"] == "on node 3"
    assert event["actor"].startswith(f"{os.getpid()}@")


def test_none_keeps_what_is_known(store: JobStore) -> None:
    apply(store, status="Running", message="m", exit_code=3, native={"a": 1}, last_epoch=2)
    before = row_of(store)
    assert apply(store) == {}
    assert row_of(store) == before


def test_the_beginning_of_a_poll_error_is_kept_until_it_is_over(store: JobStore) -> None:
    apply(store, poll_error="timeout")
    since = row_of(store)["poll_error_since"]
    assert since
    apply(store, poll_error="refused")
    row = row_of(store)
    assert (row["poll_error"], row["poll_error_since"]) == ("refused", since)
    apply(store, poll_error="")
    row = row_of(store)
    assert (row["poll_error"], row["poll_error_since"]) == ("", "")


def test_the_end_answers_open_questions(store: JobStore) -> None:
    apply(store, poll_error="timeout", missing_since="2024-01-01T00:00:00+00:00")
    apply(store, status="Complete")
    row = row_of(store)
    assert (row["poll_error"], row["poll_error_since"], row["missing_since"]) == ("", "", "")


def test_after_the_end_only_missing_facts_are_filled_in(store: JobStore) -> None:
    apply(store, status="Error")
    apply(store, status="Running", message="late", exit_code=137, ended_at="t1", started_at="t0")
    row = row_of(store)
    assert (row["status"], row["message"], row["exit_code"]) == ("Error", "late", 137)
    assert (row["started_at"], row["ended_at"]) == ("t0", "t1")
    before = row
    apply(
        store,
        message="later",
        exit_code=1,
        ended_at="t9",
        native={"x": 1},
        poll_error="gone",
        missing_since="t9",
        observed=True,
    )
    assert row_of(store) == before


def test_after_the_end_the_epoch_may_still_grow(store: JobStore) -> None:
    apply(store, status="Complete", last_epoch=5)
    apply(store, last_epoch=8)
    apply(store, last_epoch=3)
    assert row_of(store)["last_epoch"] == 8


def test_an_exit_code_of_zero_counts_as_known(store: JobStore) -> None:
    apply(store, status="Complete", exit_code=0)
    apply(store, exit_code=1)
    assert row_of(store)["exit_code"] == 0


class TestRowsAfter:
    """The rows that a refresh answers with, of which most were read before and have not changed."""

    def test_they_are_the_stored_ones(self, store: JobStore) -> None:
        known = store.jobs_by_id(["job-1"])
        news = StatusUpdate("job-1", status="Running", message="half \udcff", observed=True)
        assert store.rows_after([news], known) == store.jobs_by_id(["job-1"])
        assert row_of(store)["status"] == "Running"
        assert row_of(store)["updated_at"] > known["job-1"]["updated_at"]

    def test_what_another_has_found_since_is_not_undone(self, store: JobStore) -> None:
        known = store.jobs_by_id(["job-1"])
        apply(store, status="Complete")
        late = StatusUpdate("job-1", status="Running")
        assert store.rows_after([late], known)["job-1"]["status"] == "Complete"

    def test_what_is_not_new_is_not_read_again(self, store: JobStore) -> None:
        apply(store, status="Running", observed=True)
        known = store.jobs_by_id(["job-1"])
        apply(store, status="Complete")
        same = StatusUpdate("job-1", status="Running", observed=True)
        assert store.rows_after([same], known) == known


class TestUnchangedPolls:
    """Lesson D9: a poll that brings nothing new must not rewrite the row."""

    def test_they_write_nothing(self, tmp_path: Path) -> None:
        store = JobStore(tmp_path / "jobs.db")
        store.create_job("job-1", "dino", "train", "local", status="Running")
        same = StatusUpdate(
            "job-1", status="Running", native={}, poll_error="", missing_since="", observed=True
        )
        store.apply_updates([same])
        with store._database.read() as connection:
            before = connection.execute("PRAGMA data_version").fetchone()[0]
        # Somebody holding the write lock would make any attempt to write fail.
        other = JobStore(tmp_path / "jobs.db")
        with other._database.write():
            assert store.apply_updates([same]) == {}
        with store._database.read() as connection:
            assert connection.execute("PRAGMA data_version").fetchone()[0] == before

    def test_the_order_of_keys_is_no_news(self, store: JobStore) -> None:
        apply(store, native={"a": 1, "b": 2})
        before = row_of(store)
        apply(store, native={"b": 2, "a": 1})
        assert row_of(store) == before

    def test_being_observed_is_noted_once_a_minute(self, store: JobStore) -> None:
        apply(store, observed=True)
        first = row_of(store)
        assert first["observed_at"]
        apply(store, observed=True)
        assert row_of(store) == first
        earlier = (datetime.now(timezone.utc) - timedelta(seconds=61)).isoformat()
        with store._database.write() as connection:
            connection.execute("UPDATE jobs SET observed_at = ?", (earlier,))
        apply(store, observed=True)
        row = row_of(store)
        assert row["observed_at"] > first["observed_at"]
        assert row["updated_at"] == first["updated_at"], "being seen is not a change"

    def test_being_observed_is_noted_with_every_change(self, store: JobStore) -> None:
        apply(store, observed=True)
        first = row_of(store)["observed_at"]
        apply(store, observed=True, message="news")
        assert row_of(store)["observed_at"] > first


def test_many_jobs_in_one_call(store: JobStore) -> None:
    for number in range(1200):
        store.create_job(f"many-{number}", "dino", "train", "local")
    updates = (StatusUpdate(f"many-{number}", status="Running") for number in range(1200))
    assert len(store.apply_updates(updates)) == 1200
    assert len(store.list_jobs(status="Running")) == 1200


def test_several_updates_of_one_job_apply_in_order(store: JobStore) -> None:
    updates = [
        StatusUpdate("job-1", status="Running"),
        StatusUpdate("job-1", status="Complete"),
        StatusUpdate("job-1", status="Error"),
    ]
    assert store.apply_updates(updates) == {"job-1": "Complete"}
    assert status_events(store) == [("Pending", "Running"), ("Running", "Complete")]


def test_unknown_jobs_are_passed_over(store: JobStore) -> None:
    updates = [StatusUpdate("pruned", status="Running"), StatusUpdate("job-1", status="Running")]
    assert store.apply_updates(updates) == {"job-1": "Running"}


def test_one_bad_update_stops_the_whole_call(store: JobStore) -> None:
    updates = [StatusUpdate("job-1", status="Running"), StatusUpdate("job-1", status="Banana")]
    with pytest.raises(ValidationError, match="Banana"):
        store.apply_updates(updates)
    assert row_of(store)["status"] == "Pending"


class TestCancelling:
    def test_the_first_request_counts(self, store: JobStore) -> None:
        first = store.request_cancel("job-1")
        assert first == row_of(store)["cancel_requested_at"] != ""
        assert store.request_cancel("job-1") == first
        assert [e["kind"] for e in store.events("job-1")] == ["recorded", "cancel_requested"]
        assert row_of(store)["status"] == "Pending"

    def test_a_job_that_has_ended_is_left_alone(self, store: JobStore) -> None:
        apply(store, status="Complete")
        before = row_of(store)
        assert store.request_cancel("job-1") == ""
        assert row_of(store) == before

    def test_unknown_job(self, store: JobStore) -> None:
        with pytest.raises(JobNotFoundError, match="nobody"):
            store.request_cancel("nobody")


def test_the_first_explanation_stays(store: JobStore) -> None:
    apply(store, status="Error")
    assert row_of(store)["failure"] is None
    assert decode(row_of(store), "failure") == {}
    assert store.record_failure("job-1", {"cause": "oom"})
    assert not store.record_failure("job-1", {"cause": "other"})
    assert not store.record_failure("nobody", {"cause": "other"})
    assert decode(row_of(store), "failure") == {"cause": "oom"}


def test_explanations_of_many_jobs_at_once(store: JobStore) -> None:
    store.create_job("job-2", "dino", "train", "local")
    assert store.record_failure("job-1", {"cause": "oom"})
    causes = {name: {"cause": f"of {name}"} for name in ("job-1", "job-2", "nobody")}
    rows = store.record_failures(causes)
    assert rows == store.jobs_by_id(["job-1", "job-2"])
    assert [decode(row, "failure")["cause"] for row in rows.values()] == ["oom", "of job-2"]
    assert store.record_failures({}) == {}


def test_notes_in_the_history(store: JobStore) -> None:
    store.add_event("job-1", "log", "kept the log")
    event = store.events("job-1")[-1]
    assert (event["kind"], event["message"]) == ("log", "kept the log")
    with pytest.raises(JobNotFoundError):
        store.add_event("nobody", "log")


class TestCleaningUp:
    def test_it_is_noted_and_cleared_after_the_end(self, store: JobStore) -> None:
        assert row_of(store)["cleanup_due"] == 0
        apply(store, status="Complete", cleanup_due=True)
        assert row_of(store)["cleanup_due"] == 1
        apply(store, message="a late fact")
        assert [row["job_id"] for row in store.jobs_to_clean()] == ["job-1"]
        apply(store, cleanup_due=False)
        assert row_of(store)["cleanup_due"] == 0
        assert store.jobs_to_clean() == []

    def test_it_may_become_due_after_the_end(self, store: JobStore) -> None:
        apply(store, status="Error")
        apply(store, cleanup_due=True)
        assert row_of(store)["cleanup_due"] == 1

    def test_before_the_end_too(self, store: JobStore) -> None:
        apply(store, cleanup_due=True)
        assert row_of(store)["cleanup_due"] == 1

    def test_it_is_no_news_about_the_job(self, store: JobStore) -> None:
        apply(store, status="Complete")
        before = row_of(store)
        apply(store, cleanup_due=True)
        assert row_of(store) == {**before, "cleanup_due": 1}

    def test_by_platform_and_oldest_first(self, store: JobStore) -> None:
        for name, platform in (("b", "docker"), ("a", "docker"), ("c", "slurm")):
            store.create_job(name, "dino", "train", "local", backend_type=platform)
        store.apply_updates(
            StatusUpdate(name, status="Error", cleanup_due=True) for name in ("a", "b", "c")
        )
        assert [row["job_id"] for row in store.jobs_to_clean("docker")] == ["b", "a"]
        assert [row["job_id"] for row in store.jobs_to_clean()] == ["b", "a", "c"]

    def test_the_same_again_writes_nothing(self, store: JobStore) -> None:
        apply(store, status="Complete", cleanup_due=True)
        before = row_of(store)
        apply(store, cleanup_due=True)
        assert row_of(store) == before
