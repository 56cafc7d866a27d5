"""Jobs on a real engine: what the conformance suite does not ask because only Docker has it."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_lab import DockerLab

from lab.docker.images import BASH, BUSYBOX, FOREIGN, NO_SHELL
from lab.docker.registry import PASSWORD, USER, Registry, registry
from tao_sdk.errors import (
    CredentialError,
    SubmissionRejectedError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK
from tao_sdk.platforms.docker.images import PullProgress

LONG = 90


def inspect(lab: DockerLab, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.engine.docker("inspect", f"tao-job-{job_id}"))[0]
    return found


class TestContainer:
    @pytest.mark.seed("004.8", "004.2")
    def test_named_labelled_detached_kept_and_on_its_network(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = f"tao-test-{uuid.uuid4().hex[:8]}"
        monkeypatch.setenv("DOCKER_NETWORK", network)
        sdks = [lab.sdk(), lab.sdk()]
        makers = [threading.Thread(target=sdk.backend.prepare) for sdk in sdks]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        try:
            made = lab.engine.docker("network", "ls", "--filter", f"name={network}", "-q").split()
            assert len(made) == 1, "two clients at once make one network"
            wait = "while [ ! -e /starts/go ]; do sleep 0.05; done"
            job = sdks[0].create_job(**lab.job(f"grep ' /dev/shm ' /proc/mounts; env; {wait}"))
            assert inspect(lab, job.id)["State"]["Running"], "nobody waits for it"
            (lab.starts / "go").touch()
            assert job.wait(timeout=LONG).status == "Complete"
            found = inspect(lab, job.id)
            assert found["Name"] == f"/tao-job-{job.id}"
            assert found["Config"]["Labels"]["tao-sdk-backend"] == "local-docker"
            assert list(found["NetworkSettings"]["Networks"]) == [network]
            log = sdks[0].get_job_logs(job.id)
            assert log.splitlines()[0].startswith("shm /dev/shm tmpfs rw")
            assert "DOCKER_" not in log
            lab.engine.docker("rm", f"tao-job-{job.id}")
        finally:
            lab.engine.docker("network", "rm", network)

    @pytest.mark.seed("004.8")
    def test_a_leftover_of_the_same_job_is_replaced_and_nothing_else(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        for label, replaced in (("tao-sdk-job-id", True), ("other", False)):
            plan = sdk.plan(**lab.job("echo new"))
            words = ["--name", plan.identity.name, "--network", "none"]
            volume = ["-v", f"{lab.results}:/x"]
            lab.engine.docker(
                "create", *words, *volume, f"--label={label}={plan.job_id}", BUSYBOX, "x"
            )
            if replaced:
                job = sdk.submit(plan)
                assert job.wait(timeout=LONG).status == "Complete"
                assert sdk.get_job_logs(job.id) == "new\n"
            else:
                with pytest.raises(SubmissionRejectedError, match="already in use"):
                    sdk.submit(plan)

    def test_another_user_has_a_home(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        asked = {"image": BUSYBOX, "gpu_count": 0, "container_user": "1234:1234"}
        script = 'id -u; touch "$HOME/x" && mkdir -p "$HF_HOME" && echo writable; [ -n "$USER" ]'
        job = sdk.create_job(**asked, command=script)
        assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
        assert sdk.get_job_logs(job.id).split() == ["1234", "writable"]
        sdk.delete_job_artifacts(job.id)

    @pytest.mark.parametrize(("image", "shell"), [(BASH, "bash"), (BUSYBOX, "sh")])
    def test_bash_where_the_image_has_it(self, lab: DockerLab, image: str, shell: str) -> None:
        sdk = lab.sdk()
        plan = sdk.plan(**{**lab.job('echo "${BASH_VERSION:+bash}"'), "image": image})
        assert "/bin/sh if the image has no bash" in plan.render()
        job = sdk.submit(plan)
        assert job.wait(timeout=LONG).status == "Complete"
        assert (sdk.get_job_logs(job.id).strip() or "sh") == shell

    def test_a_long_command_goes_by_file(self, lab: DockerLab) -> None:
        """Lesson B: the kernel takes 128 KiB for one argument."""
        sdk = lab.sdk()
        plan = sdk.plan(**lab.job(f"x={'y' * 300_000}; echo ${{#x}}"))
        assert "/tao-job/command.sh" in [artefact.name for artefact in plan.artefacts]
        job = sdk.submit(plan)
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id) == "300000\n"

    def test_results_in_a_volume(self, lab: DockerLab) -> None:
        volume = f"tao-test-{uuid.uuid4().hex[:8]}"
        sdk = lab.sdk()
        asked = {
            **lab.job("echo data > /results/$TAO_JOB_ID/out"),
            "mounts": [f"{volume}:/results"],
        }
        job = sdk.create_job(**asked)
        assert job.wait(timeout=LONG).status == "Complete"
        assert job.results_dir == f"docker-volume://{volume}/{job.id}"
        assert sdk.check_path(f"{job.results_dir}/out")
        assert not sdk.check_path(f"{job.results_dir}/nothing")
        assert sdk.list_path(job.results_dir) == ["out", "tao_result.json"]
        assert sdk.delete_job_artifacts(job.id)
        assert not sdk.check_path(job.results_dir)
        lab.engine.docker("volume", "rm", volume)
        for address in (f"docker-volume://{volume}", job.results_dir, f"{job.results_dir}/out"):
            assert not sdk.check_path(address)
        assert volume not in lab.engine.docker("volume", "ls", "-q"), "looking makes none"

    @pytest.mark.seed("004.6")
    def test_several_nodes_are_refused(self, lab: DockerLab) -> None:
        with pytest.raises(UnsupportedError, match="one machine"):
            lab.sdk().create_job(**lab.job("true"), num_nodes=2)


class TestStates:
    @pytest.mark.seed("004.11")
    def test_paused_and_resumed(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 600"))
        eventually(lambda: job.refresh().status == "Running")
        lab.engine.docker("pause", f"tao-job-{job.id}")
        assert job.refresh().status == "Paused"
        assert job.cancel(), "a paused job can be cancelled"
        assert job.status == "Canceled"

    @pytest.mark.seed("004.12")
    def test_cancel_stops_the_named_container_and_keeps_the_evidence(self, lab: DockerLab) -> None:
        """Lesson 6.2: cancelling destroyed log and container."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo up; sleep 600"))
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        assert job.cancel()
        assert inspect(lab, job.id)["State"]["Status"] == "exited"
        assert "up" in sdk.get_job_logs(job.id).splitlines()  # busybox adds what became of it

    @pytest.mark.seed("004.3")
    def test_auto_remove_keeps_outcome_and_log(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lesson 6.2: the engine's own auto-remove loses the exit code with the container."""
        monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('for i in 1 2 3; do echo $i; done; echo "it is $TOKEN"; exit 3'),
            env_vars={"TOKEN": "token-of-the-job"},
        )
        assert inspect(lab, job.id)["HostConfig"]["AutoRemove"] is False
        assert job.wait(timeout=LONG).status == "Error"
        assert f"tao-job-{job.id}" not in lab.engine.docker("ps", "-a", "--format", "{{.Names}}")
        assert sdk.get_job_logs(job.id).splitlines()[:3] == ["1", "2", "3"]
        assert sdk.get_job_logs(job.id, tail=2).splitlines()[0] == "3"
        stream = sdk.stream_logs(job.id, follow=False)
        next(stream)
        assert next(iter(lab.sdk().stream_logs(job.id, cursor=stream.cursor))) == "2"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == 3
        assert "it is [secret]" in analysis["evidence"]
        row = sdk.store.get_job(job.id)
        assert row is not None
        assert "" < row["started_at"] <= row["ended_at"]

    def test_replicas(self, lab: DockerLab) -> None:
        """Lesson W24: there was none on the SDK object."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("exit 4"))
        job.wait(timeout=LONG)
        [replica] = sdk.get_job_replicas(job.id)
        assert replica["status"]["exit_code"] == 4
        assert replica["started_at"]
        assert replica["finished_at"]


class TestExplanations:
    """Lesson W23: on Docker there was never an explanation."""

    @pytest.mark.parametrize(
        ("script", "extra", "code", "err_class", "words"),
        [
            ("true", {"image": NO_SHELL}, 127, "ERR_IMAGE", "no /bin/sh in the image"),
            ("true", {"image": FOREIGN}, 1, "ERR_IMAGE", "another kind of processor"),
            ("cat /dev/zero | head -c 300m | tail", {"memory": "48m"}, 137, "ERR_OOM", "memory"),
            ("kill -9 $$", {}, 137, "ERR_UNKNOWN", "killed"),
            ("kill -BUS $$", {}, 135, "", "/dev/shm"),
            ("/etc/passwd", {}, 126, "ERR_PROGRAM", "cannot be executed"),
            ("kill -TERM $$", {}, 143, "", "SIGTERM"),
        ],
    )
    @pytest.mark.seed("004.12")
    def test_of_an_end(
        self,
        lab: DockerLab,
        script: str,
        extra: dict[str, Any],
        code: int,
        err_class: str,
        words: str,
    ) -> None:
        job = lab.sdk().create_job(**{**lab.job(script), **extra})
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == code
        assert err_class in analysis["err_class"]
        assert words in str(analysis)

    @pytest.mark.parametrize(
        ("asked", "err_class", "words"),
        [
            ({"pull_policy": "never", "image": "not-there:1"}, "", "'never'"),
            ({"container_user": "nobody-knows"}, "", "nobody-knows"),
        ],
    )
    @pytest.mark.seed("004.12")
    def test_of_a_refusal(
        self, lab: DockerLab, asked: dict[str, Any], err_class: str, words: str
    ) -> None:
        sdk = lab.sdk()
        with pytest.raises(SubmissionRejectedError):
            sdk.create_job(**{**lab.job("true"), **asked})
        [job] = sdk.list_jobs()
        assert job.status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert err_class in analysis["err_class"]
        assert words in str(analysis)
        assert lab.jobs_in_reality() == set(), "nothing is left of it"

    def test_a_folder_that_cannot_be_made(self, lab: DockerLab) -> None:
        (lab.folder / "file").touch()
        place = lab.folder / "file" / "results"
        with pytest.raises(SubmissionRejectedError, match=rf"mounts: {place} cannot be made"):
            lab.sdk().create_job(image=BUSYBOX, command="true", mounts=[f"{place}:/results"])

    @pytest.mark.seed("004.10")
    def test_a_missing_folder_is_found_before_launch(self, lab: DockerLab) -> None:
        with pytest.raises(ValidationError, match=r"mounts\[0\]: .*nothing is not on this machine"):
            lab.sdk().plan(image=BUSYBOX, command="true", mounts=[f"{lab.folder}/nothing:/d:ro"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry") / "r") as server:
        yield server


class TestImages:
    def log_in(self, server: Registry, password: str) -> None:
        import os

        folder = Path(os.environ["DOCKER_CONFIG"])
        folder.mkdir(exist_ok=True)
        secret = base64.b64encode(f"{USER}:{password}".encode()).decode()
        config = {"auths": {server.host: {"auth": secret}}}
        (folder / "config.json").write_text(json.dumps(config))

    @pytest.mark.seed("004.3", "004.12")
    def test_pulled_with_stored_credentials_when_missing(
        self, lab: DockerLab, server: Registry
    ) -> None:
        image = f"{server.host}/lab/image:{uuid.uuid4().hex[:8]}"
        self.log_in(server, PASSWORD)
        made = lab.engine.docker("create", "-v", f"{lab.results}:/x", BUSYBOX, "x").strip()
        lab.engine.docker("commit", "--change", f"ENV MADE={image}", made, image)
        lab.engine.docker("push", image)
        lab.engine.docker("rmi", image)
        seen: list[PullProgress] = []
        sdk = DockerSDK(state_file=lab.state_file, on_pull=seen.append)
        job = sdk.create_job(**{**lab.job("true"), "image": image})
        assert job.wait(timeout=LONG).status == "Complete"
        assert seen
        assert seen[-1].layers_done == seen[-1].layers == 1
        calls = len(seen)
        sdk.create_job(**{**lab.job("true"), "image": image}).wait(timeout=LONG)
        assert len(seen) == calls, "an image that is there is not pulled again"
        lab.engine.remove_all(f"ancestor={image}")
        lab.engine.docker("rmi", image)
        self.log_in(server, "wrong")
        with pytest.raises(CredentialError, match="its credentials are refused"):
            sdk.create_job(**{**lab.job("true"), "image": image})

    def test_refusals_of_the_registry(self, lab: DockerLab, server: Registry) -> None:
        """Lesson F14: a credential is asked for when it is needed, by what to do."""
        sdk = lab.sdk()
        asked = {**lab.job("true"), "image": f"{server.host}/lab/image:none"}
        with pytest.raises(SubmissionRejectedError, match="docker login"):
            sdk.create_job(**asked)
        self.log_in(server, PASSWORD)
        with pytest.raises(SubmissionRejectedError, match="not found"):
            lab.sdk().create_job(**asked)
        classes = {job.explain()["err_class"] for job in sdk.list_jobs()}  # type: ignore[index]  # None would fail here as well
        assert classes == {"ERR_CREDENTIAL", "ERR_IMAGE"}


class TestLongLogs:
    @pytest.mark.parametrize(
        "lines",
        [
            100_000,
            # A GiB.
            pytest.param(8 * 2**20, marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
        ],
    )
    @pytest.mark.parametrize("follow", [True, False])
    def test_all_of_it_in_bounded_memory(self, lab: DockerLab, lines: int, follow: bool) -> None:
        """Lesson 6.4: the whole log was held in memory."""
        found = lab.run_python_json(
            "import json, resource, sys\n"
            "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "job = sdk.create_job(**json.loads(sys.argv[1]))\n"
            "follow = json.loads(sys.argv[2])\n"
            "next(sdk.stream_logs(job.id))\n"
            "if not follow: sdk.wait(job.id, timeout=1000)\n"
            "before = peak()\n"
            "count = sum(1 for _ in sdk.stream_logs(job.id, follow=follow))\n"
            "print(json.dumps([count, peak() - before]))",
            json.dumps(lab.job(f"yes {'x' * 127} | head -n {lines}")),
            json.dumps(follow),
            seconds=1500,
        )
        assert found[0] == lines
        assert found[1] < 8 * 1024, "KiB; the log has 12 MiB, or a GiB"

    def test_the_end_is_read_without_the_rest(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job(f"yes {'x' * 127} | head -n 50000; sleep 4; for i in 1 2 3; do echo $i; done")
        )
        assert job.wait(timeout=LONG).status == "Complete"
        before = lab.proxy.passed
        stream = sdk.stream_logs(job.id, tail=2)
        assert [next(stream), next(stream)] == ["2", "3"]
        assert lab.proxy.passed - before < 2**20, "the log has 6 MiB"
        last = sdk.stream_logs(job.id, tail=3)
        assert next(last) == "1"
        before = lab.proxy.passed
        assert list(lab.sdk().stream_logs(job.id, cursor=last.cursor)) == ["2", "3"]
        assert lab.proxy.passed - before < 2**20

    def test_a_line_longer_than_the_engines_buffer(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("head -c 50000 /dev/zero | tr '\\0' 'é'; echo; echo end"))
        assert job.wait(timeout=LONG).status == "Complete"
        lines = sdk.get_job_logs(job.id).splitlines()
        assert lines[-1] == "end"
        assert len(lines) == 2
