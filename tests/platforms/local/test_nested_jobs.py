"""A job that starts jobs of its own: they run on its GPUs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tao_sdk import Job, LocalSDK
from tao_sdk.errors import ValidationError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.gpus.leases import GpuLeases
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.process_identity import ProcessIdentity

LONG = 60

PROGRAM = """
import os
from tao_sdk import LocalSDK
from tao_sdk.errors import TaoError
sdk = LocalSDK(state_file={state!r}, work_dir={work!r})
def run(command="echo $CUDA_VISIBLE_DEVICES", **keywords):
    job = sdk.create_job(command=command, **keywords)
    status = job.wait(timeout=30)
    return status.status, sdk.get_job_logs(job.id).strip()
{body}
"""


@pytest.fixture(autouse=True)
def four_gpus(sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_LOCAL_GPUS", "4")


def start_outer(sdk: LocalSDK, body: str, **keywords: object) -> Job:
    program = PROGRAM.format(state=str(sdk._state_file), work=str(sdk.work_dir), body=body)
    return sdk.create_job(command=[sys.executable, "-c", program], **keywords)


def said(sdk: LocalSDK, body: str, **keywords: object) -> list[str]:
    job = start_outer(sdk, body, **keywords)
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    return sdk.get_job_logs(job.id).splitlines()


@pytest.mark.parametrize("when_busy", ["wait", "refuse"])
def test_it_runs_on_the_gpus_of_the_outer_one(sdk: LocalSDK, when_busy: str) -> None:
    body = f"print(*run(gpu_count=2, when_busy={when_busy!r}))"
    assert said(sdk, body, gpu_ids=[3, 1]) == ["Complete 3,1"]


def test_a_part_of_them(sdk: LocalSDK) -> None:
    body = "print(*run(gpu_count=1)); print(*run(gpu_ids=[1])); print(*run(gpu_count=-1))"
    expected = ["Complete 3", "Complete 1", "Complete 3,1"]
    assert said(sdk, body, gpu_ids=[3, 1]) == expected


def test_none_of_them(sdk: LocalSDK) -> None:
    command = 'echo "<$CUDA_VISIBLE_DEVICES><$TAO_LEASED_GPUS>"'
    assert said(sdk, f"print(*run({command!r}, gpu_count=0))", gpu_count=1) == ["Complete <><>"]


def test_what_the_outer_one_itself_leaves_over(sdk: LocalSDK) -> None:
    body = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'; print(*run(gpu_count=-1))"
    assert said(sdk, body, gpu_ids=[3, 1]) == ["Complete 1"]


def test_each_rank_has_its_own(sdk: LocalSDK) -> None:
    lines = said(sdk, "print(*run(gpu_count=-1))", gpu_count=1, num_nodes=2)
    assert sorted(lines) == ["[rank 0] Complete 0", "[rank 1] Complete 1"]


def test_jobs_in_jobs_in_jobs(sdk: LocalSDK) -> None:
    innermost = PROGRAM.format(
        state=str(sdk._state_file), work=str(sdk.work_dir), body="print(*run(gpu_count=1))"
    )
    body = f"import sys; print(*run([sys.executable, '-c', {innermost!r}], gpu_count=2))"
    assert said(sdk, body, gpu_count=3) == ["Complete Complete 0"]


@pytest.mark.parametrize(
    ("outer", "inner", "message"),
    [
        (
            2,
            {"gpu_count": 3},
            "3 GPUs asked for, the job in which this one is started has 2 (0, 1)",
        ),
        (1, {"gpu_ids": [2]}, "the job in which this one is started has no GPU 2; it has 1 (0)"),
        (0, {"gpu_count": 1}, "the job in which this one is started has none"),
        (0, {"gpu_count": -1}, "the job in which this one is started has none"),
    ],
)
def test_more_than_the_outer_one_has_is_refused_beforehand(
    sdk: LocalSDK, outer: int, inner: dict[str, object], message: str
) -> None:
    body = (
        f"try: run(**{inner!r})\nexcept TaoError as error: print(type(error).__name__, error)\n"
        "print(len(sdk.list_jobs()))"
    )
    error, jobs = said(sdk, body, gpu_count=outer)
    assert error.startswith("CapacityError ")
    assert message in error
    assert jobs == "1", "the outer one only"


def test_it_keeps_them_when_the_outer_one_has_ended(sdk: LocalSDK, tmp_path: Path) -> None:
    go = tmp_path / "go"
    body = f"sdk.create_job(command='until [ -e {go} ]; do sleep 0.05; done', gpu_count=2)"
    outer = start_outer(sdk, body, gpu_count=2)
    assert outer.wait(timeout=LONG).status == "Complete"
    [inner] = [job for job in sdk.list_jobs() if job.id != outer.id]
    keys = [f"pretended-{n}" for n in range(4)]
    leases = GpuLeases(os.environ["TAO_GPU_LEASE_DIR"])
    assert leases.free(keys) == keys[2:]
    go.touch()
    assert inner.wait(timeout=LONG).status == "Complete"
    eventually(lambda: leases.free(keys) == keys)


def test_it_keeps_them_without_its_supervisor(sdk: LocalSDK, tmp_path: Path) -> None:
    go = tmp_path / "go"
    body = f"sdk.create_job(command='echo up; until [ -e {go} ]; do sleep 0.05; done', gpu_count=1)"
    outer = start_outer(sdk, body, gpu_count=1)
    assert outer.wait(timeout=LONG).status == "Complete"
    [inner] = [job for job in sdk.list_jobs() if job.id != outer.id]
    eventually(lambda: "up" in sdk.get_job_logs(inner.id))
    claim = JobFolder(sdk.work_dir / "jobs" / inner.id).read_claim() or {}
    supervisor = ProcessIdentity.parse(claim["supervisor"])
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: not supervisor.alive)
    leases = GpuLeases(os.environ["TAO_GPU_LEASE_DIR"])
    assert leases.free(["pretended-0"]) == []
    go.touch()
    assert inner.wait(timeout=LONG).status == "Complete"
    eventually(lambda: leases.free(["pretended-0"]) == ["pretended-0"])


def test_a_lease_that_has_ended_is_not_joined(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variables may live on, in a terminal that the job started."""
    monkeypatch.setenv("TAO_LEASED_GPUS", "some-job:pretended-1")
    with pytest.raises(ValidationError, match="a job that has ended; unset it"):
        sdk.create_job(command="true", gpu_count=1)
    assert sdk.list_jobs() == []
    job = sdk.create_job(command="true", gpu_count=0)
    assert job.wait(timeout=LONG).status == "Complete"
