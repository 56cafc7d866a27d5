"""Finding jobs, and that an index answers whatever the size of the store."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tao_sdk.errors import AmbiguousJobError, JobNotFoundError, ValidationError
from tao_sdk.job_store import JobStore, NewJob, StatusUpdate, decode
from tao_sdk.job_store.queries import (
    STEP_QUERY,
    events_query,
    list_query,
    of_backend_query,
    prefix_query,
)
from tao_sdk.job_store.retention import CHILDREN_QUERY
from tao_sdk.job_store.schema import ACTIVE, TO_CLEAN
from tao_sdk.job_store.submissions import UNSETTLED_QUERY


@pytest.fixture
def store() -> JobStore:
    """Twelve jobs, a-0 to l-11, over two platforms and three states."""
    store = JobStore(":memory:")
    for number in range(12):
        store.create_job(
            f"{'abcdefghijkl'[number]}-{number}",
            "dino" if number < 6 else "clip",
            "train" if number % 3 else "export",
            "local",
            backend_type="docker" if number % 2 else "slurm",
            status=("Running", "Complete", "Pending")[number % 3],
        )
    return store


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["job_id"].split("-")[1]) for row in rows]


class TestListing:
    def test_newest_first(self, store: JobStore) -> None:
        assert numbers(store.list_jobs()) == list(range(11, -1, -1))

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({"status": "Running"}, [9, 6, 3, 0]),
            ({"status": ["Running", "Pending", "Running"]}, [11, 9, 8, 6, 5, 3, 2, 0]),
            ({"status": ()}, []),
            ({"network_arch": "clip"}, [11, 10, 9, 8, 7, 6]),
            ({"action": "export", "network_arch": "dino"}, [3, 0]),
            ({"backend_type": "docker"}, [11, 9, 7, 5, 3, 1]),
            ({"backend_type": "docker", "status": ("Complete", "Running")}, [9, 7, 3, 1]),
            ({"backend_type": "nowhere"}, []),
            ({"limit": 2}, [11, 10]),
            ({"limit": 0}, []),
            ({"limit": 3, "status": ("Complete", "Running")}, [10, 9, 7]),
        ],
    )
    def test_filters(self, store: JobStore, filters: dict[str, Any], expected: list[int]) -> None:
        """Lessons D4 and D5: limit=0 means none, and a platform sees its own jobs."""
        assert numbers(store.list_jobs(**filters)) == expected

    def test_pages(self, store: JobStore) -> None:
        seen: list[int] = []
        before = None
        while page := store.list_jobs(limit=5, before=before):
            seen += numbers(page)
            before = page[-1]["seq"]
        assert seen == list(range(11, -1, -1))

    def test_a_negative_limit_is_refused(self, store: JobStore) -> None:
        with pytest.raises(ValidationError, match="limit=-1"):
            store.list_jobs(limit=-1)

    def test_an_unknown_status_is_refused(self, store: JobStore) -> None:
        with pytest.raises(ValidationError, match="Banana"):
            store.list_jobs(status=["Running", "Banana"])


def test_active_jobs_oldest_first(store: JobStore) -> None:
    store.apply_updates([StatusUpdate("a-0", status="Unknown")])
    assert numbers(store.active_jobs()) == [0, 2, 3, 5, 6, 8, 9, 11]
    assert numbers(store.active_jobs("docker")) == [3, 5, 9, 11]
    assert store.active_jobs("nowhere") == []


def test_jobs_by_id(store: JobStore) -> None:
    found = store.jobs_by_id(["a-0", "nobody", "b-1", *(f"x{n}" for n in range(1500))])
    assert sorted(found) == ["a-0", "b-1"]
    assert found["a-0"]["network_arch"] == "dino"
    assert store.jobs_by_id([]) == {}


def test_newest_job_of_a_step(store: JobStore) -> None:
    store.create_job("first", "dino", "train", "local", plan_id="plan", step_id=1)
    store.create_job("again", "dino", "train", "local", plan_id="plan", step_id=1)
    found = store.get_job_by_plan_step("plan", 1)
    assert found is not None
    assert found["job_id"] == "again"
    assert store.get_job_by_plan_step("plan", 2) is None
    assert store.get_job_by_plan_step("", 0) is None


class TestFinding:
    @pytest.fixture
    def ids(self) -> JobStore:
        store = JobStore(":memory:")
        for job_id, backend in (
            ("3f2a9c", "docker"),
            ("3f2a", "docker"),
            ("3f2b-1", "slurm"),
            ("3f2b-2", "docker"),
            ("Zz_.-end", "docker"),
        ):
            store.create_job(job_id, "dino", "train", "local", backend_type=backend)
        return store

    @pytest.mark.parametrize(
        ("reference", "backend", "expected"),
        [
            ("3f2a9c", None, "3f2a9c"),
            ("3f2a9", None, "3f2a9c"),
            ("3f2a", None, "3f2a"),
            ("3f2b", "slurm", "3f2b-1"),
            ("Zz_.", None, "Zz_.-end"),
            ("-", None, "Zz_.-end"),
            ("-", "slurm", "3f2b-1"),
        ],
    )
    def test_found(self, ids: JobStore, reference: str, backend: str | None, expected: str) -> None:
        assert ids.find_job(reference, backend)["job_id"] == expected

    def test_several_candidates_are_listed(self, ids: JobStore) -> None:
        with pytest.raises(AmbiguousJobError, match="fits several") as caught:
            ids.find_job("3f2b")
        assert "3f2b-1" in str(caught.value)
        assert "3f2b-2" in str(caught.value)

    def test_not_too_many_candidates_are_listed(self, ids: JobStore) -> None:
        for number in range(30):
            ids.create_job(f"many-{number}", "dino", "train", "local")
        with pytest.raises(AmbiguousJobError) as caught:
            ids.find_job("many")
        assert str(caught.value).count("many-") == 10
        assert str(caught.value).endswith("...")

    @pytest.mark.parametrize(
        ("reference", "backend", "message"),
        [
            ("ffff", None, "no job 'ffff'"),
            ("3f2", None, "at least 4 characters"),
            ("", None, "at least 4 characters"),
            ("3f2a9c", "slurm", "belongs to platform 'docker'"),
            ("%%%%", None, "no job"),
            ("-", "lepton", "no job of platform lepton"),
        ],
    )
    def test_not_found(
        self, ids: JobStore, reference: str, backend: str | None, message: str
    ) -> None:
        with pytest.raises(JobNotFoundError, match=message):
            ids.find_job(reference, backend)


class TestHistory:
    def test_of_one_job_and_of_all(self, store: JobStore) -> None:
        store.apply_updates([StatusUpdate("a-0", status="Complete")])
        assert [e["kind"] for e in store.events("a-0")] == ["recorded", "status"]
        assert len(store.events()) == 13

    def test_pages(self, store: JobStore) -> None:
        first = store.events(limit=5)
        rest = store.events(after=first[-1]["seq"])
        assert len(first) == 5
        assert len(rest) == 7
        assert rest[0]["seq"] > first[-1]["seq"]
        assert store.events(limit=0) == []


LONG = {"command": "x" * 40_000, "num_nodes": 2, "env_names": ["V"] * 500, "gpu_count": 1}


class TestNarrowRows:
    @pytest.fixture
    def stored(self) -> JobStore:
        store = JobStore(":memory:")
        store.begin_submissions(
            [
                NewJob(name, "", "", "", "docker", "t", "o", specs={"lr": 1}, request=request)
                for name, request in (("long", LONG), ("short", {"command": "true"}))
            ]
        )
        return store

    def test_they_lack_only_the_specs(self, stored: JobStore) -> None:
        narrow, whole = stored.jobs_by_id(["short"])["short"], stored.get_job("short")
        assert whole is not None
        assert whole == {**narrow, "specs": '{"lr": 1}'}

    def test_a_long_request_is_whole_where_all_is_asked_for(self, stored: JobStore) -> None:
        text = json.dumps(LONG)
        stored.reject_submission("long", message="", failure={})
        row = stored.get_job("long")
        assert row is not None
        assert row["request"] == text
        assert stored.find_job("long")["request"] == text
        assert {row["request"] for row in stored.list_jobs("Error")} == {text}
        assert stored.whole_jobs_by_id(["long", "unknown"]) == {"long": row}
        out = io.StringIO()
        stored.export(out)
        assert text in {
            json.dumps(json.loads(line)["request"]) for line in out.getvalue().split("\n") if line
        }

    def test_polls_read_little_of_it(self, stored: JobStore) -> None:
        rows = [
            stored.jobs_by_id(["long"])["long"],
            *stored.active_jobs("docker")[:1],
            *stored.unsettled_submissions("docker")[:1],
            *stored.list_jobs(narrow=True)[1:],
        ]
        for row in rows:
            assert row["job_id"] == "long"
            assert decode(row, "request") == {
                "command": "x" * 200,
                "num_nodes": 2,
                "gpu_count": 1,
                "abridged": True,
            }
            assert "specs" not in row

    def test_it_goes_with_its_job(self, stored: JobStore) -> None:
        stored.reject_submission("long", message="", failure={})
        stored.delete_job("long")
        with stored._database.read() as connection:
            assert connection.execute("SELECT * FROM job_requests").fetchall() == []


PLANS: dict[str, tuple[str, list[Any]]] = {
    "newest": list_query(None, None, None, 20, None, None),
    "newest by status": list_query("Running", None, None, 20, None, None),
    "newest by platform": list_query(None, None, None, 20, "docker", None),
    "newest by both": list_query("Running", None, None, 20, "docker", None),
    "newest of several states": list_query(["Running", "Error"], None, None, 20, None, None),
    "several states of a platform": list_query(["Running", "Error"], None, None, 20, "x", None),
    "newest of a network": list_query(None, "dino", "train", 20, None, None),
    "a page": list_query("Running", None, None, 20, "docker", 5000),
    "active of a platform": of_backend_query(ACTIVE, "docker"),
    "to clean of a platform": of_backend_query(TO_CLEAN, "docker"),
    "beginning of an id": prefix_query("3f2a"),
    "step": (STEP_QUERY, ["plan", 1]),
    "children": (CHILDREN_QUERY, ["x"]),
    "unsettled": (UNSETTLED_QUERY, ["docker"]),
    "history of a job": events_query("x", 0, 10),
    "history of all": events_query(None, 0, 10),
}


@pytest.fixture(scope="module")
def large_store() -> JobStore:
    store = JobStore(":memory:")
    store.begin_submissions(
        [
            NewJob(f"job-{n}", "dino", "train", "local", "docker" if n % 2 else "slurm", "t", "o")
            for n in range(2000)
        ]
    )
    store.apply_updates(StatusUpdate(f"job-{n}", status="Complete") for n in range(1900))
    return store


@pytest.mark.parametrize("name", PLANS)
def test_an_index_answers_and_nothing_is_sorted(large_store: JobStore, name: str) -> None:
    """Lesson D2: the newest 20 of 10,000 jobs took a scan and a sort of all of them."""
    query, values = PLANS[name]
    with large_store._database.read() as connection:
        plan = [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert not [step for step in plan if step.startswith("SCAN")], plan
    assert not [step for step in plan if "TEMP B-TREE" in step], plan
    assert [step for step in plan if step.startswith("SEARCH")], plan


@pytest.mark.parametrize(
    ("condition", "index"), [(ACTIVE, "jobs_active"), (TO_CLEAN, "jobs_to_clean")]
)
def test_jobs_of_all_platforms_come_from_the_index_of_their_condition(
    large_store: JobStore, condition: str, index: str
) -> None:
    query, values = of_backend_query(condition, None)
    with large_store._database.read() as connection:
        plan = [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    assert plan == [f"SCAN jobs USING INDEX {index}"]
