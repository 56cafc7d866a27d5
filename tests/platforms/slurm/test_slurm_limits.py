"""Wall times: a job that gets on is requeued, and one that does not ends with the reason."""

from __future__ import annotations

import contextlib
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from own_cluster import cluster as cluster
from own_cluster import lab as lab
from own_cluster import platform_lab
from slurm_jobs import (
    LONG,
    SAY_ATTEMPT,
    UNTIL_STOPPED,
    has_credentials,
    keywords,
    running,
    slurm_id,
    submissions,
)
from slurm_lab import SlurmPlatformLab

from lab.slurm import Cluster, SlurmVariant, shared_cluster
from tao_sdk import Job
from tao_sdk.platforms.conformance.lab import eventually, reference
from tao_sdk.platforms.slurm import SlurmSDK

_TRACKED_BY_PARENT = SlurmVariant(cgroup=False, accounting=False)


def attempts(sdk: SlurmSDK, job: Job) -> list[str]:
    return re.findall(r"attempt (\d)", sdk.get_job_logs(job.id))


def when_told_to_stop(what: str, *, first_only: bool = True) -> str:
    """A program that does something when it is told to stop; its second attempt ends well."""
    second = '[ "$TAO_ATTEMPT" = 1 ] || exit 0;' if first_only else ""
    return f"stop() {{ {what}; }}; trap stop TERM; {SAY_ATTEMPT} {second} {UNTIL_STOPPED}"


class Case(NamedTuple):
    script: str
    status: str
    err_class: str
    attempts: list[str]


CASES = {
    "saves and stops": Case(
        when_told_to_stop("touch epoch_1.pth; exit 143"), "Complete", "", ["1", "2"]
    ),
    "saves, stops, and calls that a success": Case(
        when_told_to_stop("mkdir train; touch train/last.ckpt; exit 0"), "Complete", "", ["1", "2"]
    ),
    "comes to its end just then": Case(
        when_told_to_stop(
            """touch epoch_1.pth; echo '{"status": "SUCCESS"}' > status.json; exit 0"""
        ),
        "Complete",
        "",
        ["1"],
    ),
    "saves, and does not listen": Case(
        f"touch epoch_1.pth; {when_told_to_stop(':')}", "Complete", "", ["1", "2"]
    ),
    "saves nothing": Case(when_told_to_stop("exit 143"), "Error", "ERR_TIMEOUT", ["1"]),
    "has only what it was given": Case(
        when_told_to_stop("mkdir inputs; touch inputs/epoch_9.pth; exit 143"),
        "Error",
        "ERR_TIMEOUT",
        ["1"],
    ),
    "begins at the beginning each time": Case(
        when_told_to_stop("touch epoch_4.pth epoch_10.pth; exit 143", first_only=False),
        "Error",
        "ERR_TIMEOUT",
        ["1", "2"],
    ),
}


