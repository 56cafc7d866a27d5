"""Whatever happens to client, program, shell or instance: states stay true, nothing is raised."""

from __future__ import annotations

import shutil
import threading
import uuid

import pytest
from brev_lab import BrevLab

from lab.docker.images import BUSYBOX
from tao_sdk.platforms.backend import JobIdentity
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import reference, visible_command_lines

LONG = 90


class TestPolls:
    @pytest.mark.parametrize(
        "fault",
        [
            {"unauthorized": True},
            {"down": True},
            {"drop_before": 1.0},
            {"drop_after": 1.0},
        ],
        ids=lambda fault: next(iter(fault)),
    )
    def test_nothing_raises_out_of_one(self, lab: BrevLab, fault: dict[str, object]) -> None:
        """Lesson W18: what cannot be asked is said in a status, and changes nothing."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        with lab.cloud.faulty(**fault):
            status = sdk.get_job_status(job.id)
            assert status.status == "Running"
            assert "cannot reach" in status.message
        assert job.cancel()

    def test_nor_does_a_slow_program(self, lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lesson W18."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        monkeypatch.setattr("tao_sdk.platforms.brev.client.LIST_SECONDS", 0.01)
        assert "did not answer within" in sdk.get_job_status(job.id).message

    def test_one_exec_for_all_jobs_of_an_instance(self, lab: BrevLab) -> None:
        lab.cloud.make("other")
        sdk = lab.sdk()
        here = sdk.create_jobs([lab.job("sleep 600")] * 5)
        there = sdk.create_jobs([{**lab.job("sleep 600"), "instance_id": "other"}] * 3)
        ids = [job.id for job in (*here, *there)]
        before = len(lab.cloud.requests())
        sdk.look(ids)
        asked = [words[:2] for words in lab.cloud.requests()[before:]]
        assert sorted(asked) == [["exec", "box"], ["exec", "other"], ["ls", "--json"]]
        for job_id in ids:
            sdk.backend.cancel(reference(sdk, job_id))
        states = sdk.wait_all(ids, LONG)
        assert {status.status for status in states.values()} == {"Canceled"}

    def test_one_exec_for_very_many(self, lab: BrevLab) -> None:
        sdk = lab.sdk()
        job = reference(sdk, sdk.create_job(**lab.job("sleep 600")).id)
        strangers = [
            job._replace(identity=JobIdentity(str(uuid.uuid4()), "0" * 32)) for _ in range(1200)
        ]
        before = len(lab.cloud.requests())
        seen = sdk.backend.observe([*strangers, job])
        asked = [words[0] for words in lab.cloud.requests()[before:]]
        assert sorted(asked) == ["copy", "exec", "ls"], "its input is too long for an argument"
        assert len(seen) == 1201
        assert seen[job.job_id].state is not None
        assert {seen[one.job_id].state for one in strangers} == {None}
        sdk.backend.cancel(job)


class TestInstances:
    def test_killed_shells_do_not_matter(self, lab: BrevLab) -> None:
        """Everything of ours on the instance is killed; the container goes on, and is found."""
        sdk = lab.sdk()
        wait = 'd="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; while [ ! -e "$d/go" ]; do sleep 0.1; done'
        job = sdk.create_job(**lab.job(f"echo one; {wait}; echo two; exit 5"))
        eventually(lambda: "one" in sdk.get_job_logs(job.id))
        lab.cloud.kill_shells("box")
        assert sdk.get_job_status(job.id).status == "Running"
        lab.touch_result(job, "go")
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == 5
        assert sdk.get_job_logs(job.id) == "one\ntwo\n"

    def test_cancelling_after_killed_shells(self, lab: BrevLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo up; sleep 600"))
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        lab.cloud.kill_shells("box")
        assert job.cancel()
        assert job.status == "Canceled"

    def test_a_restarted_instance(self, lab: BrevLab) -> None:
        """Its containers were stopped by that: the job has ended, and its log is there."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo up; sleep 600"))
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        lab.cloud.reboot("box")
        assert job.wait(timeout=LONG).status == "Error"
        assert sdk.get_job_logs(job.id) == "up\n"

    def test_one_that_vanished(self, lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not Running for ever: it ends after the grace period, and says why."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        lab.cloud.vanish("box")
        assert not sdk.get_job_status(job.id).terminal
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        status = sdk.wait(job.id, timeout=LONG)
        assert status.status == "Error"
        assert "its instance box is gone" in status.message
        analysis = job.explain()
        assert analysis is not None
        assert "instance" in analysis["cause"]

    def test_a_look_does_not_start_one_that_was_stopped(self, lab: BrevLab) -> None:
        """`brev exec` would, and that costs money."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo up; sleep 600"))
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        sdk.stop_instance("box")
        status = lab.sdk().get_job_status(job.id)
        assert "brev start box" in status.message
        assert sdk.list_instances()[0]["status"] == "STOPPED"
        sdk.start_instance("box")
        assert job.wait(timeout=LONG).status == "Error"


class TestContainers:
    def test_gpus_are_given_out_one_by_one(self, lab: BrevLab) -> None:
        """Lesson F12: gpu_count is honoured, and no GPU has two jobs."""
        sdk = lab.sdk()
        jobs = [sdk.create_job(**{**lab.job("sleep 600"), "gpu_count": 1}) for _ in range(2)]
        for job in jobs:
            eventually(lambda job=job: job.refresh().status == "Running")  # type: ignore[misc]  # bound now: the loop goes on
        given = {_devices(lab, job.id) for job in jobs}
        assert given == {("0",), ("1",)}
        third = sdk.create_job(**{**lab.job("sleep 600"), "gpu_count": 1})
        eventually(lambda: "0 of 2 of the instance are free" in third.refresh().message)
        assert jobs[0].cancel()
        eventually(lambda: third.refresh().status == "Running")
        assert _devices(lab, third.id) in given
        assert jobs[1].cancel()
        assert third.cancel()
        both = sdk.create_job(**{**lab.job("sleep 600"), "gpu_count": -1})
        eventually(lambda: both.refresh().status == "Running")
        assert _devices(lab, both.id) == ("0", "1")
        assert both.cancel()

    def test_shared_memory(self, lab: BrevLab) -> None:
        """Lesson W16: not Docker's 64 MiB."""
        sdk = lab.sdk()
        asked = sdk.create_job(**lab.job("df -k /dev/shm | tail -n 1"), shm_size="96m")
        default = sdk.create_job(**lab.job("df -k /dev/shm | tail -n 1"))
        sdk.wait_all([asked.id, default.id], LONG)
        assert sdk.get_job_logs(asked.id).split()[1] == str(96 * 1024)
        assert int(sdk.get_job_logs(default.id).split()[1]) > 256 * 1024

    def test_an_image_that_cannot_be_pulled(self, lab: BrevLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**{**lab.job("true"), "image": "127.0.0.1:1/no/such:1"})
        status = job.wait(timeout=LONG)
        assert status.status == "Error"
        assert "its image could not be pulled" in status.message
        assert job.explain() is not None

    def test_a_long_command(self, lab: BrevLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job(f"true {'x' * 200_000}; echo done"))
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id) == "done\n"


