"""Every state that the server has a word for, and what a poll makes of anything else."""

from __future__ import annotations

from typing import Any

import pytest
from lepton_lab import LeptonLab

from lab.lepton import LeptonServer
from tao_sdk.job_states import JobState
from tao_sdk.platforms.lepton import LeptonSDK
from tao_sdk.platforms.lepton.status import interpret, moment

P, R, C, E, X, U = (
    JobState.PENDING,
    JobState.RUNNING,
    JobState.COMPLETE,
    JobState.ERROR,
    JobState.CANCELED,
    JobState.UNKNOWN,
)
TABLE = [
    ("Queueing", P, P),
    ("Starting", P, P),
    ("Awaiting", P, P),
    ("Restarting", P, P),
    ("PendingRetry", P, P),
    ("Running", R, R),
    ("Completed", C, C),
    ("Failed", E, E),
    ("Stopped", JobState.PAUSED, X),
    ("Stopping", R, R),
    ("Deleting", R, R),
    ("Terminating", R, R),
    ("Deleted", X, X),
    ("UNK", U, U),
    ("SomethingNew", U, U),
]


def job(state: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"id": "x"},
        "spec": {"completions": 1},
        "status": {"state": state, **status},
    }


@pytest.mark.parametrize(("word", "state", "if_stopped_by_us"), TABLE)
def test_the_table(word: str, state: JobState, if_stopped_by_us: JobState) -> None:
    assert interpret(job(word), canceled=False).state is state
    assert interpret(job(word), canceled=True).state is if_stopped_by_us


@pytest.mark.parametrize(
    ("counters", "state"),
    [({"succeeded": 1}, C), ({"failed": 1}, E), ({"failed": 1, "succeeded": 1}, E), ({}, None)],
)
def test_archived_is_judged_by_its_counters(counters: dict[str, int], state: JobState) -> None:
    assert interpret(job("Archived", **counters), canceled=False).state is state


def test_a_success_has_its_exit_code() -> None:
    seen = interpret(job("Completed", creation_time=1, completion_time=2), canceled=False)
    assert seen.exit_code == 0
    assert seen.started_at < seen.ended_at


@pytest.mark.parametrize(
    "value",
    [1_760_000_000, 1_760_000_000_000, 1_760_000_000_000_000, "2025-10-09T08:53:20Z"],
)
def test_times_in_any_unit(value: Any) -> None:
    assert moment(value) == "2025-10-09T08:53:20+00:00"
    assert moment(None) == moment(0) == moment("soon") == ""


@pytest.mark.seed("000.18")
def test_a_status_says_what_lepton_says(
    sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer
) -> None:
    job = sdk.create_job(**lab.job("true"))
    for word, state, _ in TABLE[:6]:
        played.job_of(job.id).turn(word)
        status = sdk.get_job_status(job.id)
        assert status.status == state.value
        assert word in status.message or word == "Running"


def test_another_user_stopped_it(sdk: LeptonSDK, lab: LeptonLab, played: LeptonServer) -> None:
    job = sdk.create_job(**lab.job("true"), env_vars={"KEPT_FOR_LATER": "for-a-new-start"})
    played.job_of(job.id).turn("Stopped")
    assert sdk.get_job_status(job.id).status == "Paused"
    sdk.close()
    assert played.state.secrets, "they are needed to start it again"
    played.job_of(job.id).turn("Running")
    assert sdk.get_job_status(job.id).status == "Running"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"{}",
        b"<html>",
        b"\xff\xfe",
        b'{"status": 7, "metadata": 3}',
        b'{"jobs": [7, {"metadata": 3, "status": {"state": 5, "failed": "x"}}]}',
    ],
)
def test_nothing_raises_out_of_a_poll(
    sdk: LeptonSDK,
    lab: LeptonLab,
    played: LeptonServer,
    answer: bytes,
) -> None:
    jobs = [sdk.create_job(**lab.job("true")) for _ in range(3)]
    played.faults.instead = answer
    for asked in ([jobs[0].id], [job.id for job in jobs]):
        for status in sdk.get_statuses(asked).values():
            assert not status.terminal
    assert sdk.get_failure_analysis(jobs[0].id) is None
    played.faults.instead = None
    assert not sdk.get_job_status(jobs[0].id).terminal


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 429, 500, 502, 503])
def test_no_refusal_raises_out_of_a_poll(
    sdk: LeptonSDK,
    lab: LeptonLab,
    played: LeptonServer,
    status: int,
) -> None:
    job = sdk.create_job(**lab.job("true"))
    path = f"GET /jobs/{played.job_of(job.id).id}"
    played.faults.refuse_next += [(path, status)] * 3
    played.job_of(job.id).turn("Running")
    seen = sdk.get_job_status(job.id)
    assert not seen.terminal
    played.faults.refuse_next.clear()
    assert sdk.get_job_status(job.id).status == "Running"
