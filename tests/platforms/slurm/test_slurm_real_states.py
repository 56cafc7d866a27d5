"""Every state of Slurm, made for real on a cluster, and what the SDK says of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from own_cluster import cluster as cluster
from own_cluster import lab as lab
from own_cluster import platform_lab
from slurm_jobs import (
    CANARY,
    LONG,
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

from lab.ports import free_port
from lab.slurm import (
    SlurmLab,
    SlurmVariant,
    cgroups,
    private_cluster,
    shared_cluster,
    states,
)
from tao_sdk import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.slurm import SlurmSDK
from tao_sdk.script_runner import build_entrypoint

_BARE = SlurmVariant(accounting=False, pyxis=False, enroot=False, keep_finished_seconds=2)


def explained(sdk: SlurmSDK, job: Job) -> str:
    found = sdk.get_failure_analysis(job.id)
    return "" if found is None else str(found["err_class"])


@pytest.mark.seed("002.13")
def test_ends_of_programs(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Lessons W6, B7: the job's exit code is the program's, for Slurm as well."""
    status = 'echo \'{"status": "RUNNING"}\' > %s; echo \'{"status": "%s"}\' >> %s'
    ends = {
        "true": ("Complete", 0, "", "COMPLETED 0:0"),
        "exit 7": ("Error", 7, "ERR_PROGRAM", "FAILED 7:0"),
        # Slurm shows seven bits of it.
        "kill -9 $$": ("Error", 137, "ERR_OOM", "FAILED 9:0"),
        "kill -SEGV $$": ("Error", 139, "ERR_PROGRAM", "FAILED 11:0"),
        # Lesson 6.2: 124 is not the wall time, and is not requeued.
        "timeout 0.1 sleep 60": ("Error", 124, "ERR_PROGRAM", "FAILED 124:0"),
        status % (("status.json", "FAILURE", "status.json")): (
            "Error",
            0,
            "ERR_PROGRAM",
            "COMPLETED 0:0",
        ),
        "mkdir train; " + status % ("train/status.json", "SUCCESS", "train/status.json"): (
            "Complete",
            0,
            "",
            "COMPLETED 0:0",
        ),
    }
    jobs = sdk.create_jobs(keywords(script) for script in ends)
    sdk.wait_all([job.id for job in jobs], timeout=LONG)
    seen = {}
    for script, job in zip(ends, jobs, strict=True):
        row = sdk.store.get_job(job.id)
        assert row is not None
        told = accounted(lab.slurm, slurm_id(lab, job))
        seen[script] = (row["status"], row["exit_code"], explained(sdk, job), told)
        assert len(submissions(lab, job)) == 1
        assert not has_credentials(lab, job)
    assert seen == ends


def accounted(slurm: SlurmLab, job: str) -> str:
    """State and exit code, once accounting has caught up."""
    words = ("sacct", "-X", "-n", "-P", "-j", job, "-o", "State,ExitCode")
    over = re.compile(r"(?!RUNNING|PENDING)\w+.*\|\d+:\d+")
    return (
        eventually(
            lambda: over.fullmatch(slurm.run_as_root(*words).strip()) and slurm.run_as_root(*words)
        )
        .strip()
        .replace("|", " ")
    )


