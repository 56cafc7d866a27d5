"""Jobs that wait for GPUs, and what happens to them in the meantime."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from docker_lab import DockerLab

from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK, gpu_leases, gpu_queue
from tao_sdk.platforms.docker.containers import Launcher
from tao_sdk.platforms.submit import job_ref

LONG = 120


@pytest.fixture
def network(lab: DockerLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A network of this test's own."""
    name = f"tao-test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("DOCKER_NETWORK", name)
    yield name
    lab.engine.remove_all(f"network={name}")
    lab.engine.docker("network", "rm", name)


def busy(lab: DockerLab, sdk: DockerSDK) -> Job:
    """A job that has all GPUs."""
    job = sdk.create_job(**{**lab.job("sleep 600"), "gpu_count": 2})
    eventually(lambda: job.refresh().status == "Running")
    return job


def wait_in_line(lab: DockerLab, sdk: DockerSDK, script: str, **extra: Any) -> Job:
    asked = {**lab.counted_job(script), "gpu_count": 1, "when_busy": "wait", **extra}
    job = sdk.create_job(**asked)
    assert job.refresh().status == "Pending"
    return job


def before_the_start(monkeypatch: pytest.MonkeyPatch, happening: Callable[[], object]) -> None:
    """Something happens when a container is made and not started yet."""
    real = Launcher.start

    def start(self: Launcher, *arguments: Any) -> None:
        monkeypatch.setattr(Launcher, "start", real)
        happening()
        real(self, *arguments)

    monkeypatch.setattr(Launcher, "start", start)


def cancel_by_another(lab: DockerLab, job: Job) -> None:
    """Another process asks the daemon to cancel, and has not looked at the result yet."""
    sdk = lab.sdk()
    sdk.store.request_cancel(job.id)
    row = sdk.store.get_job(job.id)
    assert row is not None
    sdk.backend.cancel(job_ref(row))


def unconfirm(sdk: DockerSDK, job: Job) -> None:
    """Undo the confirmation of a submission, whose process is gone."""
    with contextlib.closing(sqlite3.connect(sdk.store.path)) as connection, connection:
        change = "UPDATE jobs SET phase = 'submitting', owner = '' WHERE job_id = ?"
        assert connection.execute(change, (job.id,)).rowcount == 1


class TestPrune:
    def test_a_waiting_job_that_was_pruned_is_an_error_that_says_so(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        prune = ["container", "prune", "-f", "--filter", f"label=tao-sdk-job-id={waiting.id}"]
        lab.engine.docker(*prune, "--filter", "label!=tao-sdk-queued")
        assert waiting.refresh().status == "Pending", "the filter that the documentation names"
        lab.engine.docker(*prune)
        assert waiting.wait(timeout=LONG).status == "Error"
        assert f"tao-queued-{waiting.id}" in waiting.refresh().message
        assert "docker container prune" in waiting.refresh().message
        holder.cancel()
        assert lab.starts_of(waiting.id) == 0

    def test_pruned_between_making_and_starting_its_container_it_is_not_started(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its waiting container and its leases are pruned with it."""
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        holder.cancel()
        label = f"label=tao-sdk-job-id={waiting.id}"
        before_the_start(
            monkeypatch,
            lambda: lab.engine.docker("container", "prune", "-f", "--filter", label),
        )
        assert waiting.wait(timeout=LONG).status == "Error"
        assert "docker container prune" in waiting.refresh().message
        assert lab.starts_of(waiting.id) == 0

    def test_only_its_leases_were_pruned_and_it_waits_on(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        holder.cancel()

        def prune() -> None:
            for gpu in lab.gpus.split(","):
                lease = f"label=tao-sdk-gpu-lease={lab.gpu_key.format(gpu)}"
                lab.engine.docker("container", "prune", "-f", "--filter", lease)

        before_the_start(monkeypatch, prune)
        assert waiting.wait(timeout=LONG).status == "Complete"
        assert lab.starts_of(waiting.id) == 1


class TestCancel:
    def test_at_the_moment_of_the_start_it_is_cancelled(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        holder.cancel()
        before_the_start(monkeypatch, lambda: cancel_by_another(lab, waiting))
        assert waiting.wait(timeout=LONG).status == "Canceled"
        assert lab.starts_of(waiting.id) == 0

    def test_asked_while_a_start_fails_it_is_cancelled(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true", container_user="nobody-knows")
        holder.cancel()
        # The other process has written down its wish, and not reached the daemon yet.
        before_the_start(
            monkeypatch,
            lambda: sdk.store.request_cancel(waiting.id),
        )
        waiting.refresh()
        cancel_by_another(lab, waiting)
        assert waiting.wait(timeout=LONG).status == "Canceled"


class TestPowerCuts:
    """What was written down last may be undone, and the watcher is gone as well."""

    def test_between_making_and_starting_its_container_it_goes_on_waiting(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        holder.cancel()

        class PowerCutError(BaseException):
            pass

        def cut() -> None:
            raise PowerCutError

        before_the_start(monkeypatch, cut)
        with pytest.raises(PowerCutError):
            waiting.wait(timeout=LONG)
        unconfirm(sdk, waiting)
        after = lab.sdk()
        assert after.get_job_status(waiting.id).status == "Pending"
        monkeypatch.setattr(
            gpu_queue, "TENTATIVE_SECONDS", 1
        )  # whoever made its container has died
        monkeypatch.setattr(gpu_leases, "TENTATIVE_SECONDS", 1)
        assert after.wait(waiting.id, timeout=LONG).status == "Complete"
        assert lab.starts_of(waiting.id) == 1


class TestNetwork:
    def test_pruned_before_the_start_it_is_made_again(
        self, lab: DockerLab, network: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        before_the_start(monkeypatch, lambda: lab.engine.docker("network", "rm", network))
        job = sdk.create_job(**lab.counted_job("true"))
        assert job.wait(timeout=LONG).status == "Complete"
        assert lab.starts_of(job.id) == 1

    def test_a_waiting_job_gets_the_network_that_it_asked_for(
        self, lab: DockerLab, network: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Pruned while it waited, and watched by somebody who uses another one."""
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        holder.cancel()
        eventually(lambda: holder.refresh().status == "Canceled")
        lab.engine.docker("rm", f"tao-job-{holder.id}")
        lab.engine.docker("network", "rm", network)
        monkeypatch.delenv("DOCKER_NETWORK")
        assert lab.sdk().get_job(waiting.id).wait(timeout=LONG).status == "Complete"
        used = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}"
        inspected = lab.engine.docker("inspect", "-f", used, f"tao-job-{waiting.id}")
        assert inspected.strip() == network
