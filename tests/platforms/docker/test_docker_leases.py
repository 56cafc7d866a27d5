"""A GPU is given once, whatever is removed or killed behind our back."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from docker_lab import DockerLab

from lab.docker.images import BUSYBOX
from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import gpu_leases, lease_holder
from tao_sdk.platforms.docker.backend import DockerBackend
from tao_sdk.platforms.docker.containers import Launcher
from tao_sdk.platforms.docker.gpu_leases import DaemonLeases
from tao_sdk.platforms.docker.status import Container
from tao_sdk.platforms.gpus.leases import GpuLeases

LONG = 120


def gpu_job(lab: DockerLab, script: str, **extra: Any) -> dict[str, Any]:
    return {**lab.job(script), "gpu_count": 1, **extra}


def keys_of(lab: DockerLab) -> list[str]:
    return [f"pretended-{gpu}" for gpu in lab.gpus.split(",")]


def prune_leases(lab: DockerLab) -> None:
    """`docker container prune`, as far as it concerns the GPUs of this test."""
    for key in keys_of(lab):
        lab.engine.docker("container", "prune", "-f", "--filter", f"label=tao-sdk-gpu-lease={key}")


def leases_on_the_daemon(lab: DockerLab) -> list[str]:
    form = "{{.Names}} {{.Label `tao-sdk-job-id`}}"
    words = ["ps", "-a", "--format", form, "--filter", "label=tao-sdk-gpu-lease"]
    names = [f"tao-gpu-{key}" for key in keys_of(lab)]
    lines = lab.engine.docker(*words).splitlines()
    return sorted(line for line in lines if line.split(" ")[0] in names)


def machine_leases() -> GpuLeases:
    return GpuLeases(os.environ["TAO_GPU_LEASE_DIR"])


def holders_of(key: str) -> list[int]:
    """The processes that hold a GPU's lock for a container."""
    lock = Path(os.environ["TAO_GPU_LEASE_DIR"], f"gpu-{key}.lock").resolve()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            is_holder = b"lease_holder" in (process / "cmdline").read_bytes()
            files = [str(one.readlink()) for one in (process / "fd").iterdir()] if is_holder else []
        except OSError:
            continue  # it ended while we looked
        if str(lock) in files:
            found.append(int(process.name))
    return found


