"""Intent, confirmation, rejection, and taking over what a dead process left."""

from __future__ import annotations

from typing import Any

import pytest

from tao_sdk.errors import JobExistsError, UnknownParentError, ValidationError
from tao_sdk.job_store import Confirmation, JobStore, NewJob, Row, StatusUpdate, decode
from tao_sdk.secrets import Secret


@pytest.fixture
def store() -> JobStore:
    return JobStore(":memory:")


def new_job(job_id: str = "job-1", **fields: Any) -> NewJob:
    base = NewJob(job_id, "dino", "train", "local", "docker", "token-1", "host|1|2")
    return base._replace(**fields)


def row_of(store: JobStore, job_id: str = "job-1") -> Row:
    row = store.get_job(job_id)
    assert row is not None
    return row


def history(store: JobStore, job_id: str = "job-1") -> list[tuple[str, str, str]]:
    return [(e["kind"], e["from_status"], e["to_status"]) for e in store.events(job_id)]


def test_intent_is_recorded_whole(store: JobStore) -> None:
    given = new_job(
        image="img",
        specs={"lr": 0.1},
        request={"gpu_count": 1},
        native={"name": "tao-job-job-1"},
        results_dir="/r",
        local_results_dir="/l",
        backend_job_id="tao-job-job-1",
        plan_id="p",
        step_id=2,
        base_checkpoint="ngc://b",
        message="on its way",
    )
    store.begin_submissions([given])
    row = row_of(store)
    for name, value in given._asdict().items():
        if name in ("specs", "request", "native"):
            assert decode(row, name) == value
        elif name != "parent_job_id":
            assert row[name] == value
    assert (row["phase"], row["status"], row["parent_job_id"]) == ("submitting", "Pending", None)
    assert history(store) == [("submitting", "", "Pending")]
    assert store.events("job-1")[0]["message"] == "on its way"


def test_nothing_to_begin(store: JobStore) -> None:
    store.begin_submissions([])
    assert store.confirm_submissions([]) == []


def test_all_or_none(store: JobStore) -> None:
    store.begin_submissions([new_job("job-2")])
    with pytest.raises(JobExistsError, match="job-2"):
        store.begin_submissions([new_job("job-1"), new_job("job-2")])
    with pytest.raises(JobExistsError, match="more than once: job-3"):
        store.begin_submissions([new_job("job-3"), new_job("job-3")])
    with pytest.raises(UnknownParentError, match="nobody"):
        store.begin_submissions([new_job("job-4"), new_job("job-5", parent_job_id="nobody")])
    with pytest.raises(ValidationError):
        store.begin_submissions([new_job("job-6"), new_job("../x")])
    assert [row["job_id"] for row in store.list_jobs()] == ["job-2"]


def test_a_parent_of_the_same_batch(store: JobStore) -> None:
    store.begin_submissions([new_job("job-1"), new_job("job-2", parent_job_id="job-1")])
    assert row_of(store, "job-2")["parent_job_id"] == "job-1"


def test_a_secret_cannot_be_stored(store: JobStore) -> None:
    with pytest.raises(ValidationError, match="request") as caught:
        store.begin_submissions([new_job(request={"token": Secret("hunter2hunter2")})])
    assert "hunter2" not in str(caught.value)
    assert store.list_jobs() == []


def test_confirmation(store: JobStore) -> None:
    store.begin_submissions([new_job(message="on its way")])
    assert store.confirm_submission("job-1", backend_job_id="c1", native={"id": "c1"})
    row = row_of(store)
    assert (row["phase"], row["owner"], row["backend_job_id"]) == ("submitted", "", "c1")
    assert decode(row, "native") == {"id": "c1"}
    assert row["token"] == new_job().token
    assert row["message"] == "on its way"
    assert history(store)[1:] == [("submitted", "Pending", "Pending")]


def test_confirmation_happens_once(store: JobStore) -> None:
    store.begin_submissions([new_job()])
    assert store.confirm_submission("job-1", backend_job_id="c1", native={}, message="queued")
    assert not store.confirm_submission("job-1", backend_job_id="c2", native={})
    assert not store.confirm_submission("nobody", backend_job_id="c2", native={})
    assert (row_of(store)["backend_job_id"], row_of(store)["message"]) == ("c1", "queued")


