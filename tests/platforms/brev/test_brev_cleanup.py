"""No instance is left behind: jobs of every ending, clients killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from typing import Any

import pytest
from brev_lab import BrevLab

from lab.docker.images import BUSYBOX
from tao_sdk.platforms.brev.ledger import KEPT, UNWANTED, Entry, ledger_of
from tao_sdk.platforms.conformance import eventually
from tao_sdk.watcher import Watcher

ENDINGS = ("complete", "error", "signal", "no gpus", "cancelled", "killed client", "boot fails")

_CHILD = """
import json, sys
print("ready", flush=True)
job = sdk.create_job(**json.loads(sys.argv[1]))
print("submitted", flush=True)
sdk.wait(job.id, timeout=60)
"""


def job_of(ending: str) -> dict[str, Any]:
    scripts = {"error": "exit 3", "signal": "kill -SEGV $$", "cancelled": "sleep 600"}
    return {
        "image": BUSYBOX,
        "command": scripts.get(ending, "echo fine"),
        "gpu_count": 4 if ending == "no gpus" else 1,
        "gpu_type": "L40S",
    }


def run(lab: BrevLab, ending: str, moments: random.Random) -> None:
    """One job, until its client has had enough of it."""
    if ending == "killed client":
        child = lab.start_python(_CHILD, json.dumps(job_of(ending)))
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0, 6))  # the fault to inject, not a wait
        child.kill()
        child.communicate(timeout=60)
        return
    sdk = lab.sdk()
    if ending == "boot fails":
        with lab.cloud.faulty(boot_fails=True), pytest.raises(Exception, match="FAILURE"):
            sdk.create_job(**job_of(ending))
        return
    job = sdk.create_job(**job_of(ending))
    if ending == "cancelled":
        assert job.cancel()
    else:
        job.wait(timeout=90)


def check_nothing_is_left(lab: BrevLab) -> None:
    """The next process settles and deletes; a watcher sees what is still running to its end."""
    lab.sdk().reconcile()
    watcher = Watcher(
        lab.state_file, report=lambda _: None, complain=lambda _: None, poll_seconds=0.2
    )
    # Not `run`, which also waits for an order that may still arrive.
    eventually(lambda: watcher.look() == 0, 600)

    def alone() -> bool:
        sdk = lab.sdk()
        sdk.reconcile()
        return lab.cloud.names() == {lab.instance}

    eventually(alone)
    assert all(row.terminal for row in lab.sdk().list_jobs())


def endure(lab: BrevLab, count: int, seed: int) -> None:
    moments = random.Random(seed)
    for number in range(count):
        run(lab, ENDINGS[number % len(ENDINGS)], moments)
    check_nothing_is_left(lab)


def test_a_job_of_every_ending(lab: BrevLab) -> None:
    endure(lab, len(ENDINGS), seed=10)


_ARM = """
import os, signal
from tao_sdk.platforms.brev.advance import Advancer
from tao_sdk.platforms.brev.client import BrevClient
from tao_sdk.platforms.brev.instances import Instances
from tao_sdk.platforms.brev.ledger import Ledger
from tao_sdk.platforms.brev.machine import Machine

def die_at(owner, name, when, before):
    real = getattr(owner, name)
    def wrapped(*args, **kwargs):
        dies = when in args or not when
        if dies and before:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **kwargs)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, wrapped)
