"""Results in a bucket: an instance goes once they are there, and stays if they are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from brev_lab import BrevLab

from lab.docker.python_image import python_image
from lab.s3 import Bucket, fresh_bucket

LONG = 120


@pytest.fixture
def bucket(lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with fresh_bucket("rclone") as bucket:
        for name, value in bucket.env.items():
            if name != "HOME":
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("S3_BUCKET_NAME", bucket.name)
        yield bucket


def delivering(lab: BrevLab, script: str) -> dict[str, Any]:
    """A job on an instance of its own that shares this machine's network, where the bucket is."""
    return {
        "image": python_image(lab.cloud.engine),
        "command": script,
        "gpu_count": 1,
        "gpu_type": "L40S",
        "network": "host",
        "outputs": ["/tmp/made"],
    }


@pytest.mark.seed("000.13")
def test_delivered_results_let_the_instance_go(lab: BrevLab, bucket: Bucket) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**delivering(lab, "mkdir /tmp/made; echo model > /tmp/made/model"))
    status = job.wait(timeout=LONG)
    assert status.status == "Complete", sdk.get_job_logs(job.id)
    assert job.results_dir == f"s3://{bucket.name}/results/{job.id}"
    assert bucket.read(f"results/{job.id}/made/model") == b"model\n"
    assert lab.cloud.names() == {"box"}


def test_what_was_not_delivered_keeps_it(
    lab: BrevLab, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container has the only copy: better an instance that costs than a model that is lost."""
    monkeypatch.setenv("TAO_TRANSFER_ATTEMPTS", "1")
    sdk = lab.sdk()
    asked = delivering(lab, "mkdir /tmp/made; echo model > /tmp/made/model")
    job = sdk.create_job(**asked, env_vars={"S3_BUCKET_NAME": "no-such-bucket"})
    status = job.wait(timeout=LONG)
    assert status.status == "Error", sdk.get_job_logs(job.id)
    assert "is kept ($1.95 an hour" in status.message
    assert "deliver" in status.message
    assert len(lab.cloud.names()) == 2
    assert sdk.delete_instance(f"tao-{job.id[:8]}")
    assert lab.cloud.names() == {"box"}
