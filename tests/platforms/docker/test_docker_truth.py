"""What is said about a job is true, also where an image or a killed client has ideas of its own."""

from __future__ import annotations

import uuid

from docker_lab import DockerLab

from lab.docker.images import BUSYBOX
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.docker import config, placeholders
from tao_sdk.platforms.docker.launch import job_name

LONG = 90


def test_an_entry_point_of_the_image_does_not_replace_the_command(lab: DockerLab) -> None:
    image = f"tao-test/entry:{uuid.uuid4().hex[:8]}"
    made = lab.engine.docker("create", BUSYBOX, "true").strip()
    lab.engine.docker("commit", "-c", 'ENTRYPOINT ["/bin/echo", "ENTRY"]', made, image)
    lab.engine.docker("rm", made)
    try:
        sdk = lab.sdk()
        job = sdk.create_job(**{**lab.job("echo real work; exit 7"), "image": image})
        assert job.wait(timeout=LONG).status == "Error"
        assert sdk.get_job_logs(job.id) == "real work\n"
        lab.engine.docker("rm", f"tao-job-{job.id}")
    finally:
        lab.engine.docker("rmi", image)


def test_the_fence_of_a_killed_settler_keeps_nobody(lab: DockerLab) -> None:
    sdk = lab.sdk()
    sdk.backend.prepare()
    plan = sdk.plan(**lab.job("true"))
    # What a settler makes, and here never removes.
    labels = {config.LABEL: "true", config.LABEL_FENCE: "true"}
    assert placeholders.take_name(sdk.backend.transport, job_name(plan.job_id), labels)
    ref = JobRef(JobIdentity(plan.job_id, "token"), plan.intent)
    assert sdk.backend.settle([ref]) == {plan.job_id: None}


def test_a_cancellation_that_was_not_heard_changes_nothing(lab: DockerLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("while [ ! -e /starts/go ]; do sleep 0.1; done; exit 9"))
    with lab.unreachable():
        assert sdk.cancel_job(job.id) is False
    (lab.starts / "go").touch()
    status = job.wait(timeout=LONG)
    assert (status.status, job.explain()["exit_code"]) == ("Error", 9)