"""
# Where a client is killed (before or after what it does), and what its job comes to. One
# whose instance was not ready was never written down.
STEPS = {
    "before its order is recorded": ('die_at(Ledger, "order", "", True)', ""),
    "after its order was recorded": ('die_at(Ledger, "order", "", False)', ""),
    "after the order": ('die_at(BrevClient, "create", "", False)', ""),
    "after its instance was ready": ('die_at(Instances, "wait_until_ready", "", False)', ""),
    "before the job is sent": ('die_at(Instances, "use", "", True)', "Error"),
    "after the ledger has the job": ('die_at(Instances, "use", "", False)', "Error"),
    "after the job was sent": ('die_at(Machine, "run", "submit", False)', "Complete"),
    "after its log was saved": ('die_at(Advancer, "_save", "", False)', "Complete"),
    "before the instance is deleted": ('die_at(BrevClient, "change", "delete", True)', "Complete"),
    "after the instance was deleted": ('die_at(BrevClient, "change", "delete", False)', "Complete"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_client_killed(lab: BrevLab, step: str) -> None:
    arm, status = STEPS[step]
    asked = json.dumps(job_of("killed client"))
    child = lab.start_python(f"{_ARM}{arm}\n{_CHILD}", asked)
    _, said = child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL, said
    check_every_instance_is_known(lab)
    check_nothing_is_left(lab)
    sdk = lab.sdk()
    jobs = sdk.list_jobs()
    assert [job.status for job in jobs] == ([status] if status else [])
    if status == "Complete":
        assert sdk.get_job_logs(jobs[0].id) == "fine\n"


def check_every_instance_is_known(lab: BrevLab) -> None:
    entries = ledger_of(lab.sdk().store.path).entries()
    assert lab.cloud.names() <= {lab.instance, *(entry.name for entry in entries)}


def kill_at_random_moments(lab: BrevLab, count: int, seed: int) -> None:
    """Between the start of a client and the moment at which an undisturbed one has finished."""
    moments = random.Random(seed)
    began = time.monotonic()
    run(lab, "complete", moments)
    whole = time.monotonic() - began
    for _ in range(count):
        child = lab.start_python(_CHILD, json.dumps(job_of("killed client")))
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0, whole))  # the fault to inject, not a wait
        child.kill()
        child.communicate(timeout=60)
        check_every_instance_is_known(lab)
    check_nothing_is_left(lab)


@pytest.mark.timeout(600)
def test_clients_killed_at_random_moments(lab: BrevLab) -> None:
    kill_at_random_moments(lab, 5, seed=17)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_hundred_clients_killed_at_random_moments(lab: BrevLab) -> None:
    kill_at_random_moments(lab, 100, seed=18)


def test_what_a_killed_client_was_sending_does_not_stay(lab: BrevLab) -> None:
    """It holds the job's secrets, in a private file here and, perhaps, there."""
    asked = {**lab.job("true"), "env_vars": {"TOKEN": "canary-5b1f"}}
    arm = 'die_at(BrevClient, "copy", "", False)'
    child = lab.start_python(f"{_ARM}{arm}\n{_CHILD}", json.dumps(asked))
    _, said = child.communicate(timeout=120)
    assert child.returncode == -signal.SIGKILL, said
    [file] = (path for path in lab.folder.rglob("outgoing/*") if path.is_file())
    assert b"canary-5b1f" in file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0
    lab.sdk().reconcile()
    assert file.exists(), "somebody may be sending it"
    hours_ago = time.time() - 2 * 3600
    os.utime(file, (hours_ago, hours_ago))
    lab.sdk().reconcile()
    left = [name for name, data in lab.readable_artefacts() if b"canary-5b1f" in data]
    assert left == []


def record_instance(lab: BrevLab, **fields: Any) -> str:
    """A rented instance of a job that no row of the store tells of."""
    name = "tao-left"
    lab.cloud.make(name)
    ledger = ledger_of(lab.sdk().store.path)
    ledger.order(Entry(name, "job-left", "g5.xlarge", 2.0, time.time(), seen=True, **fields))
    return name


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"state": UNWANTED, "why": "its job has ended"}, "its job has ended"),
        (
            {"state": KEPT, "since": 1.0, "idle_minutes": 30, "why": "keep=True"},
            "idle for more than 30 minutes",
        ),
    ],
)
def test_a_watcher_gives_back_instances_without_any_open_job(
    lab: BrevLab, fields: dict[str, Any], why: str
) -> None:
    name = record_instance(lab, **fields)
    said: list[str] = []
    Watcher(lab.state_file, lambda _: None, said.append, poll_seconds=0.2).run()
    assert lab.cloud.names() == {lab.instance}
    assert ledger_of(lab.sdk().store.path).entries() == []
    assert f"brev: instance {name} ($2.00 an hour) is to be given back: {why}" in said[0]


def test_a_watcher_does_not_wait_for_instances_that_are_kept(lab: BrevLab) -> None:
    name = record_instance(lab, state=KEPT, since=time.time(), idle_minutes=30, why="keep=True")
    said: list[str] = []
    with lab.cloud.faulty(down=True):  # no list is needed for this
        Watcher(lab.state_file, lambda _: None, said.append, poll_seconds=0.2).run()
    assert lab.cloud.names() == {lab.instance, name}
    assert said == [f"brev: instance {name} is kept ($2.00 an hour): keep=True"]


def test_a_watcher_goes_on_while_an_instance_cannot_be_deleted(lab: BrevLab) -> None:
    name = record_instance(lab, state=UNWANTED, why="its job has ended")
    watcher = Watcher(lab.state_file, lambda _: None, lambda _: None, poll_seconds=0.2)
    thread = threading.Thread(target=watcher.run)
    with lab.cloud.faulty(down=True):
        assert watcher.look() == 0, "no job is open"
        thread.start()
        assert name in lab.cloud.names()
    thread.join(60)
    assert not thread.is_alive()
    assert lab.cloud.names() == {lab.instance}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_fifty_jobs_of_every_ending(lab: BrevLab) -> None:
    endure(lab, 50, seed=11)
