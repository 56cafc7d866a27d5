"""What is wrong with one job does not break the answer about the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tao_sdk.errors import BackendUnreachableError, DamagedRowError
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.isolation import ask_isolated, senseless

JOBS = [JobRef(JobIdentity(name, "token"), {}) for name in "abcde"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DamagedRowError("c/end.json is damaged"), "c/end.json is damaged"),
        (TypeError("no"), "its answer makes no sense (TypeError: no)"),
    ],
)
def test_one_job_is_answered_for_alone(error: Exception, told: str) -> None:
    def ask(jobs: Sequence[JobRef]) -> dict[str, str]:
        if any(job.job_id == "c" for job in jobs):
            raise error
        return {job.job_id: "well" for job in jobs}

    answers = ask_isolated(ask, JOBS, lambda job, why: {job.job_id: senseless(why)})
    assert answers == {"a": "well", "b": "well", "c": told, "d": "well", "e": "well"}


def test_an_error_about_the_platform_is_raised() -> None:
    def ask(jobs: Sequence[JobRef]) -> dict[str, str]:
        raise BackendUnreachableError("nothing answers")

    with pytest.raises(BackendUnreachableError, match="nothing answers"):
        ask_isolated(ask, JOBS, lambda *_: {})