def _devices(lab: BrevLab, job_id: str) -> tuple[str, ...]:
    """The GPUs that Docker was asked for."""
    form = '{{range .HostConfig.DeviceRequests}}{{join .DeviceIDs " "}}{{end}}'
    return tuple(lab.cloud.engine.docker("inspect", "-f", form, f"tao-job-{job_id}").split())


class TestSecrets:
    def test_no_process_ever_shows_one(self, lab: BrevLab, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lesson E2: looked at all the time, here and on the instance, from before the launch."""
        # Others may run tests like this one beside us.
        canary = f"canary-{uuid.uuid4().hex}"
        monkeypatch.setenv("NGC_KEY", f"ngc-{canary}")
        monkeypatch.setenv("BREV_API_TOKEN", f"bak-{canary}")
        lab.cloud.configure(api_key=f"bak-{canary}")
        image = f"nvcr.io/tao-lab/private:{uuid.uuid4().hex}"
        _pretend_registry(lab, image)
        seen: list[str] = []
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                lines = visible_command_lines()
                seen.extend(line for line in lines.splitlines() if canary in line)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            sdk = lab.sdk()
            asked = {**lab.job("echo up; sleep 2; exit 3"), "image": image}
            job = sdk.create_job(**asked, env_vars={"TOKEN": f"env-{canary}"})
            assert job.wait(timeout=LONG).status == "Error"
        finally:
            over.set()
            watcher.join()
            lab.cloud.engine.docker("rmi", image, check=False)
        assert seen == []
        assert "up" in sdk.get_job_logs(job.id)
        assert (lab.cloud.folder / "password").read_text() == f"ngc-{canary}", "by its input"
        assert canary not in str(lab.cloud.requests())
        told = job.explain()
        assert told is not None
        left = [
            name
            for name, data in lab.readable_artefacts()
            if canary.encode() in data and not name.endswith(("/password", "/config.json"))
        ]
        assert left == [], "nothing is left behind once the job is explained"

    def test_private_while_it_runs(self, lab: BrevLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo up; sleep 600"), env_vars={"TOKEN": "canary-env-93b2"})
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        environment = lab.folder_of(job.id) / "env.sh"
        assert "canary" in environment.read_text()
        assert environment.stat().st_mode & 0o077 == 0
        assert lab.folder_of(job.id).stat().st_mode & 0o077 == 0
        assert job.cancel()
        assert not environment.exists()


def _pretend_registry(lab: BrevLab, image: str) -> None:
    """A `docker` on the instance that has a private registry: the rest is the real one.

    nvcr.io cannot be reached from a test; what matters is how the password gets to Docker.
    """
    real = shutil.which("docker")
    tool = lab.cloud.folder / "tools" / "docker"
    tool.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *" login "*) exec cat > {lab.cloud.folder}/password;; '
        f'*" pull "*) exec {real} tag {BUSYBOX} {image};; esac\n'
        f'exec {real} "$@"\n'
    )
    tool.chmod(0o755)