@pytest.mark.seed("002.13", "002.16")
@pytest.mark.timeout(300)
def test_wall_times(lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, because Slurm takes half a minute to look at its limits.

    Lesson 6.2: there is an end to requeueing.
    """
    # One minute, the least that Slurm knows; it warns almost at once.
    monkeypatch.setenv("SLURM_TIME_HOURS", str(1 / 60))
    monkeypatch.setenv("SLURM_TIMEOUT_HOURS", "0.0005")
    with lab.sdk() as sdk:
        jobs = dict(
            zip(
                CASES,
                sdk.create_jobs(keywords(case.script) for case in CASES.values()),
                strict=True,
            )
        )
        unwarned = start_unwarned(lab, monkeypatch)
        for what, case in CASES.items():
            if len(case.attempts) > 1:
                again(sdk, lab, jobs[what])
        statuses = sdk.wait_all([job.id for job in (*jobs.values(), unwarned)], timeout=LONG)
        assert seen(sdk, jobs) == dict(CASES)
        told = statuses[unwarned.id].message
        assert told.startswith("Wall time reached")
        for job in (*jobs.values(), unwarned):
            assert len(submissions(lab, job)) == 1
            assert not has_credentials(lab, job)
        analysis = unwarned.explain()
        assert analysis is not None
        assert analysis["err_class"] == "ERR_TIMEOUT"


def start_unwarned(lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that Slurm ends at its limit without a word before."""
    monkeypatch.setenv("SLURM_USE_TIMEOUT", "false")
    with lab.sdk() as sdk:
        job = running(sdk, UNTIL_STOPPED)
    lab.slurm.run_as_root("scontrol", "update", f"jobid={slurm_id(lab, job)}", "endtime=now+1")
    with lab.sdk() as sdk:
        found = sdk.get_job(job.id)
    assert found is not None
    return found


def again(sdk: SlurmSDK, lab: SlurmPlatformLab, job: Job) -> None:
    """Let a job have its second attempt at once, and hear of its wall time as soon as it runs."""
    number = slurm_id(lab, job)
    status = eventually(lambda: (s := job.refresh()).status == "Pending" and s, LONG)
    assert "BeginTime" in status.message
    assert has_credentials(lab, job)
    lab.slurm.release_requeued(number)
    eventually(lambda: "2" in attempts(sdk, job))
    lab.slurm.run_as_root("scancel", "--batch", "--signal=USR1", number, check=False)


def seen(sdk: SlurmSDK, jobs: dict[str, Job]) -> dict[str, Case]:
    found = {}
    for what, job in jobs.items():
        analysis = job.explain() or {"err_class": ""}
        status = sdk.get_job_status(job.id).status
        script = CASES[what].script
        found[what] = Case(script, status, analysis["err_class"], attempts(sdk, job))
    return found


def test_a_job_that_may_not_be_requeued_ends_at_its_limit(
    sdk: SlurmSDK, lab: SlurmPlatformLab
) -> None:
    job = running(sdk, CASES["saves and stops"].script, requeue=False)
    lab.slurm.run_as_root("scancel", "--batch", "--signal=USR1", slurm_id(lab, job))
    status = job.wait(timeout=LONG)
    assert status.status == "Error"
    assert status.message == "Wall time reached, exit code 143 (Slurm: FAILED)"
    assert attempts(sdk, job) == ["1"]


def test_a_cancelled_job_is_not_requeued_at_its_limit(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """The wish comes while the job saves because of its wall time."""
    save = "touch saving; until [ -e ../go ]; do sleep 0.1; done; touch epoch_1.pth; exit 143"
    job = running(sdk, when_told_to_stop(save))
    lab.slurm.run_as_root("scancel", "--batch", "--signal=USR1", slurm_id(lab, job))
    eventually((lab.slurm.shared / "results" / job.id / "saving").exists)
    sdk.store.request_cancel(job.id)
    sdk.backend.cancel(reference(sdk, job.id))
    (lab.slurm.shared / "results" / "go").touch()
    assert job.wait(timeout=LONG).status == "Canceled"
    assert attempts(sdk, job) == ["1"]
    assert not has_credentials(lab, job)


@pytest.mark.parametrize("tracking", ["control groups", "parents"])
def test_a_program_is_told_to_stop_once(
    tracking: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGTERM, when somebody else cancels the job, and when its wall time is over.

    Slurm signals the first process alone, or all of them, by how it keeps track of them. The
    program is the child of a shell of the user's; a second signal would mean: at once.
    """
    script = (
        'sh -c \'n=0; trap "n=\\$((n+1)); echo told >> told" TERM; echo up; '
        "while [ $n = 0 ]; do sleep 0.1; done; sleep 0.3; exit 143'; exit $?"
    )
    groups = tracking == "control groups"
    where = contextlib.nullcontext(cluster) if groups else shared_cluster(_TRACKED_BY_PARENT)
    with (
        where as there,
        platform_lab(there, tmp_path, monkeypatch) as lab,
        lab.sdk() as sdk,
    ):
        stopped, warned = (running(sdk, f"trap : TERM; {script}") for _ in range(2))
        for job in (stopped, warned):
            eventually(functools.partial(says, sdk, job, "up"))
        lab.slurm.run_as_root("scancel", slurm_id(lab, stopped))
        lab.slurm.run_as_root("scancel", "--batch", "--signal=USR1", slurm_id(lab, warned))
        assert stopped.wait(timeout=LONG).status == "Canceled"
        assert warned.wait(timeout=LONG).status == "Error"
        for job in (stopped, warned):
            told = lab.slurm.shared / "results" / job.id / "told"
            assert told.read_text() == "told\n"


def says(sdk: SlurmSDK, job: Job, text: str) -> bool:
    return text in sdk.get_job_logs(job.id)