def test_killed_as_a_whole(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Nothing of the job lived to leave a record; Slurm alone knows the signal."""
    job = running(sdk, UNTIL_STOPPED)
    os.kill(batch_process(slurm_id(lab, job)), signal.SIGKILL)
    job.wait(timeout=LONG)
    row = sdk.store.get_job(job.id)
    assert row is not None
    assert (row["status"], row["exit_code"]) == ("Error", 137)
    assert row["message"] == "Failed with exit code 137 (Slurm: FAILED)"


def batch_process(job: str) -> int:
    """The process of a job's batch script: nodes are on this machine."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command, variables = ((place / n).read_bytes() for n in ("cmdline", "environ"))
            if b"slurm_script" in command and f"SLURM_JOB_ID={job}\0".encode() in variables:
                return int(place.name)
    raise AssertionError(f"job {job} has no batch script that runs")


def test_out_of_memory_by_control_groups(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    if not cgroups.available():
        pytest.skip("this machine has no control groups that Slurm could use")
    job = start(sdk, states.USE_TOO_MUCH_MEMORY, memory="20M")
    assert job.wait(timeout=LONG).status == "Error"
    analysis = job.explain()
    assert analysis is not None
    assert analysis["err_class"] == "ERR_OOM"
    assert analysis["cause"].endswith("killed because the memory limit was reached")
    assert len(submissions(lab, job)) == 1


def test_out_of_memory_without_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm then looks at the sizes of processes, and calls the end CANCELLED or FAILED."""
    with private_cluster(SlurmVariant(cgroup=False, accounting=False)) as cluster:
        with cluster.layout.slurm_conf.open("a") as configuration:
            configuration.write("JobAcctGatherParams=OverMemoryKill\n")
        cluster.stop_controller()
        for node in cluster.nodes:
            cluster.kill_slurmd(node)
            cluster.start_slurmd(node)
        cluster.start_controller()
        with platform_lab(cluster, tmp_path, monkeypatch) as lab, lab.sdk() as sdk:
            hold = "import time\\nx = bytearray(300 << 20)\\ntime.sleep(600)"
            job = start(sdk, f"printf '{hold}' | python3", memory="40M")
            status = job.wait(timeout=LONG)
            assert status.status == "Error", status
            assert explained(sdk, job) == "ERR_OOM"


@pytest.mark.seed("002.13", "002.15")
def test_cancelled_by_somebody_else(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    """Lesson W1: running, queued or held, `CANCELLED by 0` is an end; and we say who it was."""
    jobs = {
        "running": running(sdk, UNTIL_STOPPED),
        "queued": start(sdk, "true", partition="closed"),
        "held": start(sdk, "true", partition="closed"),
    }
    lab.slurm.run_as_root("scontrol", "hold", slurm_id(lab, jobs["held"]))
    eventually(lambda: "held by an administrator" in jobs["held"].refresh().message)
    for job in jobs.values():
        states.cancel(lab.slurm, slurm_id(lab, job))
        accounted(lab.slurm, slurm_id(lab, job))
        assert job.wait(timeout=LONG).status == "Canceled"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["cause"].startswith("cancelled")
        assert not has_credentials(lab, job)
        assert len(submissions(lab, job)) == 1
        assert job.cancel()


def test_suspended_and_resumed(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    job = running(sdk, UNTIL_STOPPED)
    states.suspend(lab.slurm, slurm_id(lab, job))
    assert job.refresh().status == "Paused"
    states.unsuspend(lab.slurm, slurm_id(lab, job))
    assert job.refresh().status == "Running"
    states.suspend(lab.slurm, slurm_id(lab, job))
    assert job.cancel()
    assert job.status == "Canceled"


def requeue_specially(slurm: SlurmLab, job: str) -> None:
    slurm.run_as_root("scontrol", "requeuehold", "State=SpecialExit", job)
    states.wait_for_state(slurm, job, "SPECIAL_EXIT")


def preempt_for_a_moment(slurm: SlurmLab, job: str) -> None:
    states.cancel(slurm, states.preempt(slurm, job))


@pytest.mark.seed("002.13", "002.14", "002.16")
@pytest.mark.parametrize(
    "disturb", [states.requeue, states.fail_node, preempt_for_a_moment, requeue_specially]
)
def test_requeued_jobs_wait_and_run_again(
    sdk: SlurmSDK, lab: SlurmPlatformLab, disturb: Callable[[SlurmLab, str], object]
) -> None:
    """Lesson W7: a preempted job that Slurm restarts is not dead; nor is one that lost its node.

    Its second attempt knows its number, finds its credentials, and adds to the log.
    """
    job = running(sdk, SECOND_TIME_WELL)
    number = slurm_id(lab, job)
    disturb(lab.slurm, number)
    status = eventually(lambda: (s := job.refresh()).status == "Pending" and s)
    assert status.message, "a waiting job says why"
    assert has_credentials(lab, job)
    if states.state_of(lab.slurm, number) == "SPECIAL_EXIT":
        lab.slurm.run_as_root("scontrol", "release", number)
        states.wait_for_state(lab.slurm, number, "PENDING", "RUNNING", "COMPLETED")
    lab.slurm.release_requeued(number)
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    attempts = re.findall(r"attempt (\d), restart (\d), has (\S+)", sdk.get_job_logs(job.id))
    assert attempts == [("1", "0", CANARY), ("2", "1", CANARY)]
    assert not has_credentials(lab, job)
    assert job.explain() is None


def test_the_failure_of_a_second_attempt_is_not_explained_by_the_first(
    sdk: SlurmSDK, lab: SlurmPlatformLab
) -> None:
    """Both are in one log, and in the first one Slurm says that it was preempted."""
    script = f'[ "$TAO_ATTEMPT" = 1 ] && {{ {UNTIL_STOPPED}; }}; exit 3'
    job = running(sdk, script)
    preempt_for_a_moment(lab.slurm, slurm_id(lab, job))
    lab.slurm.release_requeued(slurm_id(lab, job))
    assert job.wait(timeout=LONG).status == "Error"
    assert "PREEMPTION" in "".join(
        path.read_text() for path in (lab.slurm.shared / "jobs" / job.id).rglob("*.err")
    )
    assert explained(sdk, job) == "ERR_PROGRAM"
    assert len(submissions(lab, job)) == 1


@pytest.mark.seed("002.13")
def test_preempted_for_good(
    sdk: SlurmSDK, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No requeue and no retry: Canceled, and yet it is said why."""
    monkeypatch.setenv("SLURM_MAX_RETRIES", "0")
    job = running(sdk, UNTIL_STOPPED, requeue=False)
    states.preempt(lab.slurm, slurm_id(lab, job))
    status = job.wait(timeout=LONG)
    assert (status.status, status.message) == ("Canceled", "Preempted (Slurm: PREEMPTED)")
    assert explained(sdk, job) == "ERR_PREEMPTED"
    assert not has_credentials(lab, job)


@pytest.mark.seed("002.13")
def test_without_accounting_the_controller_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson 6.2: sites without slurmdbd."""
    with (
        shared_cluster(SlurmVariant(cgroup=False, accounting=False)) as cluster,
        platform_lab(cluster, tmp_path, monkeypatch) as lab,
        lab.sdk() as sdk,
    ):
        killed = running(sdk, UNTIL_STOPPED)
        lab.slurm.run_as_root("scancel", slurm_id(lab, killed))
        assert killed.wait(timeout=LONG).status == "Canceled"
        failed = start(sdk, "exit 7")
        assert failed.wait(timeout=LONG).message == "Failed with exit code 7 (Slurm: FAILED)"


def test_why_a_job_will_never_start(sdk: SlurmSDK, lab: SlurmPlatformLab) -> None:
    first = running(sdk, UNTIL_STOPPED)
    second = start(sdk, "true", dependency=f"afterok:{slurm_id(lab, first)}")
    eventually(lambda: "(Dependency)" in sdk.get_job_status(second.id).message)
    assert sdk.get_failure_analysis(second.id) is None
    assert first.cancel()
    eventually(lambda: "never" in sdk.get_job_status(second.id).message, LONG)
    analysis = sdk.get_failure_analysis(second.id)
    assert analysis is not None
    assert analysis["err_class"] == "ERR_PROGRAM"
    assert "DependencyNeverSatisfied" in analysis["cause"]
    assert not analysis["retriable"]
    assert second.cancel()


@pytest.mark.seed("002.13")
def test_when_everybody_has_forgotten_it_the_job_itself_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson 6.2: no accounting, and nobody looked while the controller remembered."""
    with (
        shared_cluster(_BARE) as cluster,
        platform_lab(cluster, tmp_path, monkeypatch) as lab,
        lab.sdk() as sdk,
    ):
        failed, done = (start(sdk, script) for script in ("exit 7", "true"))
        for job in (failed, done):
            lab.slurm.forget(f"tao-job-{job.id}")
        status = failed.wait(timeout=LONG)
        assert status.message == "Failed with exit code 7 (from the job's own record)"
        assert explained(sdk, failed) == "ERR_PROGRAM"
        assert done.wait(timeout=LONG).status == "Complete"


@pytest.mark.seed("002.16", "002.12")
def test_a_training_on_two_nodes_survives_a_preemption(
    sdk: SlurmSDK, lab: SlurmPlatformLab
) -> None:
    """The demo trainer, from a squashfs image: urgent work takes a node, and it goes on from its
    checkpoint when that is done.
    """
    specs = {
        "results_dir": "",
        "dataset": {"num_samples": 500, "image_size": 8, "batch_size": 32},
        "train": {
            "num_epochs": 6,
            "num_nodes": 2,
            "epoch_seconds": 1.0,
            "resume_training_checkpoint_path": "",
        },
    }
    command = build_entrypoint(
        command="dino train -e {config_path}",
        specs=specs,
        outputs={"results_dir": {"type": "folder"}},
        config_format="yaml",
    )["command"]
    job = sdk.create_job(
        image=str(lab.slurm.images["trainer"]),
        command=command,
        gpu_count=1,
        num_nodes=2,
        # The lab's nodes have names that no host has: all are this machine.
        env_vars={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
    )
    eventually(lambda: "Epoch 2/6" in sdk.get_job_logs(job.id), LONG)
    preempt_for_a_moment(lab.slurm, slurm_id(lab, job))
    assert job.refresh().status == "Pending"
    lab.slurm.release_requeued(slurm_id(lab, job))
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    log = sdk.get_job_logs(job.id)
    assert "Resuming after" in log
    assert log.count("[rank 0] Epoch 1/6") == 1
    digests = re.findall(r"weights have sha256 (\w+)", log)
    assert len(digests) == 2
    assert len(set(digests)) == 1, "both ranks hold the same weights"
