"""Instances that are made for jobs: waited for, used, and never left behind unknown."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from brev_lab import BrevLab

from lab.docker.images import BUSYBOX
from tao_sdk import JobStore, settings
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    JobExistsError,
    PlatformError,
    StoreError,
    SubmissionRejectedError,
    UnsupportedError,
)
from tao_sdk.platforms.brev import BrevSDK
from tao_sdk.platforms.brev.backend import BrevBackend
from tao_sdk.platforms.brev.client import BrevClient
from tao_sdk.platforms.brev.instances import UNSEEN, InstanceProgress, Instances
from tao_sdk.platforms.brev.ledger import (
    DELETED,
    IN_USE,
    KEPT,
    ORDERED,
    UNWANTED,
    Entry,
    Ledger,
)
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.results import results_of
from tao_sdk.results import copy_results, plan_pull

LONG = 90


def new(script: str, **more: Any) -> dict[str, Any]:
    """A job that gets an instance of its own."""
    return {"image": BUSYBOX, "command": script, "gpu_count": 1, "gpu_type": "L40S", **more}


def ledger(lab: BrevLab) -> Ledger:
    backend = lab.sdk().backend
    assert isinstance(backend, BrevBackend)
    return backend.instances.ledger


def made(lab: BrevLab) -> set[str]:
    """Instances that are there, beside the lab's own."""
    return lab.cloud.names() - {lab.instance}


def test_made_used_and_deleted(lab: BrevLab) -> None:
    sdk = lab.sdk()
    plan = sdk.plan(**new("echo hello"))
    assert "g6e.xlarge-cheap (1 x L40S, crusoe, $1.95 an hour)" in plan.render()
    assert made(lab) == set(), "a plan makes nothing"
    job = sdk.submit(plan)
    assert made(lab) == {f"tao-{job.id[:8]}"}
    assert job.wait(timeout=LONG).status == "Complete"
    assert made(lab) == set()
    assert sdk.get_job_logs(job.id) == "hello\n", "its log is kept"
    assert sdk.get_job_logs(job.id, tail=0) == ""
    assert BrevSDK(state_file=lab.state_file).get_job_logs(job.id, tail=1) == "hello\n"
    sdk.reconcile()
    assert ledger(lab).entries() == [], "nothing is left to be looked after"


