"""Jobs as single rows, checkpoints and parents: the methods of the reference's store."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.errors import (
    JobExistsError,
    JobNotFoundError,
    StoreError,
    UnknownParentError,
    ValidationError,
)
from tao_sdk.job_store import JobStore, Row, decode
from tao_sdk.models import JobState


@pytest.fixture
def store() -> JobStore:
    return JobStore(":memory:")


def add(store: JobStore, job_id: str = "job-1", **columns: Any) -> Row:
    store.create_job(job_id, "dino", "train", "local", **columns)
    return row_of(store, job_id)


def row_of(store: JobStore, job_id: str = "job-1") -> Row:
    row = store.get_job(job_id)
    assert row is not None
    return row


CONTRACT_COLUMNS = {
    "job_id": "job-1",
    "network_arch": "dino",
    "action": "train",
    "workspace_id": "local",
    "backend_type": "",
    "backend_job_id": "",
    "status": "Pending",
    "parent_job_id": None,
    "image": "",
    "specs": "{}",
    "results_dir": "",
    "local_results_dir": "",
    "base_checkpoint": "",
    "plan_id": "",
    "step_id": 0,
    "last_epoch": 0,
    "instance_id": "",
}


class TestCreating:
    def test_a_bare_job_has_the_defaults_of_the_contract(self, store: JobStore) -> None:
        row = add(store)
        assert {name: row[name] for name in CONTRACT_COLUMNS} == CONTRACT_COLUMNS
        assert row["created_at"] == row["updated_at"] != ""
        assert row["phase"] == "recorded"

    def test_every_argument_reaches_its_column(self, store: JobStore) -> None:
        add(store, "mother")
        given: dict[str, Any] = {
            "backend_type": "docker",
            "backend_job_id": "c1",
            "status": "Running",
            "parent_job_id": "mother",
            "image": "nvcr.io/x",
            "specs": {"train": {"lr": 0.1}},
            "results_dir": "/r",
            "local_results_dir": "/l",
            "base_checkpoint": "ngc://m",
            "plan_id": "plan",
            "step_id": 3,
            "created_at": "2020-01-01T00:00:00+00:00",
        }
        row = add(store, **given)
        assert decode(row, "specs") == given.pop("specs")
        assert {name: row[name] for name in given} == given

    def test_signatures_are_those_of_the_contract(self) -> None:
        names = (
            "self job_id network_arch action workspace_id backend_type backend_job_id status "
            "parent_job_id image specs results_dir local_results_dir base_checkpoint plan_id "
            "step_id created_at"
        )
        for method in (JobStore.create_job, JobStore.create_job_if_absent):
            assert " ".join(inspect.signature(method).parameters) == names

    def test_replacing_a_job_that_has_not_ended(self, store: JobStore) -> None:
        seq = add(store, status="Running", image="old", results_dir="/r")["seq"]
        store.update_job_status("job-1", "Running", last_epoch=4)
        row = add(store, image="new")
        assert (row["status"], row["image"], row["results_dir"]) == ("Pending", "new", "")
        assert (row["last_epoch"], row["seq"]) == (0, seq)
        assert [event["kind"] for event in store.events("job-1")] == ["recorded", "replaced"]

    @pytest.mark.parametrize("status", ["Complete", "Error", "Canceled"])
    def test_a_job_that_has_ended_is_never_turned_back(self, store: JobStore, status: str) -> None:
        """Lesson D3: create_job must not make a finished job Pending again."""
        add(store, status=status)
        with pytest.raises(JobExistsError, match=f"has ended \\({status}\\)"):
            add(store)
        assert row_of(store)["status"] == status

    def test_if_absent_inserts_once(self, store: JobStore) -> None:
        assert store.create_job_if_absent("job-1", "dino", "train", "local")
        assert not store.create_job_if_absent("job-1", "other", "train", "local")
        assert row_of(store)["network_arch"] == "dino"

    @pytest.mark.parametrize("parent", ["nobody", "../../x"])
    def test_an_unknown_parent_is_named(self, store: JobStore, parent: str) -> None:
        """Lesson D13: not a bare IntegrityError."""
        with pytest.raises(UnknownParentError, match="parent_job_id"):
            add(store, parent_job_id=parent)
        assert store.get_job("job-1") is None

    def test_a_job_is_not_its_own_parent(self, store: JobStore) -> None:
        add(store)
        with pytest.raises(ValidationError, match="own parent"):
            add(store, parent_job_id="job-1")

    @pytest.mark.parametrize("job_id", ["../../etc/passwd", "a b", "$(x)", "a\nb", "", "-x"])
    def test_bad_ids_are_refused(self, store: JobStore, job_id: str) -> None:
        """Lessons D4 and F15: an id becomes a file, container and label name."""
        with pytest.raises(ValidationError, match="not a job id"):
            add(store, job_id)
        assert store.list_jobs() == []

    @pytest.mark.parametrize("status", ["Banana", "Canceling", "running", ""])
    def test_only_the_seven_states(self, store: JobStore, status: str) -> None:
        """Lesson D4: any text used to be a status."""
        with pytest.raises(ValidationError, match="Pending, Running, Paused, Complete, Error"):
            add(store, status=status)
        add(store)
        with pytest.raises(ValidationError):
            store.update_job_status("job-1", status)

    def test_a_state_may_be_given_as_such(self, store: JobStore) -> None:
        assert add(store, status=JobState.RUNNING)["status"] == "Running"
        assert store.update_job_status("job-1", JobState.COMPLETE)

    @pytest.mark.parametrize("specs", [{"a": float("nan")}, {"a": object()}, ["a"]])
    def test_specs_that_cannot_be_stored_are_refused(self, store: JobStore, specs: object) -> None:
        with pytest.raises(ValidationError, match="specs"):
            add(store, specs=specs)
        assert store.list_jobs() == []

    def test_text_that_is_no_unicode_is_stored_as_well_as_possible(self, store: JobStore) -> None:
        add(store, image="caf\udce9", specs={"name": "caf\udce9"})
        assert row_of(store)["image"] == "caf?"
        assert decode(row_of(store), "specs") == {"name": "caf\udce9"}


class TestChanging:
    def test_status_and_epoch(self, store: JobStore) -> None:
        add(store)
        assert store.update_job_status("job-1", "Running", last_epoch=3)
        assert (row_of(store)["status"], row_of(store)["last_epoch"]) == ("Running", 3)

    def test_an_end_is_final_and_may_be_repeated(self, store: JobStore) -> None:
        add(store)
        assert store.update_job_status("job-1", "Complete")
        assert not store.update_job_status("job-1", "Running")
        assert not store.update_job_status("job-1", "Error")
        assert store.update_job_status("job-1", "Complete", last_epoch=9)
        assert (row_of(store)["status"], row_of(store)["last_epoch"]) == ("Complete", 9)

    def test_an_unknown_job_is_not_updated(self, store: JobStore) -> None:
        assert not store.update_job_status("nobody", "Running")
        assert not store.compare_and_set_job_status("nobody", ("Pending",), "Running")
        assert not store.update_job_backend_id("nobody", "c1")
        assert not store.update_job_specs("nobody", {})
        assert not store.compare_and_set_job_specs("nobody", {}, {})

    def test_compare_and_set_status(self, store: JobStore) -> None:
        add(store)
        assert not store.compare_and_set_job_status("job-1", ("Running", "Paused"), "Complete")
        assert store.compare_and_set_job_status("job-1", ("Pending", "Paused"), "Complete")
        assert not store.compare_and_set_job_status("job-1", ("Complete",), "Running")
        assert store.compare_and_set_job_status("job-1", ("Complete",), "Complete")
        assert row_of(store)["status"] == "Complete"
        kinds = [(e["kind"], e["from_status"], e["to_status"]) for e in store.events("job-1")]
        assert kinds == [("recorded", "", "Pending"), ("status", "Pending", "Complete")]

    def test_compare_and_set_needs_something_to_compare(self, store: JobStore) -> None:
        add(store)
        with pytest.raises(ValueError, match="at least one"):
            store.compare_and_set_job_status("job-1", (), "Running")

    def test_backend_id(self, store: JobStore) -> None:
        add(store)
        assert store.update_job_backend_id("job-1", "c1")
        assert (row_of(store)["backend_job_id"], row_of(store)["status"]) == ("c1", "Pending")
        assert store.update_job_backend_id("job-1", "c2", status="Running")
        assert (row_of(store)["backend_job_id"], row_of(store)["status"]) == ("c2", "Running")
        store.update_job_status("job-1", "Error")
        assert not store.update_job_backend_id("job-1", "c3", status="Running")
        assert (row_of(store)["backend_job_id"], row_of(store)["status"]) == ("c2", "Error")

    def test_specs(self, store: JobStore) -> None:
        add(store, specs={"a": 1})
        assert store.update_job_specs("job-1", {"b": 2})
        assert decode(row_of(store), "specs") == {"b": 2}

    def test_specs_are_compared_by_value(self, store: JobStore) -> None:
        """Lesson D8: the order of keys is no difference; true and 1 are one."""
        add(store, specs={"a": 1, "b": {"c": True, "d": [1, 2]}})
        assert not store.compare_and_set_job_specs(
            "job-1", {"a": True, "b": {"c": True, "d": [1, 2]}}, {}
        )
        assert store.compare_and_set_job_specs(
            "job-1", {"b": {"d": [1, 2], "c": True}, "a": 1}, {"new": 1}
        )
        assert decode(row_of(store), "specs") == {"new": 1}

    def test_specs_compared_with_the_status(self, store: JobStore) -> None:
        add(store, specs={"a": 1})
        assert not store.compare_and_set_job_specs(
            "job-1", {"a": 1}, {}, expected_statuses=("Running",)
        )
        assert store.compare_and_set_job_specs(
            "job-1", {"a": 1}, {}, expected_statuses=("Running", "Pending")
        )

    def test_getting_an_unknown_job(self, store: JobStore) -> None:
        assert store.get_job("nobody") is None


class TestCheckpoints:
    def test_they_come_highest_epoch_first(self, store: JobStore) -> None:
        add(store)
        store.add_checkpoint("job-1", "/r/epoch_2.pth", 2, "pth")
        store.add_checkpoint("job-1", "/r/epoch_10.pth", epoch=10)
        assert [row["epoch"] for row in store.get_checkpoints("job-1")] == [10, 2]
        latest = store.get_latest_checkpoint("job-1")
        assert latest is not None
        assert (latest["path"], latest["format"]) == ("/r/epoch_10.pth", "safetensors")

    def test_none(self, store: JobStore) -> None:
        add(store)
        assert store.get_latest_checkpoint("job-1") is None
        assert store.get_checkpoints("nobody") == []
        assert store.get_checkpoint_path("job-1") is None

    def test_of_an_unknown_job(self, store: JobStore) -> None:
        with pytest.raises(JobNotFoundError, match="record the job first"):
            store.add_checkpoint("nobody", "/x")

    def test_deleting(self, store: JobStore) -> None:
        add(store)
        store.add_checkpoint("job-1", "/r/a.pth")
        store.add_checkpoint("job-1", "/r/b.pth")
        assert store.delete_checkpoints("job-1") == 2
        assert store.get_checkpoints("job-1") == []

    def test_choosing_by_epoch(self, store: JobStore) -> None:
        add(store, results_dir="/runs/epoch_99")
        for epoch in (1, 2, 3):
            store.add_checkpoint("job-1", f"/runs/epoch_99/model_epoch_{epoch:03}.pth", epoch)
        assert store.get_checkpoint_path("job-1", epoch=2) == "/runs/epoch_99/model_epoch_002.pth"
        assert store.get_checkpoint_path("job-1") == "/runs/epoch_99/model_epoch_003.pth"
        assert store.get_checkpoint_path("job-1", epoch=50) is None


class TestParents:
    @pytest.fixture
    def family(self, store: JobStore) -> JobStore:
        add(store, "mother", results_dir="/results/mother")
        add(store, "child", parent_job_id="mother", results_dir="/results/child")
        add(store, "orphan", base_checkpoint="ngc://base", results_dir="/results/orphan")
        store.add_checkpoint("mother", "/results/mother/model_epoch_005.pth", 5)
        return store

    def test_parent(self, family: JobStore) -> None:
        parent = family.get_parent_job("child")
        assert parent is not None
        assert parent["job_id"] == "mother"
        assert family.get_parent_job("orphan") is None
        assert family.get_parent_job("nobody") is None

    def test_parent_model_and_results(self, family: JobStore) -> None:
        assert family.get_parent_model_path("child") == "/results/mother/model_epoch_005.pth"
        assert family.get_parent_model_path("child", epoch=77) == ""
        assert family.get_parent_model_path("orphan") == ""
        assert family.get_parent_results_dir("child") == "/results/mother"
        assert family.get_parent_results_dir("orphan") == ""

    @pytest.mark.parametrize(
        ("name", "child", "orphan"),
        [
            ("output_dir", "/results/child", "/results/orphan"),
            ("automl_output_dir", "/results/child", "/results/orphan"),
            ("resume_model", "/results/mother/model_epoch_005.pth", ""),
            ("parent_model", "/results/mother/model_epoch_005.pth", ""),
            ("resume_model_bool", "true", "false"),
            ("parent_model_folder", "/results/mother", ""),
            ("ptm_if_no_resume_model", "", "ngc://base"),
            ("something_else", None, None),
        ],
    )
    def test_spec_parameters(
        self, family: JobStore, name: str, child: str | None, orphan: str | None
    ) -> None:
        assert family.resolve_spec_param("child", name) == child
        assert family.resolve_spec_param("orphan", name) == orphan
        assert family.resolve_spec_param("nobody", name) is None


class TestClosing:
    def test_as_a_context(self, tmp_path: Path) -> None:
        with JobStore(tmp_path / "jobs.db") as store:
            add(store)
        with pytest.raises(StoreError, match="closed"):
            store.get_job("job-1")
        store.close()

    def test_what_was_written_is_there_for_the_next(self, tmp_path: Path) -> None:
        with JobStore(tmp_path / "jobs.db") as store:
            add(store, specs={"a": [1]})
        with JobStore(tmp_path / "jobs.db") as store:
            assert json.loads(row_of(store)["specs"]) == {"a": [1]}
