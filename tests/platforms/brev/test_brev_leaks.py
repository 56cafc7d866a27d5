"""No instance is left behind: jobs of every ending, clients killed at any moment."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from brev_lab import BrevLab

from lab.docker.images import BUSYBOX
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
    watcher.run()

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


@pytest.mark.parametrize("moment", [0.5, 1.0, 1.5, 2.5])
def test_a_client_killed_while_its_instance_is_made(lab: BrevLab, moment: float) -> None:
    with lab.cloud.faulty(boot_seconds=1.0):
        child = lab.start_python(_CHILD, json.dumps(job_of("killed client")))
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(moment)  # the fault to inject, not a wait
        child.kill()
        child.communicate(timeout=60)
    check_nothing_is_left(lab)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_fifty_jobs_of_every_ending(lab: BrevLab) -> None:
    endure(lab, 50, seed=11)