def test_a_failure_is_explained_though_its_instance_is_gone(lab: BrevLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(
        **new('echo "it went wrong, $TOKEN"; exit 7'), env_vars={"TOKEN": "s3cr3t-x"}
    )
    assert job.wait(timeout=LONG).status == "Error"
    assert made(lab) == set()
    analysis = job.explain()
    assert analysis is not None
    assert analysis["exit_code"] == 7
    assert any("it went wrong, [secret]" in line for line in analysis["evidence"])


def test_cancelled_jobs_give_theirs_back(lab: BrevLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**new("echo up; sleep 600"))
    eventually(lambda: "up" in sdk.get_job_logs(job.id))
    assert job.cancel()
    assert job.status == "Canceled"
    assert made(lab) == set()


@pytest.mark.seed("000.23")
def test_it_is_waited_for_and_said(lab: BrevLab) -> None:
    """RUNNING is not enough: a program must run on it, and Docker answer."""
    said: list[InstanceProgress] = []
    sdk = BrevSDK(state_file=lab.state_file, on_progress=said.append)
    with lab.cloud.faulty(boot_seconds=2.0):
        job = sdk.create_job(**new("true"))
    assert "deploying" in [progress.stage for progress in said]
    assert said[0].instance in str(said[0])
    assert job.wait(timeout=LONG).status == "Complete"


def test_it_is_said_again(lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes may pass in one state: whoever waits sees that they do."""
    monkeypatch.setattr("tao_sdk.platforms.brev.instances.REPORT_AGAIN_SECONDS", 0.1)
    spent: list[float] = []

    def listen(progress: InstanceProgress) -> None:
        if progress.stage == "deploying":
            spent.append(progress.seconds)
        if len(spent) == 3:
            raise InterruptedError("enough")

    sdk = BrevSDK(state_file=lab.state_file, on_progress=listen)
    with lab.cloud.faulty(boot_seconds=3600), pytest.raises(InterruptedError, match="enough"):
        sdk.create_job(**new("true"))
    assert spent == sorted(spent)
    assert made(lab) == set()


def test_ctrl_c_while_it_is_waited_for(lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        assert len(made(lab)) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(Instances, "wait_until_ready", interrupted)
    sdk = lab.sdk()
    with pytest.raises(KeyboardInterrupt):
        sdk.create_job(**new("true"))
    assert made(lab) == set()
    assert sdk.list_jobs() == [], "no job was begun"


def test_it_is_ordered_before_its_job_is_written_down(lab: BrevLab) -> None:
    """A row that is being submitted for minutes would look abandoned to other machines."""
    stages: list[tuple[list[str], int]] = []

    def listen(_: InstanceProgress) -> None:
        states = [entry.state for entry in ledger(lab).entries()]
        stages.append((states, len(lab.sdk().list_jobs())))

    sdk = BrevSDK(state_file=lab.state_file, on_progress=listen)
    with lab.cloud.faulty(boot_seconds=1.0):
        job = sdk.create_job(**new("true"))
    assert ([ORDERED], 0) in stages
    assert {jobs for _, jobs in stages} == {0}
    [entry] = ledger(lab).entries()
    assert (entry.state, entry.jobs) == (IN_USE, (job.id,))
    assert job.wait(timeout=LONG).status == "Complete"


def test_another_machine_leaves_it_to_its_owner(
    lab: BrevLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process cannot be examined from there, and the lease of a submission is long over."""
    monkeypatch.setenv("TAO_SDK_SUBMIT_LEASE_SECONDS", "0.001")
    reconciled: list[int] = []

    def reconcile_elsewhere(progress: InstanceProgress) -> None:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("tao_sdk.process_identity.this_host", lambda: "other/b00t/pid")
            lab.sdk().reconcile()
        reconciled.append(len(made(lab)))

    sdk = BrevSDK(state_file=lab.state_file, on_progress=reconcile_elsewhere)
    with lab.cloud.faulty(boot_seconds=1.0):
        job = sdk.create_job(**new("true"))
    assert set(reconciled) == {1}
    assert job.wait(timeout=LONG).status == "Complete"


def test_many_are_made_side_by_side(lab: BrevLab) -> None:
    sdk = lab.sdk()
    with lab.cloud.faulty(boot_seconds=2.0):
        jobs = sdk.create_jobs([new("true"), new("true"), lab.job("true"), new("true")])
    assert len(lab.cloud.ever_made()) == 4
    assert {status.status for status in sdk.wait_all([job.id for job in jobs], LONG).values()} == {
        "Complete"
    }
    assert made(lab) == set()


def test_ctrl_c_while_many_are_waited_for(lab: BrevLab) -> None:
    once = threading.Lock()

    def interrupt(_: InstanceProgress) -> None:
        if once.acquire(blocking=False):  # each of the three instances reports
            os.kill(os.getpid(), signal.SIGINT)

    sdk = BrevSDK(state_file=lab.state_file, on_progress=interrupt)
    with lab.cloud.faulty(boot_seconds=3600), pytest.raises(KeyboardInterrupt):
        sdk.create_jobs([new("true")] * 3)
    eventually(lambda: lab.sdk().reconcile() == [] and made(lab) == set())
    assert sdk.list_jobs() == []


def test_one_is_given_back_if_its_job_cannot_be_written_down(
    lab: BrevLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = lab.sdk()
    plans = [sdk.plan(**new("true")) for _ in range(2)]
    first = sdk.submit(plans[0])
    with pytest.raises(JobExistsError):
        sdk.submit(plans[0])
    assert made(lab) == {f"tao-{first.id[:8]}"}, "that of the first submission stays"

    def full(*_: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(JobStore, "begin_submissions", full)
    with pytest.raises(StoreError, match="full"):
        sdk.submit(plans[1])
    assert made(lab) == {f"tao-{first.id[:8]}"}
    assert first.wait(timeout=LONG).status == "Complete"
    assert made(lab) == set()


def test_the_command_line_says_so(lab: BrevLab) -> None:
    words = ["run", "--platform", "brev", "--option", "gpu_type=L40S", "--gpus", "1", "--no-watch"]
    words += ["--image", BUSYBOX, "-c", "echo hello"]
    with lab.cloud.faulty(boot_seconds=2.0):
        done = subprocess.run(
            [sys.executable, "-m", "tao_sdk.cli", *words],
            env=dict(lab.environment()),
            capture_output=True,
            text=True,
            timeout=LONG,
        )
    assert done.returncode == 0, done.stderr
    assert ": deploying (" in done.stderr
    assert (
        "is made for it, and deleted after: g6e.xlarge-cheap (1 x L40S, crusoe, $1.95"
        in done.stderr
    )
    assert done.stdout == "hello\n"
    assert made(lab) == set()


def test_the_command_line_says_what_stays(lab: BrevLab) -> None:
    """Whoever has seen the end first: this process, or the watcher that goes along with it."""
    words = ["run", "--platform", "brev", "--option", "gpu_type=L40S", "--option", "keep=true"]
    words += ["--gpus", "1", "--image", BUSYBOX, "-c", "echo hello"]
    done = subprocess.run(
        [sys.executable, "-m", "tao_sdk.cli", *words],
        env=dict(lab.environment()),
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr
    [name] = made(lab)
    said = done.stderr.partition("Complete after")[2]
    assert f"instance {name} is kept ($1.95 an hour" in said
    assert "keep=True" in said


@pytest.mark.seed("000.23")
def test_one_that_is_never_ready_is_deleted(lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREV_READY_SECONDS", "2")
    with (
        lab.cloud.faulty(boot_seconds=3600),
        pytest.raises(SubmissionRejectedError, match="not ready within 2 s: deploying"),
    ):
        lab.sdk().create_job(**new("true"))
    assert made(lab) == set()


@pytest.mark.seed("000.23")
def test_one_that_is_there_and_does_not_answer(
    lab: BrevLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, not as long as for a new one, and left as it is."""
    waits = ("BREV_READY_SECONDS", "BREV_REUSE_SECONDS")
    assert [settings.get_seconds(name) for name in waits] == [600, 30]
    monkeypatch.setenv("BREV_REUSE_SECONDS", "1")
    with (
        lab.cloud.faulty(drop_before=1.0),
        pytest.raises(SubmissionRejectedError, match=r"box was not ready within 1 s: .*refused"),
    ):
        lab.sdk().create_job(**lab.job("true"))
    assert lab.cloud.names() == {"box"}


def test_one_that_fails_to_boot_is_deleted(lab: BrevLab) -> None:
    with (
        lab.cloud.faulty(boot_fails=True),
        pytest.raises(SubmissionRejectedError, match="FAILURE"),
    ):
        lab.sdk().create_job(**new("true"))
    assert made(lab) == set()


def test_no_capacity(lab: BrevLab) -> None:
    sdk = lab.sdk()
    with (
        lab.cloud.faulty(create_fails="insufficient capacity in every region"),
        pytest.raises(
            CapacityError, match=r"no g6e\.xlarge-cheap to give, nor g6e\.xlarge: .*in every region"
        ),
    ):
        sdk.create_job(**new("true"))
    [job] = sdk.list_jobs()
    analysis = job.explain()
    assert analysis is not None
    assert analysis["err_class"] == "ERR_CAPACITY"


def test_the_next_offer_is_ordered_when_one_is_gone(lab: BrevLab) -> None:
    """Each order is in the ledger before it is sent, with its price."""
    said: list[str] = []
    sdk = BrevSDK(state_file=lab.state_file, on_progress=lambda now: said.append(now.stage))
    with lab.cloud.faulty(none_left=["g6e.xlarge-cheap"]):
        job = sdk.create_job(**new("true"))
    assert "no g6e.xlarge-cheap to give; ordering g6e.xlarge (1 x L40S, aws, $2.23" in said[0]
    [entry] = ledger(lab).entries()
    assert (entry.type, entry.price) == ("g6e.xlarge", 2.23)
    assert len(lab.cloud.ever_made()) == 2
    assert job.wait(timeout=LONG).status == "Complete"
    assert made(lab) == set()


def test_no_more_is_paid_than_the_limit(lab: BrevLab) -> None:
    sdk = lab.sdk()
    with (
        lab.cloud.faulty(none_left=["g6e.xlarge-cheap"]),
        pytest.raises(CapacityError, match=r"no g6e\.xlarge-cheap to give"),
    ):
        sdk.create_job(**new("true", max_price=2.0))
    orders = [words[3] for words in lab.cloud.requests() if words[:1] == ["create"] and words[3:]]
    assert orders == ["g6e.12xlarge", "g6e.xlarge-cheap"], "the first is the lab's own"
    with pytest.raises(CapacityError, match="max_price"):
        sdk.plan(**new("true", max_price=1.0))


def test_provider_and_region(lab: BrevLab) -> None:
    sdk = lab.sdk()
    plan = sdk.plan(**new("true", provider="aws"))
    assert "made for this job: g6e.xlarge (1 x L40S, aws, $2.23 an hour)" in plan.render()
    with pytest.raises(UnsupportedError, match="region: this brev program does not tell"):
        sdk.plan(**new("true", region="us-east"))
    lab.cloud.configure(region="us-east-1")
    assert "crusoe us-east-1, $1.95" in sdk.plan(**new("true", region="us-east")).render()


def test_an_order_that_is_refused(lab: BrevLab) -> None:
    """Why is said; "could only create 0/1 instances" is no reason."""
    sdk = lab.sdk()
    with (
        lab.cloud.faulty(create_fails="your organization has no credits"),
        pytest.raises(
            SubmissionRejectedError, match="`brev create`: your organization has no cred"
        ),
    ):
        sdk.create_job(**new("true"))
    assert ledger(lab).entries()[0].state == DELETED


def test_an_order_without_an_answer(lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been heard: what came of it is looked for, and given back."""
    real = BrevClient.create

    def unanswered(*order: Any) -> None:
        real(*order)
        raise BackendUnreachableError("`brev create` did not answer within 300 s")

    monkeypatch.setattr(BrevClient, "create", unanswered)
    sdk = lab.sdk()
    with pytest.raises(BackendUnreachableError, match="did not answer"):
        sdk.create_job(**new("true"))
    assert len(lab.cloud.ever_made()) == 2
    assert made(lab) == set()
    [job] = sdk.list_jobs()
    assert job.status == "Error"


def test_without_github(lab: BrevLab) -> None:
    with lab.cloud.faulty(no_github=True):
        assert lab.sdk().create_job(**lab.job("true")).wait(timeout=LONG).status == "Complete"


def test_a_refusal_on_the_instance_deletes_it(lab: BrevLab) -> None:
    """The job was launched and could not begin: no GPUs like that there."""
    sdk = lab.sdk()
    job = sdk.create_job(**new("true", gpu_count=4))
    status = job.wait(timeout=LONG)
    assert status.status == "Error"
    assert "not enough GPUs: 4 asked for, and the instance has 2" in status.message
    assert made(lab) == set()


def test_keep(lab: BrevLab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tao_sdk.brev")
    sdk = lab.sdk()
    job = sdk.create_job(**new("true", keep=True))
    status = job.wait(timeout=LONG)
    assert status.status == "Complete"
    assert "is kept ($1.95 an hour" in status.message
    assert "is kept" in caplog.text
    [name] = made(lab)
    again = sdk.create_job(image=BUSYBOX, command="true", gpu_count=1, instance_id=name)
    assert again.wait(timeout=LONG).status == "Complete"
    assert made(lab) == {name}, "it is kept until somebody says otherwise"
    assert sdk.delete_instance(name)
    assert made(lab) == set()


def test_results_on_it_keep_it_until_they_are_pulled(
    lab: BrevLab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tao_sdk.brev")
    sdk = lab.sdk()
    place = str(lab.cloud.folder / "only-there")
    script = 'echo data > "$TAO_RESULTS_ROOT/$TAO_JOB_ID/out.txt"'
    job = sdk.create_job(**new(script, mounts=[f"{place}:/results"]))
    status = job.wait(timeout=LONG)
    assert status.status == "Complete"
    assert "the results are on it: tao-sdk pull" in status.message
    assert len(made(lab)) == 1
    assert "out.txt" in " ".join(sdk.list_path(job.results_dir))
    copy = lab.folder / "copy"
    source = results_of(sdk, job.id)
    outcomes = list(copy_results(source, plan_pull(source, copy)))
    assert not any(outcome.state.incomplete for outcome in outcomes)
    assert (copy / "out.txt").read_text() == "data\n"
    assert made(lab) == set(), "nothing keeps it any more"
    assert f"instance tao-{job.id[:8]} is deleted: the results were fetched" in caplog.text
    with pytest.raises(
        BackendUnreachableError, match=f"tao-{job.id[:8]} is gone: what was not pulled"
    ):
        results_of(lab.sdk(), job.id)


def test_results_on_one_that_was_stopped(lab: BrevLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("true"))
    assert job.wait(timeout=LONG).status == "Complete"
    sdk.stop_instance("box")
    with pytest.raises(BackendUnreachableError, match="box is stopped: brev start box"):
        results_of(lab.sdk(), job.id)
    with pytest.raises(BackendUnreachableError, match="box is stopped: brev start box"):
        lab.sdk().get_job_logs(job.id)


def test_a_part_of_the_results_does_not_let_it_go(lab: BrevLab) -> None:
    from tao_sdk.results import Selection

    sdk = lab.sdk()
    script = 'cd "$TAO_RESULTS_ROOT/$TAO_JOB_ID"; echo a > a; echo b > b'
    mounts = [f"{lab.cloud.folder / 'only-there'}:/results"]
    job = sdk.create_job(**new(script, mounts=mounts))
    job.wait(timeout=LONG)
    source = results_of(sdk, job.id)
    list(copy_results(source, plan_pull(source, lab.folder / "copy", Selection(("a",)))))
    assert len(made(lab)) == 1


def test_a_delete_that_fails_is_repeated(lab: BrevLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**new("true"))
    with lab.cloud.faulty(delete_fails=2):
        assert job.wait(timeout=LONG).status == "Complete"
    assert made(lab) == set()


def test_one_that_cannot_be_deleted(lab: BrevLab, caplog: pytest.LogCaptureFixture) -> None:
    """The next process that attends deletes it."""
    sdk = lab.sdk()
    job = sdk.create_job(**new("true"))
    with lab.cloud.faulty(delete_fails=1000):
        assert job.wait(timeout=LONG).status == "Complete"
    assert f"instance tao-{job.id[:8]} could not be deleted and costs money" in caplog.text
    assert len(made(lab)) == 1
    lab.sdk().reconcile()
    assert made(lab) == set()
    assert lab.sdk().store.jobs_to_clean("brev") == []


def test_a_process_that_only_looks_deletes_nothing(lab: BrevLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**new("echo hello"))
    eventually(lambda: sdk.look([job.id])[job.id].status == "Complete")
    assert len(made(lab)) == 1
    [entry] = ledger(lab).entries()
    assert entry.state == IN_USE
    lab.sdk().reconcile()
    assert made(lab) == set(), "the next one that attends cleans up"
    assert sdk.get_job_logs(job.id) == "hello\n"


def test_one_that_fails_under_its_job(lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ends as failed, with the cause, and the instance is deleted."""
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    sdk = lab.sdk()
    job = sdk.create_job(**new("sleep 600"))
    name = f"tao-{job.id[:8]}"
    eventually(lambda: sdk.get_job_status(job.id).status == "Running")
    lab.cloud.fail(name)
    status = sdk.wait(job.id, timeout=LONG)
    assert status.status == "Error"
    assert f"its instance {name} failed (Brev says FAILURE)" in status.message
    analysis = job.explain()
    assert analysis is not None
    assert analysis["err_class"] == "ERR_INFRA"
    assert "failed" in analysis["cause"]
    assert made(lab) == set()


def test_one_that_fails_with_results_on_it_is_kept(
    lab: BrevLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    sdk = lab.sdk()
    job = sdk.create_job(**new("sleep 600", mounts=[f"{lab.cloud.folder / 'there'}:/results"]))
    lab.cloud.fail(f"tao-{job.id[:8]}")
    assert sdk.wait(job.id, timeout=LONG).status == "Error"
    [entry] = ledger(lab).entries()
    assert (entry.state, entry.why) == (KEPT, "it failed, with results")


def test_lifetimes(lab: BrevLab, caplog: pytest.LogCaptureFixture) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**new("sleep 600", max_hours=0.0001))
    eventually(lambda: sdk.get_job_status(job.id) and not made(lab))
    assert f"instance tao-{job.id[:8]} is deleted: older than max_hours=0.0001" in caplog.text
    kept = sdk.create_job(**new("true", keep=True, idle_minutes=0.02))
    assert kept.wait(timeout=LONG).status == "Complete"
    assert len(made(lab)) == 1
    with lab.cloud.faulty(delete_fails=3):
        eventually(lambda: sdk.reconcile() is not None and "could not be deleted" in caplog.text)
    [entry] = [entry for entry in ledger(lab).entries() if entry.job_id == kept.id]
    assert (entry.state, entry.why) == (UNWANTED, "idle for more than 0.02 minutes")
    sdk.reconcile()
    assert made(lab) == set()


def test_one_with_a_job_is_not_idle(lab: BrevLab) -> None:
    sdk = lab.sdk()
    first = sdk.create_job(**new("true", keep=True, idle_minutes=10))
    assert first.wait(timeout=LONG).status == "Complete"
    [name] = made(lab)
    second = sdk.create_job(image=BUSYBOX, command="sleep 600", gpu_count=1, instance_id=name)
    ledger(lab).change(name, since=time.time() - 3600)
    assert sdk.get_job_status(second.id).status in ("Pending", "Running")
    assert made(lab) == {name}
    assert second.cancel()
    assert made(lab) == {name}, "idle since this moment"
    ledger(lab).change(name, since=time.time() - 3600)
    sdk.reconcile()
    assert made(lab) == set()


def test_one_that_was_kept_and_deleted_by_hand(lab: BrevLab) -> None:
    sdk = lab.sdk()
    assert sdk.create_job(**new("true", keep=True)).wait(timeout=LONG).status == "Complete"
    [name] = made(lab)
    assert ledger(lab).get(name) is not None
    lab.cloud.brev("delete", name)
    lab.sdk().reconcile()
    assert ledger(lab).entries() == [], "nobody is told of it any more"


def test_a_job_that_vanished_from_it(
    lab: BrevLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows what is left there: it is kept, with a warning and its cost."""
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    caplog.set_level(logging.WARNING, "tao_sdk.brev")
    sdk = lab.sdk()
    job = sdk.create_job(**new("sleep 600"))
    [name] = made(lab)
    eventually(lambda: sdk.get_job_status(job.id).status == "Running")
    lab.cloud.kill_shells(name)
    shutil.rmtree(lab.cloud.home(name) / ".tao-sdk" / "jobs")
    lab.cloud.engine.docker("rm", "-f", f"tao-job-{job.id}")
    assert sdk.wait(job.id, timeout=LONG).status == "Error"
    lab.sdk().reconcile()
    entry = ledger(lab).get(name)
    assert entry is not None
    assert (entry.state, entry.why) == (KEPT, UNSEEN)
    assert f"instance {name} is kept ($1.95 an hour" in caplog.text
    assert sdk.delete_instance(name)


def test_one_that_vanished_is_forgotten(
    lab: BrevLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    sdk = lab.sdk()
    job = sdk.create_job(**new("sleep 600"))
    lab.cloud.vanish(f"tao-{job.id[:8]}")
    assert sdk.wait(job.id, timeout=LONG).status == "Error"
    lab.sdk().reconcile()
    assert ledger(lab).entries() == []
    assert "is kept" not in caplog.text
    with pytest.raises(BackendUnreachableError, match="is gone: its log was not brought here"):
        sdk.get_job_logs(job.id)


def test_a_second_job_on_it_is_not_cut_off(lab: BrevLab) -> None:
    sdk = lab.sdk()
    first = sdk.create_job(**new("sleep 1"))
    name = f"tao-{first.id[:8]}"
    second = sdk.create_job(
        image=BUSYBOX, command="echo here; sleep 4; echo there", gpu_count=1, instance_id=name
    )
    assert first.wait(timeout=LONG).status == "Complete"
    assert made(lab) == {name}
    assert second.wait(timeout=LONG).status == "Complete"
    assert sdk.get_job_logs(second.id) == "here\nthere\n"
    assert made(lab) == set()


@pytest.mark.seed("000.9")
def test_listed_stopped_started_deleted(lab: BrevLab) -> None:
    """`list_instances` and `delete_instance` of the seed; stop and start beside them."""
    sdk = lab.sdk()
    [box] = sdk.list_instances()
    assert (box["name"], box["status"], box["job_id"]) == ("box", "RUNNING", "")
    sdk.stop_instance(box["id"])
    assert sdk.list_instances()[0]["status"] == "STOPPED"
    with pytest.raises(SubmissionRejectedError, match="brev start box"):
        lab.sdk().create_job(**lab.job("true"))
    with lab.cloud.faulty(boot_seconds=0.5):
        sdk.start_instance("box")
    assert lab.cloud.requests()[-1] == ["start", "box", "--detached"], "it is not waited for"
    eventually(lambda: sdk.list_instances()[0]["status"] == "RUNNING")
    with pytest.raises(PlatformError, match="is not stopped"):
        sdk.start_instance("box")
    assert lab.sdk().create_job(**lab.job("true")).wait(timeout=LONG).status == "Complete"
    assert sdk.delete_instance("box") is True
    assert sdk.delete_instance("box") is True, "as good as deleted"
    assert lab.cloud.names() == set()


def test_orders_about_one_that_nobody_has(lab: BrevLab) -> None:
    """Brev's program would say nothing at all, or make a new one: it is not asked."""
    sdk = lab.sdk()
    for order in (sdk.stop_instance, sdk.start_instance):
        with pytest.raises(PlatformError, match="no instance 'bx'; there are: box"):
            order("bx")
    assert {words[0] for words in lab.cloud.requests()} == {"create", "ls"}


def test_one_withdrawn_job_of_a_batch_leaves_the_others_on_the_instance(
    lab: BrevLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = lab.sdk().backend
    plans = [lab.sdk().plan(**lab.job("true")) for _ in range(2)]
    sent, withdrawn = (plan.job_id for plan in plans)
    entry = Entry(lab.instance, sent, "g5.xlarge", 2.0, time.time(), state=KEPT)
    assert ledger(lab).order(entry)
    run = Machine.run

    def submit(self: Machine, program: str, *args: Any, **more: Any) -> list[Section]:
        if program != "submit":
            return run(self, program, *args, **more)
        return [Section("submitted", sent, b""), Section("withdrawn", withdrawn, b"")]

    monkeypatch.setattr(Machine, "run", submit)
    with pytest.raises(SubmissionRejectedError, match="declared this job never submitted"):
        backend.submit_together(plans)
    [found] = ledger(lab).entries()
    assert found.jobs == (sent,)


@pytest.mark.seed("000.23")
def test_options_of_a_cloud_account(lab: BrevLab) -> None:
    """cloud_cred_id and workspace_group_id are passed where the program knows them."""
    asked = new("true", cloud_cred_id="cred-1", workspace_group_id="group-1")
    with pytest.raises(UnsupportedError, match="no `create --cloud-cred-id`"):
        lab.sdk().create_job(**asked)
    lab.cloud.configure(create_flags=["cloud-cred-id", "workspace-group-id"])
    # What the program can do is remembered for as long as it is the same program.
    (lab.cloud.folder / "bin" / "brev").touch()
    job = lab.sdk().create_job(**asked)
    assert job.wait(timeout=LONG).status == "Complete"
    orders = [words for words in lab.cloud.requests() if words[0] == "create"]
    [order] = [words for words in orders if words[1] not in ("box", "--help")]
    assert order[order.index("--cloud-cred-id") + 1] == "cred-1"
    assert order[order.index("--workspace-group-id") + 1] == "group-1"
    assert order[order.index("--type") + 1] == "g6e.xlarge-cheap"


@pytest.mark.parametrize("shape", ["list", "object"])
def test_either_shape_of_the_list_finds_the_instance(lab: BrevLab, shape: str) -> None:
    """Lesson W17: no second machine is paid for because a list was not understood."""
    with lab.cloud.faulty(shape=shape):
        sdk = lab.sdk()
        jobs = [sdk.create_job(**lab.job("true")), sdk.create_job(**new("true"))]
        assert {status.status for status in sdk.wait_all([j.id for j in jobs], LONG).values()} == {
            "Complete"
        }
    assert lab.cloud.ever_made() == ["box", f"tao-{jobs[1].id[:8]}"]


def test_instance_by_id(lab: BrevLab) -> None:
    [box] = json.loads(lab.cloud.brev("ls", "--json"))["workspaces"]
    job = lab.sdk().create_job(**{**lab.job("true"), "instance_id": box["id"]})
    assert job.wait(timeout=LONG).status == "Complete"
    with pytest.raises(SubmissionRejectedError, match="no instance 'nowhere'; there are: box"):
        lab.sdk().create_job(**{**lab.job("true"), "instance_id": "nowhere"})


def test_an_order_that_was_given_late_is_found(lab: BrevLab) -> None:
    """Its client was killed, its submission settled, and then the instance appears."""
    from tao_sdk.platforms.brev.ledger import Entry

    book = ledger(lab)
    book.order(Entry("tao-0000late", "j", "g5.xlarge", 1.2, time.time(), state=UNWANTED))
    sdk = lab.sdk()
    sdk.reconcile()
    assert book.get("tao-0000late") is not None, "it may still come"
    lab.cloud.make("tao-0000late")
    sdk.reconcile()
    assert made(lab) == set()
    sdk.reconcile()
    assert book.get("tao-0000late") is None
