"""GPUs on a real engine: no two jobs have the same one, whoever submits them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from docker_lab import DockerLab

from lab.docker.images import BUSYBOX
from tao_sdk.errors import CapacityError, SubmissionRejectedError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK
from tao_sdk.platforms.docker.backend import DockerBackend
from tao_sdk.platforms.docker.host import GpusUnknownError
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.gpus.leases import GpuLeases
from tao_sdk.platforms.local import LocalSDK

LONG = 120
EIGHT = 8


@pytest.fixture
def eight(lab: DockerLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerLab]:
    """The same lab, with eight GPUs."""
    first = int(lab.gpus.partition(",")[0])
    lab.gpus = ",".join(str(first + number) for number in range(EIGHT))
    monkeypatch.setenv("TAO_LOCAL_GPUS", lab.gpus)
    return lab


def backend_of(sdk: DockerSDK) -> DockerBackend:
    assert isinstance(sdk.backend, DockerBackend)
    return sdk.backend


def gpu_job(lab: DockerLab, script: str, **extra: Any) -> dict[str, Any]:
    return {**lab.job(script), "gpu_count": 1, **extra}


class TestAssignment:
    @pytest.mark.seed("004.6", "004.9")
    def test_by_id_by_count_and_all(self, eight: DockerLab) -> None:
        sdk, ids = eight.sdk(), eight.gpus.split(",")
        for asked, expected in (
            ({"gpu_ids": [ids[5], ids[2]]}, [ids[2], ids[5]]),
            ({"gpu_count": 3}, ids[:3]),
            ({"gpu_count": -1}, ids),
            ({"gpu_count": 0}, ["void"]),
        ):
            job = sdk.create_job(**{**gpu_job(eight, "echo $NVIDIA_VISIBLE_DEVICES"), **asked})
            assert job.wait(timeout=LONG).status == "Complete"
            assert sdk.get_job_logs(job.id).strip().split(",") == expected

    def test_no_capacity_is_said_at_once(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        with pytest.raises(CapacityError, match="3 GPUs asked for, the Docker host has 2"):
            sdk.plan(**gpu_job(lab, "true", gpu_count=3))
        holder = sdk.create_job(**gpu_job(lab, "sleep 600"))
        with pytest.raises(CapacityError, match=f"1 of 2 are free .held by tao-job-{holder.id}"):
            sdk.create_job(**gpu_job(lab, "true", gpu_count=2))
        refused = sdk.list_jobs(status="Error")
        assert refused[0].explain()["err_class"] == "ERR_CAPACITY"  # type: ignore[index]  # None would fail here as well
        assert holder.cancel()
        again = sdk.create_job(**gpu_job(lab, "true", gpu_count=2))
        assert again.wait(timeout=LONG).status == "Complete"

    def test_waiting_is_pending_with_the_reason_and_ends(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        holder = sdk.create_job(**gpu_job(lab, "sleep 600", gpu_count=2))
        command = f"x={'y' * 200_000}; echo ${{#x}} $NVIDIA_VISIBLE_DEVICES $TOKEN"
        waiting = sdk.create_job(
            **gpu_job(lab, command, when_busy="wait"), env_vars={"TOKEN": "of-the-job"}
        )
        status = waiting.refresh()
        assert status.status == "Pending"
        assert holder.id in status.message
        holder.cancel()
        # Started by another process than the one that submitted it: everything is on the daemon.
        found = lab.run_python_json(
            "import json, sys\njob = sdk.get_job(sys.argv[1])\nstatus = job.wait(timeout=60)\n"
            "print(json.dumps([status.status, *job.logs()]))",
            waiting.id,
        )
        assert found == ["Complete", f"200000 {lab.gpus.split(',')[0]} of-the-job"]

    def test_what_happens_when_busy_is_said(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        assert "when_busy='refuse', the default" in sdk.plan(**gpu_job(lab, "true")).render()
        holder = sdk.create_job(**gpu_job(lab, "sleep 600", gpu_count=2))
        with pytest.raises(CapacityError, match="when_busy='refuse', the default on Docker"):
            sdk.create_job(**gpu_job(lab, "true"))
        holder.cancel()

    def test_named_gpus_work_where_none_can_be_listed(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No nvidia-smi in the image, MIG, Jetson: it was refused."""

        def without_program(image: str, _: object) -> dict[str, Any]:
            return {"Image": image, "Entrypoint": ["no-such-program"], "HostConfig": {}}

        monkeypatch.setattr("tao_sdk.platforms.docker.host.probe_config", without_program)
        name = lab.gpus.split(",")[0]
        sdk = lab.sdk()
        monkeypatch.setattr(sdk.backend.host, "_local", False)  # type: ignore[attr-defined]  # of this backend, not of all
        asked = gpu_job(lab, "echo $NVIDIA_VISIBLE_DEVICES", gpu_ids=[name])
        assert f"gpu_ids: {name} cannot be checked" in sdk.plan(**asked).render()
        job = sdk.create_job(**asked)
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id).strip() == name
        with pytest.raises(SubmissionRejectedError, match=r"cannot be listed.*gpu_ids= names them"):
            sdk.create_job(**gpu_job(lab, "true"))

    def test_gpus_hidden_from_this_process_cannot_be_named(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A host that lists no GPU has none: the names used to be leased as they were."""
        holder = lab.sdk().create_job(**gpu_job(lab, "sleep 600", gpu_count=2))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        with pytest.raises(CapacityError, match="it has none"):
            lab.sdk().create_job(**gpu_job(lab, "true", gpu_ids=[lab.gpus.split(",")[0]]))
        assert holder.refresh().status == "Running"

    @pytest.mark.parametrize("lists_first", [True, False])
    def test_a_gpu_that_is_named_by_number_is_not_given_twice(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch, *, lists_first: bool
    ) -> None:
        """One client can list the GPUs and leases one by its UUID, the other one cannot."""

        def unlisted(_: str) -> list[Gpu]:
            raise GpusUnknownError("the GPUs of the Docker host cannot be listed")

        listing, naming = lab.sdk(), lab.sdk()
        host = backend_of(naming).host
        monkeypatch.setattr(host, "known_gpus", lambda: None)
        monkeypatch.setattr(host, "gpus", unlisted)
        asked = gpu_job(lab, "sleep 600", gpu_ids=[lab.gpus.split(",")[0]])
        first, second = (listing, naming) if lists_first else (naming, listing)
        holder = first.create_job(**asked)
        with pytest.raises(CapacityError, match=f"0 of 1 are free .held by tao-job-{holder.id}"):
            second.create_job(**asked)

    def test_gpus_of_the_remote_host_are_asked_there(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lesson 6.2: GPU discovery looked at the client's machine."""
        sdk = lab.sdk()
        monkeypatch.setattr(sdk.backend.host, "_local", False)  # type: ignore[attr-defined]  # of this backend, not of all
        waited: list[float | None] = []
        real = docker.APIClient.wait

        def wait(self: docker.APIClient, container: str, timeout: float | None = None) -> Any:
            waited.append(timeout)
            return real(self, container, timeout=timeout)

        monkeypatch.setattr(docker.APIClient, "wait", wait)
        found = sdk.backend.host.gpus(BUSYBOX)  # type: ignore[attr-defined]  # of this backend, not of all
        assert waited == [120], "without a limit docker-py waits as long as for a pull"
        assert [gpu.key for gpu in found] == ["GPU-lab-0", "GPU-lab-1", "GPU-lab-2"]
        assert found[0].used_mib == 40000


class TestLeases:
    def test_a_folder_that_cannot_be_used_refuses_and_polls_go_on(self, lab: DockerLab) -> None:
        sdk, folder = lab.sdk(), lab.folder / "leases"
        folder.touch()
        with pytest.raises(SubmissionRejectedError, match="TAO_GPU_LEASE_DIR"):
            sdk.create_job(**gpu_job(lab, "true"))
        folder.unlink()
        holder = sdk.create_job(**gpu_job(lab, "sleep 600", gpu_count=2))
        plain = sdk.create_job(**lab.job("sleep 600"))
        waiting = sdk.create_job(**gpu_job(lab, "true", when_busy="wait"))
        folder.rename(lab.folder / "away")
        folder.touch()
        lab.engine.docker("kill", f"tao-job-{holder.id}")
        lab.engine.docker("wait", f"tao-job-{holder.id}")
        polled = lab.sdk().get_statuses([plain.id, waiting.id])
        assert [one.status for one in polled.values()] == ["Running", "Pending"]
        folder.unlink()
        (lab.folder / "away").rename(folder)
        assert waiting.wait(timeout=LONG).status == "Complete"

    def test_two_stores_two_processes_and_local_jobs_share_eight_gpus(
        self, eight: DockerLab, tmp_path: Path
    ) -> None:
        taken = eight.starts
        body = (
            'g="$0/gpu-$1"; mkdir "$g" 2>/dev/null || echo "$1" >> "$0/collisions"; '
            'sleep 0.7; rmdir "$g"; echo "$1" >> "$0/ran"'
        )
        inside = f"sh -c '{body}' /starts $NVIDIA_VISIBLE_DEVICES"
        source = (
            "import json, sys\n"
            "from tao_sdk.platforms.docker import DockerSDK\n"
            "sdk = DockerSDK(state_file=sys.argv[2])\n"
            "jobs = sdk.create_jobs([json.loads(sys.argv[1])] * 8)\n"
            "ends = sdk.wait_all([job.id for job in jobs], timeout=150)\n"
            "print(json.dumps([end.status for end in ends.values()]))"
        )
        asked = json.dumps(gpu_job(eight, inside, when_busy="wait"))
        clients = [
            eight.start_python(source, asked, str(tmp_path / f"store-{number}.json"))
            for number in range(2)
        ]
        local = LocalSDK(state_file=tmp_path / "local.json", work_dir=tmp_path / "local")
        words = ["sh", "-c", body, str(taken)]
        here = local.create_jobs(
            [{"command": f"{' '.join(map(repr, words))} $CUDA_VISIBLE_DEVICES"}] * 4
        )
        for client in clients:
            out, err = client.communicate(timeout=170)
            assert client.returncode == 0, err
            assert json.loads(out) == ["Complete"] * 8
        ends = local.wait_all([job.id for job in here], timeout=LONG)
        assert {end.status for end in ends.values()} == {"Complete"}
        assert not (taken / "collisions").exists()
        ran = (taken / "ran").read_text().split()
        assert len(ran) == 20
        assert set(ran) <= set(eight.gpus.split(","))
        local.close()

    def test_a_killed_client_leaves_no_gpu_behind(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed between the lease and the container: the lease is worth nothing after a while."""
        child = lab.start_python(
            "import json, os, signal, sys\n"
            "from tao_sdk.platforms.docker.containers import Launcher\n"
            "Launcher.create = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
            "sdk.create_job(**json.loads(sys.argv[1]))",
            json.dumps(gpu_job(lab, "true", gpu_count=2)),
        )
        child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL
        held = lab.engine.docker("ps", "-aq", "--filter", "label=tao-sdk-gpu-lease").split()
        assert held
        sdk = lab.sdk()
        sdk.reconcile()  # the store knows whose it was
        job = sdk.create_job(**gpu_job(lab, "true", gpu_count=2))
        assert job.wait(timeout=LONG).status == "Complete"

    def test_an_abandoned_lease_expires(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tao_sdk.platforms.docker.gpu_leases.TENTATIVE_SECONDS", 0.1)
        monkeypatch.setattr("tao_sdk.platforms.docker.gpu_leases._PATIENCE_SECONDS", 30)
        gpu = lab.gpus.split(",")[0]
        labels = ["tao-toolkit=true", f"tao-sdk-gpu-lease=pretended-{gpu}", "tao-sdk-job-id=gone"]
        flags = [f"--label={label}" for label in labels]
        lab.engine.docker("create", "--name", f"tao-gpu-pretended-{gpu}", *flags, BUSYBOX, "x")
        job = lab.sdk().create_job(**gpu_job(lab, "true", gpu_count=2))
        assert job.wait(timeout=LONG).status == "Complete"

    def test_local_locks_are_held_while_the_container_lives(
        self, lab: DockerLab, tmp_path: Path
    ) -> None:
        sdk = lab.sdk()
        leases = GpuLeases(os.environ["TAO_GPU_LEASE_DIR"])
        keys = [f"pretended-{gpu}" for gpu in lab.gpus.split(",")]
        job = sdk.create_job(**gpu_job(lab, "sleep 600", gpu_count=1))
        assert leases.free(keys) == keys[1:]
        sdk.close()
        assert leases.free(keys) == keys[1:], "the client is not needed for it"
        assert lab.sdk().cancel_job(job.id)
        eventually(lambda: leases.free(keys) == keys)
