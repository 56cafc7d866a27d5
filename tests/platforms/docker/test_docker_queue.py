"""Jobs that wait for GPUs, and what happens to them in the meantime."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest
from common_lab import DIE
from docker_lab import DockerLab

from lab.docker.images import BUSYBOX
from tao_sdk.errors import CapacityError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK, gpu_leases, gpu_queue
from tao_sdk.platforms.docker.backend import DockerBackend
from tao_sdk.platforms.docker.client import DaemonError
from tao_sdk.platforms.docker.containers import Launcher
from tao_sdk.platforms.docker.gpu_queue import GpuQueue
from tao_sdk.platforms.gpus.leases import look_for_free
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


def end(lab: DockerLab, job: Job) -> None:
    """End a job while nothing attends it."""
    lab.engine.docker("kill", f"tao-job-{job.id}")
    lab.engine.docker("wait", f"tao-job-{job.id}")
    label = '{{index .Config.Labels "tao-sdk-gpu-keys"}}'
    keys = lab.engine.docker("inspect", "-f", label, f"tao-job-{job.id}").strip().split(",")
    # The process that held the locks learns of the end a moment later.
    eventually(lambda: len(look_for_free(lab.folder / "leases", keys)) == len(keys))


def backend_of(sdk: DockerSDK) -> DockerBackend:
    assert isinstance(sdk.backend, DockerBackend)
    return sdk.backend


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

    def test_after_the_start_it_does_not_run_again(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its waiting container is left beside the one that has run, which goes when it is kept."""
        monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        end(lab, holder)

        class PowerCutError(BaseException):
            pass

        def cut(*_: object) -> None:
            raise PowerCutError

        with monkeypatch.context() as patched:
            patched.setattr(gpu_queue, "remove", cut)
            with pytest.raises(PowerCutError):
                lab.sdk().wait(waiting.id, timeout=LONG)
            lab.engine.docker("wait", f"tao-job-{waiting.id}")
            # The next process dies as early as it can after it has tidied up.
            with contextlib.suppress(PowerCutError):
                lab.sdk().get_job_status(waiting.id)
        assert f"tao-queued-{waiting.id}" not in lab.engine.docker("ps", "-a")
        after = lab.sdk()
        assert after.wait(waiting.id, timeout=LONG).status == "Complete"
        assert after.get_job_status(waiting.id).status == "Complete"
        assert lab.starts_of(waiting.id) == 1

    def test_before_its_command_was_in_the_waiting_container_it_never_starts(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        child = lab.start_python(
            f"{DIE}import docker, json, sys\ndocker.APIClient.put_archive = die\n"
            "asked = json.loads(sys.argv[1])\nasked['command'] += '\\n#' + 'x' * 200_000\n"
            "sdk.create_job(**asked)",
            json.dumps({**lab.counted_job("true"), "gpu_count": 1, "when_busy": "wait"}),
        )
        child.communicate(timeout=LONG)
        assert child.returncode == -signal.SIGKILL
        [lost] = [job for job in sdk.list_jobs() if job.id != holder.id]
        end(lab, holder)
        # Another store's process, to which it is one of the line, does not start it either.
        census = backend_of(sdk).transport.census()
        assert backend_of(sdk)._queue.start_in_order({lost.id}, census) == {}
        assert lab.starts_of(lost.id) == 0
        assert f"tao-queued-{lost.id}" in lab.engine.docker("ps", "-a", "--format", "{{.Names}}")
        after = lab.sdk()
        after.reconcile()
        assert after.get_job_status(lost.id).status == "Error"
        assert lost.id not in lab.engine.docker("ps", "-a", "--format", "{{.Names}}")


class TestWaysToTheGpus:
    """A job that waits for free GPUs keeps them from later ones only if it can run."""

    def test_one_that_nothing_attends_is_started_by_a_submission(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "sleep 600")
        end(lab, holder)
        later = lab.sdk().create_job(**{**lab.job("sleep 600"), "gpu_count": 1})
        assert lab.starts_of(waiting.id) == 1
        assert later.refresh().status == "Running"
        with pytest.raises(CapacityError, match="0 of 2 are free"):
            lab.sdk().create_job(**{**lab.job("true"), "gpu_count": 1})

    def test_a_submission_starts_one_that_wants_other_gpus_as_well(self, lab: DockerLab) -> None:
        sdk, (first, second) = lab.sdk(), lab.gpus.split(",")
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true", gpu_ids=[first])
        end(lab, holder)
        lab.sdk().create_job(**{**lab.job("true"), "gpu_count": 1, "gpu_ids": [second]})
        eventually(lambda: lab.starts_of(waiting.id) == 1)

    def test_one_that_cannot_start_leaves_the_figures_true(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        gpu = {**lab.job("sleep 600"), "gpu_count": 1}
        first, _ = sdk.create_job(**gpu), sdk.create_job(**gpu)
        large = wait_in_line(lab, sdk, "true", gpu_count=2)
        end(lab, first)
        told = f"1 of 2 are free, and tao-job-{large.id}, which waits for them, comes first"
        with pytest.raises(CapacityError, match=told):
            lab.sdk().create_job(**gpu)

    def test_one_that_the_daemon_refuses_is_set_aside_for_all(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        bad = wait_in_line(lab, sdk, "true", container_user="nobody-knows")
        end(lab, holder)
        later = lab.sdk().create_job(**{**lab.job("true"), "gpu_count": 2})
        assert f"tao-refused-{bad.id}" in lab.engine.docker("ps", "-a", "--format", "{{.Names}}")
        assert later.wait(timeout=LONG).status == "Complete"
        # Its own process says why.
        status = bad.wait(timeout=LONG)
        assert (status.status, "nobody-knows" in status.message) == ("Error", True)
        assert bad.id not in lab.engine.docker("ps", "-a", "--format", "{{.Names}}")

    def test_one_that_was_set_aside_can_be_cancelled(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        bad = wait_in_line(lab, sdk, "true", container_user="nobody-knows")
        end(lab, holder)
        assert lab.sdk().create_job(**{**lab.job("true"), "gpu_count": 2}).wait(timeout=LONG)
        cancel_by_another(lab, bad)
        assert bad.id not in lab.engine.docker("ps", "-a", "--format", "{{.Names}}")
        assert bad.wait(timeout=LONG).status == "Canceled"


class TestDaemonTrouble:
    def test_an_image_that_lost_its_tag_still_runs(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        image = f"tao-test/tag:{uuid.uuid4().hex[:8]}"
        lab.engine.docker("tag", BUSYBOX, image)
        waiting = wait_in_line(lab, sdk, "true", image=image)
        lab.engine.docker("rmi", image)
        end(lab, holder)
        assert waiting.wait(timeout=LONG).status == "Complete"
        assert lab.starts_of(waiting.id) == 1

    @pytest.mark.parametrize("call", ["inspect_container", "create_container_from_config"])
    def test_a_daemon_that_shuts_down_has_refused_nothing(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        sdk = lab.sdk()
        holder = busy(lab, sdk)
        waiting = wait_in_line(lab, sdk, "true")
        end(lab, holder)

        def refuse(*_: object, **__: object) -> None:
            raise DaemonError(503, "the daemon is shutting down", "POST /containers/create")

        real = GpuQueue._start_with

        def start(self: GpuQueue, *arguments: Any) -> bool:
            with monkeypatch.context() as patched:
                patched.setattr(docker.APIClient, call, refuse)
                return real(self, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(GpuQueue, "_start_with", start)
            assert waiting.refresh().status == "Pending"
        assert waiting.wait(timeout=LONG).status == "Complete"
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
