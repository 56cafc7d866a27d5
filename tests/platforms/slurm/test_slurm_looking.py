"""Looking at jobs changes nothing on the cluster; only an attending process acts."""

from __future__ import annotations

import pytest
from own_cluster import cluster as cluster
from own_cluster import lab as lab
from slurm_jobs import (
    LONG,
    SECOND_TIME_WELL,
    UNTIL_STOPPED,
    has_credentials,
    running,
    slurm_id,
    start,
    submissions,
)
from slurm_lab import SlurmPlatformLab

from lab.slurm import states
from tao_sdk.models import JobState
from tao_sdk.platforms.capabilities import Advances, Resubmits
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import reference
from tao_sdk.platforms.slurm import SlurmSDK

QUEUE = ("squeue", "-h", "-r", "-t", "all", "-S", "i", "-o", "%i|%T|%N|%j")
ACCOUNTING = ("sacct", "-X", "-n", "-P", "-o", "JobID,JobName,State,ExitCode,Start,End")


def reality(lab: SlurmPlatformLab) -> tuple[str, str, str]:
    """What Slurm and the shared folder hold of our jobs."""
    shared = str(lab.slurm.shared)
    return (
        lab.slurm.run_as_user("find", shared, "-printf", "%P %s %m %T@\n"),
        lab.slurm.run_as_user(*QUEUE),
        lab.slurm.run_as_user(*ACCOUNTING),
    )


@pytest.mark.seed("002.13", "002.16")
def test_observing_changes_nothing_and_attending_goes_on(
    sdk: SlurmSDK, lab: SlurmPlatformLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of jobs that wait, run, have ended well or badly, or lost their node."""
    waiting = start(sdk, "true", partition="closed")
    *_, other = lab.slurm.nodes
    going = running(sdk, UNTIL_STOPPED, nodelist=other)
    well, badly = start(sdk, "true"), start(sdk, "echo 'RuntimeError: no' >&2; exit 3")
    lost = running(sdk, SECOND_TIME_WELL, requeue=False, exclude=other)
    for job, state in ((well, "COMPLETED"), (badly, "FAILED")):
        states.wait_for_state(lab.slurm, slurm_id(lab, job), state)
    states.fail_node(lab.slurm, slurm_id(lab, lost))
    states.wait_for_state(lab.slurm, slurm_id(lab, lost), "NODE_FAIL")
    jobs = [waiting, going, well, badly, lost]
    # Accounting lags: it must not change by itself between the two looks at reality.
    for job in jobs:
        number = slurm_id(lab, job)
        eventually(lambda n=number: states.is_accounted(lab.slurm, n))
    references = [reference(sdk, job.id) for job in jobs]
    before = reality(lab)

    looking = lab.sdk()
    looking.attend = False
    seen = looking.backend.observe(references)
    looking.backend.evidence(references[2:])
    told = looking.get_statuses([job.id for job in jobs])
    looking.get_statuses([job.id for job in jobs])
    assert reality(lab) == before

    assert [seen[job.id].state for job in jobs] == [
        JobState.PENDING,
        JobState.RUNNING,
        JobState.COMPLETE,
        JobState.ERROR,
        JobState.ERROR,
    ]
    assert [seen[job.id].due for job in jobs] == [False, False, False, True, True]
    assert [seen[job.id].fault for job in jobs] == ["", "", "", "", "infra"]
    assert seen[lost.id].node in lab.slurm.nodes
    assert [attempt.number for attempt in seen[lost.id].attempts] == [1]
    assert told[lost.id].status == "Pending", "it is to be submitted again"
    assert has_credentials(lab, lost)
    assert has_credentials(lab, badly), "its explanation is stored, its credentials are still there"

    monkeypatch.setenv("SLURM_RETRY_SECONDS", "0")
    attending = lab.sdk()
    assert isinstance(attending.backend, Advances)
    assert isinstance(attending.backend, Resubmits)
    elsewhere = reference(attending, badly.id)
    elsewhere = elsewhere._replace(native={**elsewhere.native, "cluster": "another"})
    assert attending.backend.advance([elsewhere]) == set()
    assert has_credentials(lab, badly), "another cluster's folder of that name is another folder"
    assert attending.wait(lost.id, timeout=LONG).status == "Complete"
    attending.get_statuses([job.id for job in jobs])
    assert [line.split()[0] for line in submissions(lab, lost)] == ["1", "2"]
    assert not has_credentials(lab, lost)
    assert not has_credentials(lab, badly)
