"""What is said about a job is true, also where an image or a killed client has ideas of its own."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
import pytest
from common_lab import isolate
from docker_lab import DockerLab

from lab.docker import private_engine
from lab.docker.images import BUSYBOX
from lab.docker.registry import PASSWORD, USER, registry
from tao_sdk.errors import CredentialError
from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import config, identity, placeholders
from tao_sdk.platforms.docker.client import DaemonError
from tao_sdk.platforms.docker.containers import job_name

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
        lab.engine.docker("rmi", "-f", image)  # another test may run `ls` in it


def test_the_fence_of_a_killed_settler_keeps_nobody(lab: DockerLab) -> None:
    sdk = lab.sdk()
    sdk.backend.prepare()
    plan = sdk.plan(**lab.job("true"))
    # What a settler makes, and here never removes.
    labels = {config.LABEL: "true", config.LABEL_FENCE: "true"}
    assert placeholders.take_name(sdk.backend.transport, job_name(plan.job_id), labels)
    ref = JobRef(JobIdentity(plan.job_id, "token"), plan.intent)
    assert sdk.backend.settle([ref]) == {plan.job_id: None}


def test_a_confirmation_lost_by_a_power_cut_after_the_container_was_removed(
    lab: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was kept of a job says that it ran, though its daemon knows nothing of it."""
    monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
    sdk = lab.sdk()
    job = sdk.create_job(**lab.counted_job("exit 3"))
    assert job.wait(timeout=LONG).status == "Error"
    with contextlib.closing(sqlite3.connect(sdk.store.path)) as connection, connection:
        connection.execute(
            "UPDATE jobs SET phase='submitting', owner='', status='Pending', exit_code=NULL"
        )
    again = lab.sdk()
    assert again.reconcile() == [job.id]
    assert again.get_job_status(job.id).status == "Error"
    assert again.store.get_job(job.id)["exit_code"] == 3  # type: ignore[index]  # None would fail here as well
    assert lab.starts_of(job.id) == 1


def test_what_a_submission_asks_of_the_daemon(lab: DockerLab) -> None:
    """No more than a client that uses it bare: whatever else is known from the first job on."""
    sdk = lab.sdk()
    sdk.create_job(**lab.job("true")).wait(timeout=LONG)
    before = len(sdk.backend.transport.calls)
    job = sdk.create_job(**lab.job("true"))
    calls = list(sdk.backend.transport.calls)[before - len(sdk.backend.transport.calls) :]
    assert calls[:2] == [f"GET /images/{BUSYBOX}/json", "POST /containers/create"]
    assert [call.split("/")[-1] for call in calls[2:]] == ["start"]
    job.wait(timeout=LONG)


