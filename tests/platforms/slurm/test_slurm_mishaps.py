"""What login hosts, schedulers and users do to jobs that nobody thought of: on a real cluster."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from slurm_lab import SlurmPlatformLab

from tao_sdk.errors import BackendUnreachableError, PlatformError, SubmissionRejectedError
from tao_sdk.models import Job
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import reference
from tao_sdk.platforms.slurm import SlurmSDK

CANARY = "canary-of-mishaps-4711"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_RETRY_SECONDS", "0")


def at_login(lab: SlurmPlatformLab, line: str) -> None:
    """Have every login shell do this."""
    with (lab.slurm.home / ".bashrc").open("a") as file:
        file.write(f"{line}\n")


def wrap_sbatch(lab: SlurmPlatformLab, body: str) -> None:
    """Put a program of the site's before sbatch, which is `$real` in it."""
    real = shutil.which("sbatch", path=lab.slurm.cluster.environment["PATH"])
    replace_program(lab, "sbatch", f"real={real}; {body}")


def replace_program(lab: SlurmPlatformLab, name: str, body: str) -> Path:
    """Put a program before one of Slurm's, for login shells."""
    folder = lab.slurm.home / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/bash\n{body}\n")
    program.chmod(0o755)
    at_login(lab, f"export PATH={folder}:$PATH")
    return program


def slurm_id(sdk: SlurmSDK, job: Job) -> str:
    return str(sdk.get_backend_details(job.id)["slurm_metadata"]["slurm_job_id"])


def places_of_canary(lab: SlurmPlatformLab) -> list[Path]:
    files = [path for path in lab.slurm.shared.rglob("*") if path.is_file()]
    return [path for path in files if CANARY.encode() in path.read_bytes()]


