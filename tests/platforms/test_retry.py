"""Which ended jobs are submitted again."""

from __future__ import annotations

import pytest

from tao_sdk.models import JobState
from tao_sdk.platforms import retry
from tao_sdk.platforms.backend import Attempt, Observation, RetryLimits

LIMITS = RetryLimits(budget=3, pause_seconds=30.0, setting="SLURM_MAX_RETRIES")


def ended(
    fault: str = "",
    causes: tuple[str, ...] = (),
    *,
    node: str = "",
    state: JobState = JobState.ERROR,
) -> Observation:
    """An end of a job that was submitted once, and once more for each cause."""
    attempts = [Attempt(1), *(Attempt(number, cause) for number, cause in enumerate(causes, 2))]
    return Observation(state, "ended", fault=fault, node=node, attempts=tuple(attempts))


def decide(
    seen: Observation, err_class: str = "", node: str = "", limits: RetryLimits = LIMITS
) -> retry.Retry | retry.Exhausted | None:
    analysis = {"err_class": err_class, "node": node} if err_class else None
    return retry.decide(seen, analysis, limits)


@pytest.mark.parametrize(
    ("fault", "err_class", "cause"),
    [
        ("infra", "", "infra"),
        ("preempted", "", "preempted"),
        ("", "ERR_INFRA", "infra"),
        ("", "ERR_PREEMPTED", "preempted"),
        ("", "ERR_PROGRAM", None),
        ("", "ERR_OOM", None),
        ("", "ERR_UNKNOWN", None),
        ("", "", None),
        ("program", "ERR_INFRA", None),
    ],
)
def test_the_cause_decides(fault: str, err_class: str, cause: str | None) -> None:
    found = decide(ended(fault), err_class)
    assert (found.attempt.cause if isinstance(found, retry.Retry) else None) == cause


def test_only_an_error_of_unknown_fault_has_its_log_read() -> None:
    assert retry.needs_explanation(ended())
    assert not retry.needs_explanation(ended("program"))
    assert not retry.needs_explanation(ended("infra"))
    assert not retry.needs_explanation(ended(state=JobState.COMPLETE))
    assert not retry.needs_explanation(Observation(JobState.ERROR)), "it cannot be resubmitted"


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING])
def test_a_job_that_goes_on_is_not_submitted_again(state: JobState) -> None:
    assert decide(ended("infra", state=state)) is None


def test_a_platform_that_cannot_resubmit_is_not_asked_to() -> None:
    assert decide(Observation(JobState.ERROR, fault="infra")) is None


def test_pauses_double_and_budgets_end() -> None:
    found = [decide(ended("infra", ("infra",) * used)) for used in range(4)]
    retries = [one for one in found if isinstance(one, retry.Retry)]
    assert [(one.attempt.number, one.used, one.pause_seconds) for one in retries] == [
        (2, 1, 30),
        (3, 2, 60),
        (4, 3, 120),
    ]
    assert retries[0].label == "infra; retry 1 of 3"
    last = found[-1]
    assert isinstance(last, retry.Exhausted)
    assert last.message == "tried again 3 times after such ends (infra; SLURM_MAX_RETRIES)"


def test_the_pause_has_a_limit() -> None:
    patient = LIMITS._replace(budget=100)
    found = decide(ended("infra", ("infra",) * 20), limits=patient)
    assert isinstance(found, retry.Retry)
    assert found.pause_seconds == retry.MAX_PAUSE_SECONDS


def test_preemption_has_a_budget_of_its_own_and_no_pause() -> None:
    found = decide(ended("preempted", ("infra",) * 3, state=JobState.CANCELED))
    assert isinstance(found, retry.Retry)
    assert (found.attempt.number, found.used, found.pause_seconds) == (5, 1, 0)


def test_no_budget_is_not_a_used_up_one() -> None:
    assert decide(ended("infra"), limits=RetryLimits(0, 1.0)) is None


def test_bad_nodes_are_excluded_from_then_on() -> None:
    attempts = (Attempt(1), Attempt(2, "infra", ("node7",)))
    seen = Observation(JobState.ERROR, attempts=attempts, node="node9")
    found = decide(seen, "ERR_INFRA", node="node8")
    assert isinstance(found, retry.Retry)
    assert found.attempt.excluded == ("node7", "node8"), "the log knows better than the platform"
    unnamed = decide(seen._replace(fault="infra", node=""))
    assert isinstance(unnamed, retry.Retry)
    assert unnamed.attempt.excluded == ("node7",)
    ranged = decide(seen._replace(fault="infra", node="node[8-9]"))
    assert isinstance(ranged, retry.Retry)
    assert ranged.attempt.excluded == ("node7",), "one of them is bad, and it is not known which"