def test_a_start_whose_error_comes_too_late_is_no_refusal(
    lab: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container ran, and its job was said to be rejected."""
    real = docker.APIClient.start

    def start(self: docker.APIClient, container: str) -> None:
        real(self, container)
        raise DaemonError(500, "context deadline exceeded", f"POST /containers/{container}/start")

    sdk = lab.sdk()
    monkeypatch.setattr(docker.APIClient, "start", start)
    job = sdk.create_job(**lab.counted_job("exit 3"))
    assert job.wait(timeout=LONG).status == "Error"
    assert lab.starts_of(job.id) == 1
    assert job.explain()["exit_code"] == 3  # type: ignore[index]  # None would fail here as well


def test_a_cancellation_that_the_daemon_refuses_was_not_heard(
    lab: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("while [ ! -e /starts/go ]; do sleep 0.1; done; exit 9"))

    def refuse(_: docker.APIClient, container: str, __: int) -> None:
        raise DaemonError(500, "cannot stop it", f"POST /containers/{container}/stop")

    with monkeypatch.context() as patched:
        patched.setattr(docker.APIClient, "stop", refuse)
        assert sdk.cancel_job(job.id) is False
    (lab.starts / "go").touch()
    assert job.wait(timeout=LONG).status == "Error"


@pytest.mark.timeout(300)
def test_the_volume_by_which_a_daemon_is_known_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its jobs cannot be judged; until somebody does what their message says."""
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    with private_engine() as engine:
        lab = DockerLab(tmp_path, engine)
        isolate(monkeypatch, lab)
        sdk = lab.sdk()
        asked = {"image": BUSYBOX, "command": "sleep 600", "gpu_count": 0}
        lost = [sdk.create_job(**asked) for _ in range(2)]
        eventually(lambda: all(job.refresh().status == "Running" for job in lost))
        if identity.VOLUME not in engine.docker("volume", "ls", "-q").split():
            pytest.skip("the ID of this daemon tells its data by itself")
        engine.docker("volume", "rm", identity.VOLUME)
        engine.docker("rm", "-f", f"tao-job-{lost[0].id}")
        told = sdk.get_job_status(lost[0].id)
        assert told.status == "Running"
        run_as_told(lab, told.message)
        assert lost[0].wait(timeout=LONG).status == "Error"
        # The same once more, after another client has made a volume of its own.
        engine.docker("volume", "rm", identity.VOLUME)
        other = lab.sdk()
        newer = other.create_job(**asked)
        for job in (lost[1], newer):
            engine.docker("rm", "-f", f"tao-job-{job.id}")
        told = other.get_job_status(lost[1].id)
        assert told.status != "Error"
        run_as_told(lab, told.message)
        for job in (lost[1], newer):
            assert other.wait(job.id, timeout=LONG).status == "Error"
        lab.proxy.close()


def run_as_told(lab: DockerLab, message: str) -> None:
    assert "cannot reach" in message
    for command in message.split("`")[1].split(" && "):
        program, *words = command.split()
        assert program == "docker"
        lab.engine.docker(*words)


def test_a_cancellation_that_was_not_heard_changes_nothing(lab: DockerLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("while [ ! -e /starts/go ]; do sleep 0.1; done; exit 9"))
    with lab.unreachable():
        assert sdk.cancel_job(job.id) is False
    (lab.starts / "go").touch()
    status = job.wait(timeout=LONG)
    assert (status.status, job.explain()["exit_code"]) == ("Error", 9)


@pytest.mark.seed("004.1")
def test_the_context_that_the_command_line_uses(
    lab: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.engine.docker("context", "create", "lab", "--docker", f"host={lab.url}")
    monkeypatch.delenv("DOCKER_HOST")
    for choose in ("DOCKER_CONTEXT", "docker context use"):
        if choose == "DOCKER_CONTEXT":
            monkeypatch.setenv(choose, "lab")
        else:
            monkeypatch.delenv("DOCKER_CONTEXT")
            lab.engine.docker("context", "use", "lab")
        before = lab.proxy.passed
        job = lab.sdk().create_job(**lab.job("true"))
        assert job.wait(timeout=LONG).status == "Complete"
        assert lab.proxy.passed > before, "the context leads through the lab's proxy"
        assert f"tao-job-{job.id}" in lab.engine.docker("ps", "-a", "--format", "{{.Names}}")


@pytest.mark.seed("004.7")
def test_control_values_stay_outside(lab: DockerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    control = ("BACKEND", "HOST_PLATFORM", "MONGOSECRET", "DOCKER_USERNAME", "HOST_SSH_PATH")
    for name in control:
        monkeypatch.setenv(name, f"value-of-{name}")
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("env"), env_vars={"MINE": "x"})
    assert job.wait(timeout=LONG).status == "Complete"
    inside = sdk.get_job_logs(job.id)
    assert "MINE=x" in inside.splitlines()
    found = json.loads(lab.engine.docker("inspect", f"tao-job-{job.id}"))[0]
    for text in (inside, json.dumps(found)):
        assert "value-of-" not in text
        assert not any(name in text for name in (*control, "DOCKER_"))
    labels = found["Config"]["Labels"]
    assert labels["tao-sdk-backend"] == "local-docker"
    assert labels["tao-sdk-job-id"] == job.id


@pytest.mark.seed("004.9")
def test_the_gpus_of_a_jetson(lab: DockerLab) -> None:
    sdk = lab.sdk()
    transport: Any = sdk.backend.transport
    transport._info = {**transport.info, "KernelVersion": "5.15.148-tegra"}
    gpu = lab.gpus.split(",")[0]
    job = sdk.create_job(**{**lab.job("env"), "gpu_count": 1})
    assert job.wait(timeout=LONG).status == "Complete"
    inside = sdk.get_job_logs(job.id).splitlines()
    assert f"NVIDIA_VISIBLE_DEVICES={gpu}" in inside
    assert "NVIDIA_DRIVER_CAPABILITIES=all" in inside
    host = json.loads(lab.engine.docker("inspect", f"tao-job-{job.id}"))[0]["HostConfig"]
    assert host["Runtime"] == "nvidia"
    assert not host["DeviceRequests"]


@pytest.mark.seed("004.10")
def test_paths_and_addresses_of_the_host(lab: DockerLab) -> None:
    data = lab.folder / "data"
    data.mkdir()
    (data / "in").write_text("hello\n")
    sdk = lab.sdk()
    for address in (str(data), f"file://{data}"):
        assert sdk.check_path(address)
        assert not sdk.check_path(f"{address}/nothing")
        assert sdk.list_path(address) == ["in"]
    asked = {"image": BUSYBOX, "gpu_count": 0}
    read = f"cat {data}/in; touch {data}/new"
    for mount, code in ((f"file://{data}", 0), (f"{data}:{data}:ro", 1)):
        job = sdk.create_job(**asked, command=read, mounts=[mount, f"{lab.results}:/results"])
        job.wait(timeout=LONG)
        assert "hello" in sdk.get_job_logs(job.id).splitlines()
        assert sdk.store.get_job(job.id)["exit_code"] == code  # type: ignore[index]  # None would fail here as well
    assert (data / "new").exists()
    job = sdk.create_job(**asked, command=read, mounts=[f"{lab.results}:/results"])
    job.wait(timeout=LONG)
    assert "No such file" in sdk.get_job_logs(job.id), "nothing is mounted that was not asked for"


@contextmanager
def front_of(host: str) -> Iterator[tuple[str, list[str]]]:
    """A proxy that leads every registry to this one; who knocked, by what name and password."""
    knocked: list[str] = []

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = self.path.removeprefix("http://nvcr.io")
            if "Authorization" in self.headers:
                given = self.headers["Authorization"].removeprefix("Basic ")
                knocked.append(base64.b64decode(given).decode())
            inner = http.client.HTTPConnection(host, timeout=LONG)
            inner.request(self.command, target, headers=dict(self.headers))
            answer = inner.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the name is the library's

        def do_CONNECT(self) -> None:
            self.send_error(502)  # nobody has the certificate of nvcr.io

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", knocked
        server.shutdown()
        serving.join()


@pytest.mark.seed("004.3")
@pytest.mark.timeout(300)
def test_images_of_ngc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine for which nvcr.io is the lab's registry: whose name does a pull go by?"""
    with registry(tmp_path / "registry") as server, front_of(server.host) as (proxy, knocked):
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy)
        with private_engine("--insecure-registry", "nvcr.io") as engine:
            for name in ("HTTP_PROXY", "HTTPS_PROXY"):
                monkeypatch.delenv(name)
            lab = DockerLab(tmp_path, engine)
            isolate(monkeypatch, lab)
            push(lab, server.host)
            asked = {**lab.job("true"), "image": "nvcr.io/lab/image:1"}
            with pytest.raises(CredentialError, match="set NGC_KEY"):
                lab.sdk().create_job(**asked)
            monkeypatch.setenv("NGC_KEY", "of-somebody-else")
            with pytest.raises(CredentialError, match="refuses NGC_KEY"):
                lab.sdk().create_job(**asked)
            assert knocked
            assert set(knocked) == {"$oauthtoken:of-somebody-else"}
            monkeypatch.setenv("DOCKER_USERNAME", USER)
            monkeypatch.setenv("NGC_KEY", PASSWORD)
            job = lab.sdk().create_job(**asked)
            assert job.wait(timeout=LONG).status == "Complete"
            lab.proxy.close()


def push(lab: DockerLab, host: str) -> None:
    """Put an image into the registry, as somebody who may."""
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir()
    secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": secret}}}))
    lab.engine.docker("tag", BUSYBOX, f"{host}/lab/image:1")
    lab.engine.docker("push", f"{host}/lab/image:1")
