"""Jobs that failed through no fault of their own are submitted again; all others are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from own_cluster import cluster as cluster
from own_cluster import lab as lab
from slurm_jobs import (
    CANARY,
    LONG,
    SAY_ATTEMPT,
    SECOND_TIME_WELL,
    UNTIL_STOPPED,
    has_credentials,
    keywords,
    running,
    slurm_id,
    start,
    submissions,
)
from slurm_lab import SlurmPlatformLab

from lab.slurm import SlurmLab, states
from tao_sdk import Job
from tao_sdk.platforms.conformance.lab import eventually, reference
from tao_sdk.platforms.slurm import SlurmSDK

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus."
BAD_HARDWARE = f"{SAY_ATTEMPT} echo {XID!r} >&2; exit 1"
ONCE_BAD = f'{SAY_ATTEMPT} [ "$TAO_ATTEMPT" = 1 ] || exit 0; echo {XID!r} >&2; exit 1'


def take_node(slurm: SlurmLab, job: str) -> None:
    states.fail_node(slurm, job)


def preempt(slurm: SlurmLab, job: str) -> None:
    states.cancel(slurm, states.preempt(slurm, job))


@pytest.mark.seed("002.14", "002.16")
@pytest.mark.parametrize(("end", "cause"), [(take_node, "infra"), (preempt, "preempted")])
def test_what_slurm_does_not_requeue_is_submitted_again(
    sdk: SlurmSDK, lab: SlurmPlatformLab, end: Callable[[SlurmLab, str], None], cause: str
) -> None:
    """NODE_FAIL and PREEMPTED with --no-requeue.

    The second attempt finds what the first left, and its credentials; both are in the log.
    """
    script = f"echo $TAO_ATTEMPT >> attempts; {SECOND_TIME_WELL}; cat attempts"
    job = running(sdk, script, requeue=False)
    end(lab.slurm, slurm_id(lab, job))
    status = eventually(lambda: (s := job.refresh()).status == "Pending" and s)
    assert f"({cause};" in status.message
    assert "retry 1 of 10" in status.message
    assert has_credentials(lab, job)
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    log = sdk.get_job_logs(job.id)
    assert f"attempt 1, restart 0, has {CANARY}" in log
    assert f"attempt 2, restart 0, has {CANARY}\n1\n2\n" in log
    assert [line.split()[2:3] for line in submissions(lab, job)] == [[], [cause]]
    assert not has_credentials(lab, job)


@pytest.mark.seed("002.16")
def test_bad_hardware_is_avoided_after_a_pause(
    sdk: SlurmSDK, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson 6.2: a bad node is excluded, as are those that the user excluded; later, not now."""
    monkeypatch.setenv("SLURM_RETRY_SECONDS", "600")
    _, second, third = lab.slurm.nodes
    job = start(sdk, BAD_HARDWARE, exclude=third)
    eventually(lambda: job.refresh().message.startswith("submitted again"))
    bad = submissions(lab, job)[-1].split()[3]
    assert bad != third
    assert avoided(lab, job) == {bad, third}
    assert "BeginTime" in eventually(lambda: (s := job.refresh().message).count("Begin") and s)
    assert job.cancel()
    assert job.status == "Canceled"
    assert len(submissions(lab, job)) == 2

    # Nobody else is left to run it: better on a bad node than on none.
    job = start(sdk, BAD_HARDWARE, exclude=f"{second},{third}")
    eventually(lambda: job.refresh().message.startswith("submitted again"))
    assert avoided(lab, job) == {second, third}


