"""Forgetting what has ended, and writing everything out."""

from __future__ import annotations

import io
import json
from datetime import datetime, timedelta, timezone

import pytest

from tao_sdk.errors import ValidationError
from tao_sdk.job_store import JobStore, StatusUpdate

NOW = datetime.now(timezone.utc)


@pytest.fixture
def store() -> JobStore:
    return JobStore(":memory:")


def add(
    store: JobStore,
    job_id: str,
    status: str = "Complete",
    *,
    parent: str | None = None,
    days_old: float = 0,
) -> None:
    store.create_job(job_id, "dino", "train", "local", status=status, parent_job_id=parent)
    changed = (NOW - timedelta(days=days_old)).isoformat()
    with store._database.write() as connection:
        connection.execute("UPDATE jobs SET updated_at = ? WHERE job_id = ?", (changed, job_id))


def ids(store: JobStore) -> list[str]:
    return sorted(row["job_id"] for row in store.list_jobs())


def test_what_is_to_be_cleaned_up_is_not_pruned(store: JobStore) -> None:
    """Only the record says where the credentials of a job are."""
    add(store, "left-overs", days_old=9)
    add(store, "clean", days_old=9)
    store.apply_updates([StatusUpdate("left-overs", cleanup_due=True)])
    with store._database.write() as connection:
        connection.execute("UPDATE jobs SET updated_at = '2020-01-01T00:00:00+00:00'")
    assert store.prune(older_than=timedelta(days=1)) == ["clean"]


class TestDeleting:
    def test_a_job_goes_with_all_that_belongs_to_it(self, store: JobStore) -> None:
        """Lesson D4: rows used to stay for ever."""
        add(store, "job-1")
        store.add_checkpoint("job-1", "/x.pth")
        assert store.delete_job("job-1")
        assert not store.delete_job("job-1")
        assert (ids(store), store.events(), store.get_checkpoints("job-1")) == ([], [], [])

    def test_a_job_that_has_not_ended_stays(self, store: JobStore) -> None:
        add(store, "job-1", "Running")
        with pytest.raises(ValidationError, match="has not ended"):
            store.delete_job("job-1")
        assert ids(store) == ["job-1"]

    def test_a_parent_stays(self, store: JobStore) -> None:
        add(store, "mother")
        add(store, "child", parent="mother")
        with pytest.raises(ValidationError, match="parent of child"):
            store.delete_job("mother")
        assert store.delete_job("child")
        assert store.delete_job("mother")


class TestPruning:
    def test_by_age(self, store: JobStore) -> None:
        add(store, "old", days_old=8)
        add(store, "young", days_old=6)
        add(store, "old-but-running", "Running", days_old=8)
        assert store.prune(older_than=timedelta(days=7)) == ["old"]
        assert ids(store) == ["old-but-running", "young"]

    def test_by_number(self, store: JobStore) -> None:
        for number in range(5):
            add(store, f"job-{number}")
        add(store, "running", "Running")
        assert store.prune(keep=2) == ["job-2", "job-1", "job-0"]
        assert ids(store) == ["job-3", "job-4", "running"]

    def test_by_both(self, store: JobStore) -> None:
        add(store, "old-1", days_old=9)
        add(store, "old-2", days_old=9)
        add(store, "young", days_old=1)
        assert store.prune(older_than=timedelta(days=7), keep=2) == ["old-1"]

    def test_rehearsal(self, store: JobStore) -> None:
        add(store, "job-1")
        assert store.prune(keep=0, dry_run=True) == ["job-1"]
        assert ids(store) == ["job-1"]

    def test_parents_of_what_remains_remain(self, store: JobStore) -> None:
        add(store, "grandmother", days_old=9)
        add(store, "mother", days_old=9, parent="grandmother")
        add(store, "child", "Running", days_old=9, parent="mother")
        add(store, "other", days_old=9, parent="grandmother")
        add(store, "alone", days_old=9)
        assert sorted(store.prune(older_than=timedelta(days=7))) == ["alone", "other"]
        assert ids(store) == ["child", "grandmother", "mother"]

    def test_whole_families_go_together(self, store: JobStore) -> None:
        add(store, "mother")
        add(store, "child", parent="mother")
        assert store.prune(keep=0) == ["child", "mother"]
        assert ids(store) == []

    def test_more_jobs_than_one_statement_takes(self, store: JobStore) -> None:
        for number in range(1100):
            add(store, f"job-{number}")
        assert len(store.prune(keep=50)) == 1050
        assert len(ids(store)) == 50

    def test_times_of_other_programs_are_understood(self, store: JobStore) -> None:
        for job_id, time in (
            ("zulu", "2020-01-01T00:00:00Z"),
            ("naive", "2020-01-01 00:00:00"),
            ("garbage", "long ago"),
        ):
            add(store, job_id)
            with store._database.write() as connection:
                connection.execute(
                    "UPDATE jobs SET updated_at = ? WHERE job_id = ?", (time, job_id)
                )
        assert sorted(store.prune(older_than=timedelta(days=7))) == ["garbage", "naive", "zulu"]

    def test_something_must_be_said(self, store: JobStore) -> None:
        with pytest.raises(ValidationError, match="older_than, keep"):
            store.prune()
        with pytest.raises(ValidationError, match="keep=-1"):
            store.prune(keep=-1)


class TestExport:
    def test_a_line_per_job_newest_first(self, store: JobStore) -> None:
        store.create_job("job-1", "dino", "train", "local", specs={"lr": 0.1})
        store.add_checkpoint("job-1", "/x.pth", 3)
        store.create_job("job-2", "dino", "train", "local", status="Error")
        store.record_failure("job-2", {"cause": "oom"})
        out = io.StringIO()
        assert store.export(out) == 2
        newest, oldest = (json.loads(line) for line in out.getvalue().splitlines())
        assert (newest["job_id"], newest["failure"]) == ("job-2", {"cause": "oom"})
        assert newest["checkpoints"] == []
        assert (oldest["specs"], oldest["failure"]) == ({"lr": 0.1}, None)
        assert oldest["checkpoints"][0]["path"] == "/x.pth"
        assert [event["kind"] for event in oldest["events"]] == ["recorded"]

    @pytest.mark.parametrize(
        ("limit", "count"), [(None, 450), (0, 0), (1, 1), (200, 200), (999, 450)]
    )
    def test_pages(self, store: JobStore, limit: int | None, count: int) -> None:
        for number in range(450):
            store.create_job(f"job-{number}", "dino", "train", "local")
        out = io.StringIO()
        assert store.export(out, limit=limit) == count
        names = [json.loads(line)["job_id"] for line in out.getvalue().splitlines()]
        assert names == [f"job-{number}" for number in range(449, 449 - count, -1)]

    def test_the_store_can_be_used_while_a_slow_reader_takes_the_export(
        self, store: JobStore
    ) -> None:
        class WritingBack(io.StringIO):
            def write(self, text: str) -> int:
                store.create_job(f"during-{self.tell()}", "dino", "train", "local")
                return super().write(text)

        for number in range(3):
            store.create_job(f"job-{number}", "dino", "train", "local")
        out = WritingBack()
        assert store.export(out) == 3
        assert len(ids(store)) == 6