class TestPrune:
    def test_a_gpu_is_not_given_twice(
        self, lab: DockerLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = lab.sdk().create_job(**gpu_job(lab, "echo $NVIDIA_VISIBLE_DEVICES; sleep 600"))
        prune_leases(lab)
        assert leases_on_the_daemon(lab) == []
        # From now on a client on another machine, which sees the daemon and not our locks.
        monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "elsewhere"))
        sdk = lab.sdk()
        second = sdk.create_job(**gpu_job(lab, "echo $NVIDIA_VISIBLE_DEVICES; sleep 600"))
        prune_leases(lab)
        with pytest.raises(CapacityError, match="0 of 2 are free"):
            sdk.create_job(**gpu_job(lab, "true"))
        eventually(lambda: sdk.get_job_logs(first.id) and sdk.get_job_logs(second.id))
        given = [sdk.get_job_logs(job.id).strip() for job in (first, second)]
        assert given == lab.gpus.split(",")
        assert leases_on_the_daemon(lab) == [], "the labels of the containers suffice"

    def test_a_client_with_an_old_list_gives_up(
        self, lab: DockerLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It listed the containers and was suspended, while another job began and a prune came."""
        first_sdk = lab.sdk()
        assert first_sdk.backend
        monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "elsewhere"))
        sdk = lab.sdk()
        assert isinstance(sdk.backend, DockerBackend)
        old_list = sdk.backend.transport.census()
        first = first_sdk.create_job(**gpu_job(lab, "sleep 600", gpu_count=2))
        prune_leases(lab)
        take = DaemonLeases.take

        def take_by_the_old_list(
            self: DaemonLeases, job_id: str, gpus: Any, count: int, *_: Any, **__: Any
        ) -> Any:
            return take(self, job_id, gpus, count, old_list)

        monkeypatch.setattr(DaemonLeases, "take", take_by_the_old_list)
        with pytest.raises(SubmissionRejectedError):
            sdk.create_job(**gpu_job(lab, "echo started >> /starts/it"))
        assert not (lab.starts / "it").exists()
        assert first.refresh().status == "Running"

    def test_an_end_gives_the_gpus_back(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        jobs = [sdk.create_job(**gpu_job(lab, "sleep 600")) for _ in range(2)]
        expected = zip(keys_of(lab), jobs, strict=True)
        assert leases_on_the_daemon(lab) == [f"tao-gpu-{key} {job.id}" for key, job in expected]
        lab.engine.docker("rm", f"tao-gpu-{keys_of(lab)[0]}")
        for job in jobs:
            job.cancel()
            eventually(lambda job=job: job.refresh().status == "Canceled")
        assert leases_on_the_daemon(lab) == []
        assert sdk.create_job(**gpu_job(lab, "true", gpu_count=2)).wait(timeout=LONG)

    def test_between_making_and_starting_a_container_nothing_starts(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Launcher.create

        def create_and_prune(self: Launcher, *arguments: Any) -> str:
            container = real(self, *arguments)
            prune_leases(lab)
            return container

        sdk = lab.sdk()
        monkeypatch.setattr(Launcher, "create", create_and_prune)
        with pytest.raises(SubmissionRejectedError, match="docker container prune"):
            sdk.create_job(**gpu_job(lab, "echo started >> /starts/it"))
        assert not (lab.starts / "it").exists()
        assert lab.engine.docker("ps", "-aq", "--filter", f"volume={lab.results}") == ""
        eventually(lambda: machine_leases().free(keys_of(lab)) == keys_of(lab))


class TestSlowStarts:
    def test_one_that_took_too_long_does_not_start_on_gpus_of_another(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on a remote daemon, where no lock of the machine helps."""
        monkeypatch.setattr(gpu_leases, "TENTATIVE_SECONDS", 2)
        slow, quick = lab.sdk(), lab.sdk()
        for sdk in (slow, quick):
            sdk.backend._leases._local_folder = None  # type: ignore[attr-defined]  # of this backend, not of all
        real, made, go_on = Launcher._run, threading.Event(), threading.Event()

        def run_later(self: Launcher, container: str) -> None:
            monkeypatch.setattr(Launcher, "_run", real)
            made.set()
            go_on.wait(LONG)
            real(self, container)

        monkeypatch.setattr(Launcher, "_run", run_later)
        outcome: list[object] = []

        def submit() -> None:
            try:
                asked = gpu_job(lab, "echo started >> /starts/slow", gpu_count=2)
                outcome.append(slow.create_job(**asked))
            except Exception as error:  # noqa: BLE001 - shown by the assertion below
                outcome.append(error)

        submitting = threading.Thread(target=submit)
        submitting.start()
        assert made.wait(LONG)

        def taken() -> Job | None:
            try:
                return quick.create_job(**gpu_job(lab, "sleep 600", gpu_count=2))
            except CapacityError:
                return None

        other = eventually(taken, LONG)
        go_on.set()
        submitting.join(LONG)
        assert isinstance(outcome[0], SubmissionRejectedError), outcome
        assert other.refresh().status == "Running"
        assert not (lab.starts / "slow").exists()

    def test_our_clock_is_behind(self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch) -> None:
        """By our clock an abandoned lease was made in the future, and would be for ever young."""
        sdk = lab.sdk()
        held = Container("id", "name", "created", "", int(time.time()) + 9999, {})
        later = held.created_at + timedelta(hours=1)
        monkeypatch.setattr(sdk.backend.transport, "time", lambda: later)
        assert sdk.backend._leases.age(held) == 3600  # type: ignore[attr-defined]  # of this backend, not of all


class TestLocksOfTheMachine:
    @pytest.mark.parametrize("failing", [1, 2])
    def test_given_back_when_the_daemon_goes_away_while_they_are_taken(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch, failing: int
    ) -> None:
        sdk = lab.sdk()
        sdk.backend.prepare()
        real, count = gpu_leases.take_name, itertools.count(1)

        def take_name(*arguments: Any) -> str | None:
            if next(count) != failing:
                return real(*arguments)
            with lab.unreachable():
                return real(*arguments)

        monkeypatch.setattr(gpu_leases, "take_name", take_name)
        with pytest.raises(BackendUnreachableError):
            sdk.create_job(**gpu_job(lab, "true", gpu_count=2))
        assert machine_leases().free(keys_of(lab)) == keys_of(lab)
        assert leases_on_the_daemon(lab) == []
        job = sdk.create_job(**gpu_job(lab, "true", gpu_count=2))
        assert job.wait(timeout=LONG).status == "Complete"

    def test_taken_again_when_their_holder_was_killed(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        key = keys_of(lab)[0]
        job = sdk.create_job(**gpu_job(lab, "sleep 600"))
        [holder] = holders_of(key)
        os.kill(holder, signal.SIGKILL)
        eventually(lambda: machine_leases().free([key]) == [key])
        ticket = machine_leases().join_queue("a-local-job", [key])
        assert job.refresh().status == "Running"
        assert machine_leases().free([key]) == [], "a job that waits for a GPU in use waits on"
        ticket.close()
        assert len(holders_of(key)) == 1
        job.refresh()
        assert len(holders_of(key)) == 1, "one holder is enough"
        job.cancel()
        eventually(lambda: machine_leases().free([key]) == [key])

    def test_taken_again_by_any_client_that_wants_gpus(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        key = keys_of(lab)[0]
        sdk.create_job(**gpu_job(lab, "sleep 600"))
        [holder] = holders_of(key)
        os.kill(holder, signal.SIGKILL)
        eventually(lambda: machine_leases().free([key]) == [key])
        with pytest.raises(CapacityError):
            lab.sdk().create_job(**gpu_job(lab, "true", gpu_count=2))
        assert machine_leases().free([key]) == []

    def test_held_when_the_client_dies_with_the_start(self, lab: DockerLab) -> None:
        child = lab.start_python(
            "import json, os, signal, sys\n"
            "import docker\n"
            "real = docker.APIClient.start\n"
            "def start(self, *a, **k):\n"
            "    real(self, *a, **k)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "docker.APIClient.start = start\n"
            "sdk.create_job(**json.loads(sys.argv[1]))",
            json.dumps(gpu_job(lab, "sleep 600")),
        )
        child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL
        keys = keys_of(lab)
        assert machine_leases().free(keys) == keys[1:]
        sdk = lab.sdk()
        [job] = sdk.list_jobs()
        assert job.cancel()
        eventually(lambda: machine_leases().free(keys) == keys)

    def test_given_back_when_the_start_fails(self, lab: DockerLab) -> None:
        with pytest.raises(SubmissionRejectedError, match="nobody-knows"):
            lab.sdk().create_job(**gpu_job(lab, "true", container_user="nobody-knows"))
        eventually(lambda: machine_leases().free(keys_of(lab)) == keys_of(lab))

    def test_not_kept_for_a_container_that_is_never_started(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lease_holder, "_UNSTARTED_SECONDS", 0)
        made = lab.engine.docker("create", "-v", f"{lab.results}:/x", BUSYBOX, "true").strip()
        lease_holder.wait_for_end(str(lab.engine.socket), made)
        lease_holder.wait_for_end(str(lab.folder / "no-daemon.sock"), made, pause=0.01)

    def test_the_holder_has_nothing_of_the_environment(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NGC_KEY", "nvapi-secret-of-the-client")
        job = lab.sdk().create_job(**gpu_job(lab, "sleep 600"))
        [holder] = holders_of(keys_of(lab)[0])
        names = {
            entry.partition(b"=")[0]
            for entry in Path(f"/proc/{holder}/environ").read_bytes().split(b"\0")
            if entry
        }
        assert names <= {b"LD_LIBRARY_PATH"}
        job.cancel()

    def test_retaking_takes_what_is_free_and_nothing_else(self, tmp_path: Path) -> None:
        machine = GpuLeases(tmp_path)
        held = machine.try_take(["a"], 1, None)
        ticket = machine.join_queue("waiting", ["a", "b"])
        again = machine.retake(["a", "b"])
        assert held is not None
        assert again is not None
        assert again.keys == ["b"]
        assert machine.retake(["a", "b"]) is None
        held.release()
        again.release()
        ticket.close()
