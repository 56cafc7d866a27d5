"""Plain data: fields, names, addresses, mounts."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from tao_sdk.errors import TaoError, ValidationError
from tao_sdk.models import Checkpoint, Job, JobState, JobStatus, JobUri, Mount, validate_job_id


def test_job_has_the_contracts_fields_in_order() -> None:
    assert [field.name for field in dataclasses.fields(Job)] == [
        "id",
        "network_arch",
        "action",
        "workspace_id",
        "backend_type",
        "status",
        "created_at",
        "backend_job_id",
        "parent_job_id",
        "results_dir",
        "local_results_dir",
        "base_checkpoint",
    ]
    job = Job("i", "n", "a", "w")
    assert (job.status, job.backend_type, job.results_dir) == ("Pending", "", "")
    assert job.created_at.endswith("+00:00")


def test_to_dict_calls_the_id_job_id() -> None:
    shown = Job("i", "n", "a", "w").to_dict()
    assert shown["job_id"] == "i"
    assert "id" not in shown
    assert len(shown) == 12


def test_status_and_checkpoint() -> None:
    assert [f.name for f in dataclasses.fields(JobStatus)] == [
        "job_id",
        "status",
        "message",
        "updated_at",
    ]
    assert Checkpoint("p", 3) == Checkpoint("p", 3, "", 0.0)


def test_a_client_is_neither_compared_nor_stored() -> None:
    class Client:
        platform = "x"

    one, other = Job("i", "n", "a", "w", created_at="t"), Job("i", "n", "a", "w", created_at="t")
    one.bind(Client())  # type: ignore[arg-type]  # wrong on purpose
    assert one == other
    assert "_client" not in repr(one)
    assert "_client" not in dataclasses.asdict(one)
    assert pickle.loads(pickle.dumps(one)) == other  # noqa: S301 - our own bytes
    with pytest.raises(TaoError, match="bare record"):
        other.refresh()


def test_states() -> None:
    assert {state.value for state in JobState} == {
        "Pending",
        "Running",
        "Paused",
        "Complete",
        "Error",
        "Canceled",
        "Unknown",
    }
    assert f"{JobState.PENDING}" == "Pending"
    assert {state for state in JobState if state.terminal} == {"Complete", "Error", "Canceled"}


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a/b", "a b", "a\nb", "$(x)", "-a", "../x", "a" * 129, "é"]
)
def test_bad_job_ids(text: str) -> None:
    """Lessons D4, F15, B11: ids become file names, so they cannot be anything."""
    with pytest.raises(ValidationError, match="job id"):
        validate_job_id(text)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        (JobUri("local", "abc"), "tao://local/abc"),
        (
            JobUri("slurm", "a-1", "/tmp/my state.json"),
            "tao://slurm/a-1?state=/tmp/my%20state.json",
        ),
    ],
)
def test_addresses_round_trip(uri: JobUri, text: str) -> None:
    assert str(uri) == text
    assert JobUri.parse(text) == uri


@pytest.mark.parametrize(
    "text", ["", "abc", "http://local/x", "tao://", "tao://local", "tao://l/a/b"]
)
def test_what_is_not_an_address(text: str) -> None:
    with pytest.raises(ValidationError):
        JobUri.parse(text)


@pytest.mark.parametrize(
    ("value", "mount"),
    [
        ("/a", Mount("/a", "/a")),
        ("/a:/b", Mount("/a", "/b")),
        ("/a:/b:ro", Mount("/a", "/b", read_only=True)),
        ({"source": "/a", "target": "/b"}, Mount("/a", "/b")),
        ({"host_path": "/a", "container_path": "/b", "mode": "ro"}, Mount("/a", "/b", True)),
        ({"from_path": "/a", "mount_path": "/b", "read_only": True}, Mount("/a", "/b", True)),
    ],
)
def test_mounts(value: object, mount: Mount) -> None:
    assert Mount.parse(value) == mount  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("value", ["", ":/b", "/a:/b:rx", {"source": "/a"}, 7, None])
def test_bad_mounts(value: object) -> None:
    with pytest.raises(ValidationError, match="mounts"):
        Mount.parse(value)  # type: ignore[arg-type]  # wrong on purpose