class TestDoubt:
    """sbatch fails, and that says little about the controller."""

    LOST = 'echo "sbatch: error: Zero Bytes were transmitted or received" >&2; exit 1'

    def test_a_job_whose_answer_was_lost_is_known(self, lab: SlurmPlatformLab) -> None:
        """It waits in the queue, whatever sbatch said."""
        wrap_sbatch(lab, f'$real "$@" >/dev/null; {self.LOST}')
        sdk = lab.sdk()
        job = sdk.create_job(**lab.counted_job("sleep 1"))
        assert job.wait(timeout=60).status == "Complete"
        assert lab.starts_of(job.id) == 1

    def test_a_job_that_comes_late_never_runs(self, lab: SlurmPlatformLab) -> None:
        """Refused, as it seems; the controller has it only afterwards."""
        wrap_sbatch(lab, f'(sleep 2; $real "$@") >/dev/null 2>&1 & {self.LOST}')
        sdk = lab.sdk()
        with pytest.raises(SubmissionRejectedError, match="Zero Bytes"):
            sdk.create_job(**{**lab.counted_job("true"), "env_vars": {"MY_TOKEN": CANARY}})
        [row] = sdk.store.list_jobs()
        assert row["status"] == "Error"
        errors = lab.slurm.shared / "jobs" / row["job_id"] / "slurm-logs"
        left = eventually(lambda: list(errors.glob("batch-*.err")), 60)
        eventually(lambda: "withdrawn" in left[0].read_text(), 60)
        assert lab.starts_of(row["job_id"]) == 0
        assert places_of_canary(lab) == []

    def test_a_claim_without_a_name_is_taken_over(self, lab: SlurmPlatformLab) -> None:
        """The job that made it was killed before it wrote its name."""
        sdk = lab.sdk()
        plan = sdk.plan(**lab.counted_job("true"))
        folder = lab.slurm.shared / "jobs" / plan.job_id
        claim = folder / "claims" / f"{plan.identity.token}.1.0"
        claim.mkdir(parents=True)
        for path in (folder.parent, folder, claim.parent, claim):
            os.chown(path, lab.slurm.shared.stat().st_uid, lab.slurm.shared.stat().st_gid)
        job = JobRef(plan.identity, plan.intent)
        assert sdk.backend.settle([job]) == {}, "it may be about to write it"
        os.utime(claim, (0, 0))
        assert sdk.backend.settle([job]) == {}
        assert sdk.backend.settle([job]) == {plan.job_id: None}

    def test_an_array_whose_answer_was_lost_is_not_submitted_again(
        self, lab: SlurmPlatformLab
    ) -> None:
        wrap_sbatch(
            lab,
            'case "$*" in *array.sbatch*) $real "$@" >/dev/null; '
            f'{self.LOST};; esac; exec $real "$@"',
        )
        sdk = lab.sdk()
        jobs = sdk.create_jobs([lab.counted_job("sleep 2") for _ in range(3)])
        assert list(sdk.backend.transport.calls).count("submit") == 0
        statuses = sdk.wait_all([job.id for job in jobs], timeout=60)
        assert {status.status for status in statuses.values()} == {"Complete"}
        assert [lab.starts_of(job.id) for job in jobs] == [1, 1, 1]

    def test_an_array_that_comes_late_leaves_its_jobs_to_those_submitted_singly(
        self, lab: SlurmPlatformLab
    ) -> None:
        wrap_sbatch(
            lab,
            'case "$*" in *array.sbatch*) (sleep 1; $real "$@") >/dev/null 2>&1 & '
            f'{self.LOST};; esac; exec $real "$@"',
        )
        sdk = lab.sdk()
        jobs = sdk.create_jobs([lab.counted_job("sleep 3") for _ in range(3)])
        statuses = sdk.wait_all([job.id for job in jobs], timeout=90)
        assert {status.status for status in statuses.values()} == {"Complete"}
        assert [lab.starts_of(job.id) for job in jobs] == [1, 1, 1]

    def test_words_around_the_number_are_left_out(self, lab: SlurmPlatformLab) -> None:
        wrap_sbatch(lab, 'echo "Welcome: 1234.5 GPU hours left"; exec $real "$@"')
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo hello"))
        assert slurm_id(sdk, job).isdigit()
        assert job.wait(timeout=60).status == "Complete"

    def test_what_was_refused_leaves_no_secret(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        bad: dict[str, Any] = {
            **lab.job("true"),
            "env_vars": {"MY_TOKEN": CANARY},
            "reservation": "no-such-thing",
        }
        with pytest.raises(SubmissionRejectedError, match=r"[Rr]eservation"):
            sdk.create_job(**bad)
        assert {job.status for job in sdk.create_jobs([bad, bad])} == {"Error"}
        assert places_of_canary(lab) == []


class TestEnvironment:
    def test_a_job_may_call_its_variables_as_we_do(self, lab: SlurmPlatformLab) -> None:
        """Neither side sees the other's."""
        names = [
            "job_id",
            "results_root",
            "job_dir",
            "token",
            "nodes",
            "gpus",
            "logs",
            "image",
            "program",
            "shell",
            "roles",
            "environment",
            "d",
            "r",
            "f",
            "s",
            "g",
            "p",
            "n",
            "k",
            "o",
            "c",
        ]
        values = {name: f"mine-{name}" for name in names}
        sdk = lab.sdk()
        script = 'echo "$TAO_JOB_ID $TAO_ATTEMPT"; env | grep =mine- | sort'
        job = sdk.create_job(**lab.job(script), env_vars=values)
        assert job.wait(timeout=60).status == "Complete"
        first, *rest = sdk.get_job_logs(job.id).splitlines()
        assert first == f"{job.id} 1"
        assert rest == sorted(f"{name}={value}" for name, value in values.items())

    def test_a_path_of_its_own_hides_no_program_of_ours(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job('echo "$PATH"'), env_vars={"PATH": "/opt/tao/bin"})
        assert job.wait(timeout=60).status == "Complete"
        assert sdk.get_job_logs(job.id).splitlines()[0] == "/opt/tao/bin"

    def test_what_the_plan_says_wins_over_the_login_shell(self, lab: SlurmPlatformLab) -> None:
        at_login(lab, "export SBATCH_TIMELIMIT=7 SBATCH_JOB_NAME=mine SQUEUE_PARTITION=closed")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 2"), time_hours=2)
        told = lab.slurm.run_as_root("scontrol", "-o", "show", "job", slurm_id(sdk, job))
        assert "TimeLimit=02:00:00" in told
        assert f"JobName=tao-job-{job.id}" in told
        assert job.wait(timeout=60).status == "Complete"

    def test_the_job_has_the_users_locale(self, lab: SlurmPlatformLab) -> None:
        at_login(lab, "export LANG=C.UTF-8")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job('echo "<$LC_ALL> $(locale charmap)"'))
        assert job.wait(timeout=60).status == "Complete"
        assert sdk.get_job_logs(job.id) == "<> UTF-8\n"