def test_many_confirmations_at_once(store: JobStore) -> None:
    store.begin_submissions([new_job(f"job-{n}") for n in range(3)])
    confirmations = [Confirmation(f"job-{n}", f"c{n}", {"n": n}) for n in (2, 0, 7)]
    confirmed = store.confirm_submissions(confirmations)
    assert [row["job_id"] for row in confirmed] == ["job-2", "job-0"]
    stored = store.jobs_by_id(["job-0", "job-2"])
    assert confirmed == [stored["job-2"], stored["job-0"]]
    assert [row["job_id"] for row in store.unsettled_submissions("docker")] == ["job-1"]


def test_rejection_ends_the_job(store: JobStore) -> None:
    store.begin_submissions([new_job()])
    assert store.reject_submission("job-1", message="no such image", failure={"cause": "image"})
    row = row_of(store)
    assert (row["phase"], row["status"], row["message"]) == ("rejected", "Error", "no such image")
    assert decode(row, "failure") == {"cause": "image"}
    assert row["ended_at"] != ""
    assert row["owner"] == ""
    assert history(store)[1:] == [("rejected", "Pending", "Error")]
    assert not store.reject_submission("job-1", message="again", failure={})
    assert not store.confirm_submission("job-1", backend_job_id="c1", native={})
    assert not store.reject_submission("nobody", message="x", failure={})


def test_rejection_as_cancelled(store: JobStore) -> None:
    store.begin_submissions([new_job()])
    store.reject_submission("job-1", message="interrupted", failure={}, status="Canceled")
    assert row_of(store)["status"] == "Canceled"


def test_rejection_means_an_end(store: JobStore) -> None:
    store.begin_submissions([new_job()])
    with pytest.raises(ValidationError, match="has ended"):
        store.reject_submission("job-1", message="x", failure={}, status="Running")


def test_a_confirmed_job_is_not_rejected(store: JobStore) -> None:
    store.begin_submissions([new_job()])
    store.confirm_submission("job-1", backend_job_id="c1", native={})
    assert not store.reject_submission("job-1", message="x", failure={})
    assert row_of(store)["status"] == "Pending"


def test_settling_a_job_that_was_ended_meanwhile_keeps_its_end(store: JobStore) -> None:
    store.begin_submissions([new_job("job-1"), new_job("job-2")])
    ended = [
        StatusUpdate(name, status="Canceled", message="asked for") for name in ("job-1", "job-2")
    ]
    store.apply_updates(ended)
    assert store.confirm_submission("job-1", backend_job_id="c1", native={})
    assert store.reject_submission("job-2", message="never there", failure={})
    for name, phase in (("job-1", "submitted"), ("job-2", "rejected")):
        row = row_of(store, name)
        assert (row["phase"], row["status"], row["message"]) == (phase, "Canceled", "asked for")
    assert history(store, "job-2")[-1] == ("rejected", "Canceled", "Canceled")


def test_taking_over(store: JobStore) -> None:
    store.begin_submissions([new_job()])
    assert not store.claim_submission("job-1", "somebody else", "me")
    assert store.claim_submission("job-1", "host|1|2", "me")
    assert not store.claim_submission("job-1", "host|1|2", "another")
    assert row_of(store)["owner"] == "me"
    store.release_submission("job-1")
    assert row_of(store)["owner"] == ""
    assert store.claim_submission("job-1", "", "another")


def test_a_settled_submission_is_neither_claimed_nor_released(store: JobStore) -> None:
    store.begin_submissions([new_job()])
    store.confirm_submission("job-1", backend_job_id="c1", native={})
    before = row_of(store)
    assert not store.claim_submission("job-1", "", "me")
    store.release_submission("job-1")
    store.release_submission("nobody")
    assert row_of(store) == before


def test_unsettled_submissions_of_one_platform_oldest_first(store: JobStore) -> None:
    store.begin_submissions([new_job("b"), new_job("a"), new_job("c", backend_type="slurm")])
    store.create_job("recorded", "dino", "train", "local", backend_type="docker")
    assert [row["job_id"] for row in store.unsettled_submissions("docker")] == ["b", "a"]
    assert [row["job_id"] for row in store.unsettled_submissions("slurm")] == ["c"]
    assert store.unsettled_submissions("lepton") == []