def test_what_its_node_refused_is_submitted_again(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Nothing of it ran: Slurm says FAILED, and its log is empty. Here a folder is not there."""
    job = start(sdk, "true", partition="closed")
    logs = lab.slurm.shared / "jobs" / job.id / "slurm-logs"
    logs.rename(logs.with_suffix(".away"))
    number = slurm_id(lab, job)
    lab.slurm.run_as_root("scontrol", "update", f"jobid={number}", "partition=batch")
    states.wait_for_state(lab.slurm, number, "FAILED")
    status = job.refresh()
    assert status.status == "Pending"
    assert status.message.startswith("submitted again as")
    assert "(infra;" in status.message


def avoided(lab: SlurmPlatformLab, job: Job) -> set[str]:
    """The nodes that Slurm keeps a job from."""
    told = lab.slurm.run_as_root("scontrol", "-o", "show", "job", slurm_id(lab, job))
    listed = dict(word.split("=", 1) for word in told.split() if "=" in word)["ExcNodeList"]
    return set(lab.slurm.run_as_root("scontrol", "show", "hostnames", listed).split())


@pytest.mark.seed("002.16")
def test_programs_that_only_look_like_bad_hardware_surface_at_once(
    sdk: SlurmSDK, lab: SlurmPlatformLab
) -> None:
    """Lessons W8, F8: near misses, and a log that is empty."""
    near = {
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB": "ERR_OOM",
        "RuntimeError: CUDA error: device-side assert triggered": "ERR_PROGRAM",
        "RuntimeError: Expected all tensors to be on the same device, cuda:0 and cpu": (
            "ERR_PROGRAM"
        ),
        "[W] Environment variable NCCL_ASYNC_ERROR_HANDLING is deprecated": "ERR_PROGRAM",
        "node7:1:1 [0] NCCL INFO Setting error handling to abort": "ERR_PROGRAM",
        "GPU id 7 not found in config": "ERR_PROGRAM",
        "": "ERR_PROGRAM",
    }
    jobs = sdk.create_jobs(
        keywords(f"echo {line!r} >&2; exit 1" if line else "exit 1") for line in near
    )
    statuses = sdk.wait_all([job.id for job in jobs], timeout=LONG)
    assert {status.status for status in statuses.values()} == {"Error"}
    seen = {line: job.explain() or {} for line, job in zip(near, jobs, strict=True)}
    assert {line: found["err_class"] for line, found in seen.items()} == near
    assert all(len(submissions(lab, job)) == 1 for job in jobs)
    assert not any(has_credentials(lab, job) for job in jobs)


@pytest.mark.seed("002.16")
def test_a_budget_ends(
    sdk: SlurmSDK, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_MAX_RETRIES", "2")
    job = start(sdk, BAD_HARDWARE)
    status = job.wait(timeout=LONG)
    assert status.status == "Error"
    assert "tried again 2 times after such ends (infra; SLURM_MAX_RETRIES)" in status.message
    analysis = job.explain()
    assert analysis is not None
    assert analysis["err_class"] == "ERR_INFRA"
    assert [line.split()[0] for line in submissions(lab, job)] == ["1", "2", "3"]
    log = sdk.get_job_logs(job.id)
    assert [f"attempt {n}," in log for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert not has_credentials(lab, job)


def test_of_several_watchers_one_submits_again(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Four processes poll from before the failure on."""
    job = start(sdk, f"until [ -e ../go ]; do sleep 0.1; done; {ONCE_BAD}")
    program = (
        f"{lab.sdk_source()}\nprint('watching', flush=True)\n"
        f"print(sdk.wait({job.id!r}, timeout={LONG}, poll_interval=0.1).status)"
    )
    watchers = [
        subprocess.Popen(
            [sys.executable, "-c", program], env=dict(lab.environment()), stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    try:
        for watcher in watchers:
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == b"watching\n"
        (lab.slurm.shared / "results" / "go").touch()
        said = [watcher.communicate(timeout=LONG)[0] for watcher in watchers]
    finally:
        for watcher in watchers:
            watcher.kill()
    assert said == [b"Complete\n"] * 4
    assert len(submissions(lab, job)) == 2
    assert "attempt 3" not in sdk.get_job_logs(job.id)


def test_the_watcher_of_the_command_line_submits_again(
    sdk: SlurmSDK, lab: SlurmPlatformLab
) -> None:
    """Lesson D12: nobody gave hooks, and nobody waits."""
    job = start(sdk, ONCE_BAD)
    words = [sys.executable, "-m", "tao_sdk.cli", "--state", str(lab.state_file)]
    done = subprocess.run(
        [*words, "watch", "--interval", "0.2s"],
        env=dict(lab.environment()),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=True,
    )
    assert "submitted again as" in done.stdout
    row = sdk.store.get_job(job.id)
    assert row is not None
    assert row["status"] == "Complete"
    assert len(submissions(lab, job)) == 2


def test_a_cancelled_job_is_never_submitted_again(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Although what it says on its way out looks like bad hardware."""
    job = running(sdk, f"stop() {{ {BAD_HARDWARE}; }}; trap stop TERM; {UNTIL_STOPPED}")
    assert job.cancel()
    assert job.status == "Canceled"
    assert len(submissions(lab, job)) == 1
    assert not has_credentials(lab, job)


def test_one_that_ended_before_it_could_be_cancelled_is_not_submitted_again(
    sdk: SlurmSDK, lab: SlurmPlatformLab
) -> None:
    """The wish to cancel came between its end and the first look at that."""
    job = start(sdk, BAD_HARDWARE)
    states.wait_for_state(lab.slurm, slurm_id(lab, job), "FAILED")
    sdk.backend.cancel(reference(sdk, job.id))
    assert job.wait(timeout=LONG).status == "Error"
    assert len(submissions(lab, job)) == 1


def right_of(sdk: SlurmSDK, lab: SlurmPlatformLab, job: Job) -> Path:
    """The right to submit a job a second time."""
    token = reference(sdk, job.id).identity.token
    return lab.slurm.shared / "jobs" / job.id / "claims" / f"{token}.2.sbatch"


def taken_by_one_who_died(right: Path, *, minutes: int) -> None:
    right.mkdir()
    stat = right.parent.stat()
    os.chown(right, stat.st_uid, stat.st_gid)
    then = time.time() - 60 * minutes
    os.utime(right, (then, then))


def test_a_submitter_that_died_is_succeeded(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Between taking the right and sbatch: after a while another takes over, and not before."""
    job = start(sdk, ONCE_BAD)
    states.wait_for_state(lab.slurm, slurm_id(lab, job), "FAILED")
    right = right_of(sdk, lab, job)
    taken_by_one_who_died(right, minutes=0)
    for _ in range(2):
        status = job.refresh()
        assert (status.status, status.message[:20]) == ("Pending", "being submitted agai")
    assert len(submissions(lab, job)) == 1
    right.rmdir()
    taken_by_one_who_died(right, minutes=10)
    assert job.wait(timeout=LONG).status == "Complete"
    assert len(submissions(lab, job)) == 2


def test_what_a_submitter_that_died_had_submitted_is_adopted(
    sdk: SlurmSDK, lab: SlurmPlatformLab
) -> None:
    """sbatch had worked, and nobody noted it; in the queue or ended, it is the second attempt."""
    job = start(sdk, ONCE_BAD)
    states.wait_for_state(lab.slurm, slurm_id(lab, job), "FAILED")
    taken_by_one_who_died(right_of(sdk, lab, job), minutes=10)
    script = lab.slurm.shared / "jobs" / job.id / "sbatch" / f"job_{job.id}.sbatch"
    second = lab.slurm.run_as_user(
        "sbatch", "--parsable", "--export=ALL,TAO_SUBMISSION=2", str(script)
    ).strip()
    states.wait_for_state(lab.slurm, second, "COMPLETED")
    assert job.wait(timeout=LONG).status == "Complete"
    assert len(submissions(lab, job)) == 1