class TestTruth:
    def test_a_job_that_could_not_begin_is_not_complete(self, lab: SlurmPlatformLab) -> None:
        """Its folder cannot be written to: a quota, say."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"), partition="closed", requeue=False)
        claims = lab.slurm.shared / "jobs" / job.id / "claims"
        claims.chmod(0o500)
        number = slurm_id(sdk, job)
        lab.slurm.run_as_root("scontrol", "update", f"jobid={number}", "partition=batch")
        log = claims.parent / "slurm-logs" / f"batch-{number}.err"
        eventually(lambda: log.exists() and "cannot be written to" in log.read_text(), 60)
        status = eventually(lambda: (seen := sdk.get_job_status(job.id)).message != "" and seen, 60)
        assert status.status != "Complete"
        claims.chmod(0o700)

    def test_nothing_is_planned_while_the_controller_is_away(self, lab: SlurmPlatformLab) -> None:
        """Its cluster would have no name, and the job would never be found again."""
        replace_program(lab, "scontrol", "exit 1")
        with pytest.raises(BackendUnreachableError, match="controller of Slurm does not answer"):
            lab.sdk().create_job(**lab.job("true"))

    def test_accounting_that_is_away_forgets_no_job(
        self, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"), partition="closed")
        number = slurm_id(sdk, job)
        assert job.refresh().status == "Pending"
        lab.slurm.run_as_root("scancel", number)
        gone = ("squeue", "-h", "-t", "all", "-j", number)
        eventually(lambda: not lab.slurm.run_as_root(*gone, check=False).strip(), 60)
        silent = "echo 'sacct: error: Problem talking to the database' >&2; exit 1"
        sacct = replace_program(lab, "sacct", silent)
        for _ in range(2):
            status = job.refresh()
            assert status.status == "Pending"
            assert "Problem talking to the database" in status.message
        sacct.unlink()
        assert job.refresh().status == "Canceled"

    def test_results_on_a_disk_that_is_away_are_not_deleted(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"))
        job.wait(timeout=60)
        jobs = lab.slurm.shared / "jobs"
        jobs.rename(jobs.with_name("away"))
        with pytest.raises(BackendUnreachableError, match="is it mounted"):
            sdk.backend.delete_artifacts(reference(sdk, job.id))
        jobs.with_name("away").rename(jobs)
        assert sdk.delete_job_artifacts(job.id)

    def test_a_folder_that_may_not_be_read_is_not_an_empty_one(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        folder = lab.slurm.shared / "closed" / "within"
        folder.mkdir(parents=True)
        folder.parent.chmod(0o700)
        for look in (sdk.check_path, sdk.list_path):
            with pytest.raises(PlatformError, match="permission denied"):
                look(str(folder))
        with pytest.raises(PlatformError, match="permission denied"):
            sdk.list_path(str(folder.parent))

    def test_the_exit_code_is_that_of_the_rank_that_failed_first(
        self, lab: SlurmPlatformLab
    ) -> None:
        sdk = lab.sdk()
        script = 'if [ "$NODE_RANK" = 1 ]; then exit 3; fi; sleep 600'
        job = sdk.create_job(**lab.job(script), num_nodes=2)
        status = job.wait(timeout=90)
        assert status.status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["exit_code"], analysis["rank"]) == (3, 1)
        assert "cancelled" not in analysis["cause"]
        row = sdk.store.get_job(job.id)
        assert row is not None
        assert row["exit_code"] == 3


class TestManyAtOnce:
    def test_failures_are_explained_together(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        jobs = sdk.create_jobs([lab.job("echo boom; exit 3") for _ in range(12)])
        ids = [job.id for job in jobs]
        eventually(lambda: not lab.slurm.run_as_root("squeue", "-h", "-u", lab.slurm.user).strip())
        before = len(sdk.backend.transport.calls)
        statuses = sdk.get_statuses(ids)
        assert {status.status for status in statuses.values()} == {"Error"}
        # A look, the evidence, and again for the explanation; then the secrets go.
        assert len(sdk.backend.transport.calls) - before <= 6
        assert {job.explain()["exit_code"] for job in jobs} == {3}  # type: ignore[index] # they failed

    def test_an_array_cancelled_by_hand_is_cancelled(self, lab: SlurmPlatformLab) -> None:
        """Accounting has one line for tasks that never began: `7_[0-3]`."""
        sdk = lab.sdk()
        jobs = sdk.create_jobs([{**lab.job("true"), "partition": "closed"} for _ in range(4)])
        number = slurm_id(sdk, jobs[0]).partition("_")[0]
        lab.slurm.run_as_root("scancel", number)
        gone = ("squeue", "-h", "-t", "all", "-j", number)
        eventually(lambda: not lab.slurm.run_as_root(*gone, check=False).strip(), 60)
        before = len(sdk.backend.transport.calls)
        statuses = sdk.get_statuses([job.id for job in jobs])
        assert {status.status for status in statuses.values()} == {"Canceled"}
        assert len(sdk.backend.transport.calls) - before <= 6

    def test_components_of_a_heterogeneous_job_are_one_job(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.counted_job('echo "$SLURM_HET_SIZE"'), sbatch_extra=["hetjob", "--nodes=1"]
        )
        assert job.wait(timeout=60).status == "Complete"
        assert sdk.get_job_logs(job.id) == "2\n"
        assert lab.starts_of(job.id) == 1


class TestLogs:
    def test_a_log_on_a_disk_that_is_away_is_not_empty(self, lab: SlurmPlatformLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo kept"))
        job.wait(timeout=60)
        jobs = lab.slurm.shared / "jobs"
        jobs.rename(jobs.with_name("away"))
        with pytest.raises(BackendUnreachableError, match="is it mounted"):
            sdk.get_job_logs(job.id)
        jobs.with_name("away").rename(jobs)
        assert sdk.get_job_logs(job.id) == "kept\n"

    def test_what_slurm_says_first_hides_no_line_of_the_job(self, lab: SlurmPlatformLab) -> None:
        """While there are no tasks, one sees what the batch script says; then the job's own."""
        sdk = lab.sdk()
        script = "seq 1 400 >&2; echo out"
        plan = sdk.plan(**lab.job(script), env_vars={"SLURM_DEBUG": "3"})
        job = sdk.submit(plan)
        got = list(sdk.stream_logs(job.id))
        assert [line for line in got if line.isdigit()] == [str(n) for n in range(1, 401)]
        assert got.count("out") == 1

    def test_exactly_so_many_last_lines_whatever_their_size(self, lab: SlurmPlatformLab) -> None:
        """Lesson 6.2: the tail of two files is not twice the lines, and a long one is not cut."""
        sdk = lab.sdk()
        line = "x" * 70
        script = f'for n in $(seq 1 9000); do echo "$n {line}"; done; seq 1 5 >&2'
        job = sdk.create_job(**lab.job(script))
        job.wait(timeout=90)
        lines = sdk.get_job_logs(job.id, tail=8000).splitlines()
        assert len(lines) == 8000
        written = [f"{n} {line}" for n in range(1006, 9001)]
        assert [text for text in lines if text.endswith("x")] == written
        assert [text for text in lines if text.isdigit()] == ["1", "2", "3", "4", "5"]
        assert len(sdk.get_job_logs(job.id).splitlines()) == 9005
