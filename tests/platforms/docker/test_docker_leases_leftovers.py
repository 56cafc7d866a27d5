"""What a killed client leaves on the daemon is found and removed; what is fresh is not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from docker_lab import DockerLab

from lab.docker.images import BUSYBOX
from tao_sdk.platforms.backend import JobIdentity, JobRef, Plan
from tao_sdk.platforms.common.gpu_choice import GpuRequest
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK, advance, placeholders
from tao_sdk.platforms.docker.client import DaemonError
from tao_sdk.platforms.docker.containers import Launcher, job_name, queued_name
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.gpu_queue import GpuQueue

LONG = 120
ANY_AGE = timedelta(days=-1)


def launcher_of(sdk: DockerSDK) -> Launcher:
    transport = sdk.backend.transport
    return Launcher(transport, DaemonLeases(transport, None))


def names_on(lab: DockerLab) -> set[str]:
    return set(lab.engine.docker("ps", "-a", "--format", "{{.Names}}").split())


def job_ref(plan: Plan) -> JobRef:
    return JobRef(JobIdentity(plan.job_id, "token"), plan.intent)


@pytest.mark.timeout(300)
def test_swept_when_old_and_only_then(lonely: DockerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = lonely.sdk()
    ended = sdk.create_job(**lonely.job("true"))
    running = sdk.create_job(**{**lonely.job("sleep 600"), "gpu_count": 1})
    assert ended.wait(timeout=LONG).status == "Complete"
    launcher = launcher_of(sdk)

    # A client that was killed between making a container and starting it.
    orphan = sdk.plan(**lonely.job("true"), env_vars={"TOKEN": "secret-of-the-job"})
    launcher.create(orphan.identity.name, orphan.payload[0], None)
    # One that was killed while it looked at the host: through a window, with a program.
    window = placeholders.window(sdk.backend.transport, "/")
    window.__enter__()
    [window_name] = {name for name in names_on(lonely) if name.startswith("tao-window-")}
    helper = ["--label", "tao-toolkit=true", "--label", "tao-sdk-helper=true", "--network", "none"]
    lonely.engine.docker("run", "--name", "old-probe", *helper, BUSYBOX, "true")
    leaving = {orphan.identity.name, window_name, "old-probe"}

    waiting = sdk.plan(**lonely.job("true"))
    transport = sdk.backend.transport
    queue = GpuQueue(transport, sdk.backend.host, DaemonLeases(transport, None), launcher)  # type: ignore[attr-defined]  # of this backend, not of all
    queue.add(waiting.job_id, waiting.payload._replace(gpus=GpuRequest(1)), [])
    lonely.engine.docker("run", "-d", "--name", "busy-probe", *helper, BUSYBOX, "sleep", "600")
    # Made from an image of a job's container, which hands its labels on.
    inherited = [f"--label={name}={name}" for name in ("tao-sdk-job-id", "tao-sdk-token")]
    lonely.engine.docker("create", "--name", "somebody-elses", *inherited, BUSYBOX, "true")
    lease = f"tao-gpu-pretended-{lonely.gpus.split(',')[0]}"
    staying = {
        *(job_name(ended.id), job_name(running.id), queued_name(waiting.job_id), lease),
        *("busy-probe", "somebody-elses"),
    }
    assert names_on(lonely) == leaving | staying

    lonely.sdk().create_job(**lonely.job("true")).wait(timeout=LONG)
    assert names_on(lonely) > leaving | staying, "too young to be anybody's leftovers"
    monkeypatch.setattr(advance, "ABANDONED", ANY_AGE)
    lonely.sdk().create_job(**lonely.job("true")).wait(timeout=LONG)
    assert not names_on(lonely) & leaving
    assert names_on(lonely) > staying
    running.cancel()
    lonely.engine.docker("rm", "-f", "busy-probe")
    eventually(lambda: running.refresh().status == "Canceled")


@pytest.mark.timeout(300)
def test_settling_sweeps_too(lonely: DockerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = lonely.sdk()
    sdk.backend.prepare()
    orphan = sdk.plan(**lonely.job("true"))
    launcher_of(sdk).create(orphan.identity.name, orphan.payload[0], None)
    other = sdk.plan(**lonely.job("true"))
    monkeypatch.setattr(advance, "ABANDONED", ANY_AGE)
    assert sdk.backend.settle([job_ref(other)]) == {other.job_id: None}
    assert names_on(lonely) == set()


def test_what_was_settled_cannot_be_made_afterwards(lab: DockerLab) -> None:
    """The daemon may read the request of a killed client after somebody has settled it."""
    sdk = lab.sdk()
    sdk.backend.prepare()
    plan = sdk.plan(**lab.job("true"))
    assert sdk.backend.settle([job_ref(plan)]) == {plan.job_id: None}
    for name in (job_name(plan.job_id), queued_name(plan.job_id)):
        with pytest.raises(DaemonError, match="already in use"):
            launcher_of(sdk).create(name, plan.payload[0], None)
    assert sdk.backend.replicas(job_ref(plan)) == []
    assert sdk.backend.settle([job_ref(plan)]) == {plan.job_id: None}, "as often as it is asked"
