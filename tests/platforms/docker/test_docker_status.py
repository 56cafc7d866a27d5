"""Asking about a job never raises for what its daemon or its container is like."""

from __future__ import annotations

import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from docker_lab import DockerLab

from lab.docker import private_engine
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK

LONG = 90
WATCHERS = 6


def name_of(job: Job) -> str:
    return f"tao-job-{job.id}"


def containers(lab: DockerLab) -> list[str]:
    return lab.engine.docker("ps", "-a", "--format", "{{.Names}}").split()


def submit_logging_to(sdk: DockerSDK, driver: str, asked: dict[str, Any]) -> Job:
    """As on a daemon whose default is that log driver."""
    plan = sdk.plan(**asked)
    plan.payload[0]["HostConfig"]["LogConfig"] = {"Type": driver, "Config": {}}
    return sdk.submit(plan)


class RefusingDaemon(BaseHTTPRequestHandler):
    """Says 503 to everything."""

    def do_GET(self) -> None:
        body = b'{"message": "the server is starting up"}'
        self.send_response(503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the names are the library's

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def address_string(self) -> str:
        return "a socket file"


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def refusing(lab: DockerLab) -> Iterator[None]:
    """While this is open the daemon answers, but says nothing of use."""
    with lab.unreachable():
        path = lab.folder / "docker.sock"
        with UnixServer(str(path), RefusingDaemon) as server:
            serving = threading.Thread(target=server.serve_forever, args=(0.02,))
            serving.start()
            yield
            server.shutdown()
            serving.join()
        path.unlink()


class TestDaemons:
    def test_one_that_refuses_to_say_changes_nothing(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("while [ ! -e /starts/go ]; do sleep 0.1; done; exit 9"))
        eventually(lambda: job.refresh().status == "Running")
        with refusing(lab):
            for asked in (sdk, lab.sdk()):
                status = asked.get_job_status(job.id)
                assert status.status == "Running"
                assert "cannot reach" in status.message
                assert "503" in status.message
                assert "starting up" in status.message
            assert sdk.cancel_job(job.id) is False
        (lab.starts / "go").touch()
        assert job.wait(timeout=LONG).status == "Error", "the cancellation was not heard"

    @pytest.mark.timeout(300)
    def test_a_job_of_another_daemon_is_not_judged(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        job = lab.sdk().create_job(**lab.job("sleep 600"))
        eventually(lambda: job.refresh().status == "Running")
        with private_engine() as engine:
            other = DockerSDK(state_file=lab.state_file, docker_host=engine.url)
            for _ in range(2):
                status = other.get_job_status(job.id)
                assert status.status == "Running"
                assert "cannot reach" in status.message
                assert engine.url in status.message
            assert other.cancel_job(job.id) is False
            other.close()
        assert job.cancel()
        assert job.status == "Canceled"


class TestContainers:
    @pytest.mark.parametrize("auto_remove", ["false", "true"])
    def test_one_without_a_log(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch, auto_remove: str
    ) -> None:
        monkeypatch.setenv("DOCKER_AUTO_REMOVE", auto_remove)
        sdk = lab.sdk()
        job = submit_logging_to(sdk, "none", lab.job("echo lost; exit 3"))
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["exit_code"], analysis["evidence"]) == (3, [])
        assert (name_of(job) in containers(lab)) == (auto_remove == "false")

    def test_one_whose_log_is_damaged_is_not_removed(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo lost; exit 3"))
        lab.engine.docker("wait", name_of(job))
        form = "{{.LogPath}}"
        log = Path(lab.engine.docker("inspect", "-f", form, name_of(job)).strip())
        log.unlink()
        log.mkdir()
        status = job.wait(timeout=LONG)
        assert status.status == "Error"
        assert f"{name_of(job)} stays: its log cannot be saved" in caplog.text
        assert name_of(job) in containers(lab)
        assert job.explain()["exit_code"] == 3  # type: ignore[index]  # None would fail here as well

    def test_auto_removed_while_many_watch(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
        asked = lab.job("while [ ! -e /starts/go ]; do sleep 0.1; done; seq 20000; exit 3")
        jobs = lab.sdk().create_jobs([asked] * 3)
        ids = [job.id for job in jobs]
        together = threading.Barrier(WATCHERS)
        ends: list[Any] = []

        def watch() -> None:
            try:
                sdk = lab.sdk()
                sdk.get_statuses(ids)
                together.wait(timeout=LONG)
                ends.append([end.status for end in sdk.wait_all(ids, LONG, 0.01).values()])
            except Exception as error:  # noqa: BLE001 - shown by the assertion below
                ends.append(error)

        watchers = [threading.Thread(target=watch) for _ in range(WATCHERS)]
        for watcher in watchers:
            watcher.start()
        (lab.starts / "go").touch()
        for job in jobs:
            lab.engine.docker("wait", name_of(job), check=False)
        for watcher in watchers:
            watcher.join()
        assert ends == [["Error"] * len(ids)] * WATCHERS
        sdk = lab.sdk()
        whole = [str(number) for number in range(1, 20_001)]
        for job in jobs:
            assert sdk.get_job_logs(job.id).splitlines() == whole
            assert sdk.get_failure_analysis(job.id)["exit_code"] == 3  # type: ignore[index]  # None would fail here as well
        assert not {name_of(job) for job in jobs} & set(containers(lab))
        left = [path.name for path in lab.folder.rglob(".writing-*")]
        assert left == []

    def test_another_container_with_the_labels_of_a_job(self, lab: DockerLab) -> None:
        """An image that somebody made of a failed job, to look into it, has the job's labels."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("exit 3"))
        lab.engine.docker("wait", name_of(job))
        image = f"tao-test/committed:{job.id}"
        lab.engine.docker("commit", name_of(job), image)
        words = ["-d", "-v", f"{lab.results}:/x", "--network", "none", "--entrypoint", "/bin/sleep"]
        looking = lab.engine.docker("run", *words, image, "600").strip()
        lab.engine.docker("rm", name_of(job))
        assert job.wait(timeout=LONG).status == "Error", "by its record, not as the copy does"
        lab.engine.docker("rm", "-f", looking)
        lab.engine.docker("rmi", image)

    def test_killed_by_somebody_is_not_out_of_memory(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo working; sleep 600"))
        eventually(lambda: "working" in sdk.get_job_logs(job.id))
        lab.engine.docker("kill", name_of(job))
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["exit_code"], analysis["err_class"]) == (137, "ERR_UNKNOWN")
        assert "docker kill" in analysis["suggestion"]
        assert "dmesg" in analysis["suggestion"]


class TestWaiting:
    def test_this_process_may_not_use_the_gpus(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = lab.gpus.split(",")
        chosen = {"gpu_count": 1, "gpu_ids": [second]}
        holder = lab.sdk().create_job(**{**lab.job("sleep 600"), **chosen})
        waiting = lab.sdk().create_job(**{**lab.job("true"), **chosen}, when_busy="wait")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", first)
        status = lab.sdk().get_job_status(waiting.id)
        assert status.status == "Pending"
        assert "this process cannot start it" in status.message
        assert f"no GPU {second}" in status.message
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert holder.cancel()
        assert lab.sdk().wait(waiting.id, timeout=LONG).status == "Complete"


class TestRecords:
    @pytest.mark.parametrize(
        "leave",
        [
            'mkdir "$r"; echo {} > "$r/x"',
            'mkfifo "$r"',
            'ln -s /dev/zero "$r"',
            'head -c 300000 /dev/zero > "$r"',
            'cd ..; rm -r "/results/$TAO_JOB_ID"; touch "/results/$TAO_JOB_ID"',
        ],
        ids=["folder", "pipe", "link", "long", "no folder"],
    )
    @pytest.mark.parametrize("volume", [False, True], ids=["bind", "volume"])
    def test_anything_under_the_name_of_the_record(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch, leave: str, volume: bool
    ) -> None:
        monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
        asked = lab.job(f'r="/results/$TAO_JOB_ID/tao_result.json"; {leave}; echo left; sleep 600')
        named = f"tao-test-{lab.gpus.partition(',')[0]}"
        if volume:
            asked["mounts"] = [f"{named}:/results", f"{lab.starts}:/starts"]
        sdk = lab.sdk()
        job = sdk.create_job(**asked)
        eventually(lambda: "left" in sdk.get_job_logs(job.id), LONG)
        lab.engine.docker("rm", "-f", name_of(job))
        status = job.wait(timeout=LONG)
        assert status.status == "Error"
        assert "vanished" in status.message
        if volume:
            lab.engine.docker("volume", "rm", named)

    def test_one_that_only_the_jobs_user_may_read(self, lab: DockerLab) -> None:
        """The daemon may read what the container's user keeps from the caller."""
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("exit 6"))
        lab.engine.docker("wait", name_of(job))
        (lab.results / job.id / "tao_result.json").chmod(0)
        lab.engine.docker("rm", name_of(job))
        script = f"{lab.sdk_source()}\nprint(sdk.get_job_status({job.id!r}).message)"
        # Root that may not read everything: as any other owner of a file without permissions.
        ordinary = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
        done = subprocess.run(
            [*ordinary, "--", sys.executable, "-c", script],
            env=lab.environment(),
            capture_output=True,
            text=True,
            timeout=LONG,
        )
        assert "ended with exit code 6, says its result record" in done.stdout, done.stderr


@pytest.mark.seed("004.11")
def test_the_table_of_states(lab: DockerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_SDK_VANISH_GRACE_SECONDS", "0")
    sdk = lab.sdk()
    plan = sdk.plan(**lab.job("sleep 600"))
    real = sdk.backend._launcher.start  # type: ignore[attr-defined]  # of this backend, not of all
    sdk.backend._launcher.start = lambda *_: None  # type: ignore[attr-defined]  # of this backend, not of all
    created = sdk.submit(plan)
    sdk.backend._launcher.start = real  # type: ignore[attr-defined]  # of this backend, not of all
    assert created.refresh().status == "Pending", "created"
    lab.engine.docker("start", name_of(created))
    assert created.refresh().status == "Running", "running"
    lab.engine.docker("pause", name_of(created))
    assert created.refresh().status == "Paused", "paused"
    lab.engine.docker("unpause", name_of(created))
    assert created.refresh().status == "Running", "running again"
    lab.engine.docker("rm", "-f", name_of(created))
    assert created.wait(timeout=LONG).status == "Error", "gone"

    again = sdk.create_job(**lab.job("while [ ! -e /starts/end ]; do sleep 0.05; done; exit 1"))
    lab.engine.docker("update", "--restart", "always", name_of(again))
    (lab.starts / "end").touch()  # from now on it ends as soon as it is started again
    form = "{{.State.Status}}"
    states = set()

    def restarted() -> bool:
        states.add(lab.engine.docker("inspect", "-f", form, name_of(again)).strip())
        assert again.refresh().status == "Running"
        return "restarting" in states

    eventually(restarted, LONG)
    lab.engine.docker("rm", "-f", name_of(again))

    for code, status in ((0, "Complete"), (7, "Error")):
        job = sdk.create_job(**lab.job(f"exit {code}"))
        assert job.wait(timeout=LONG).status == status
        assert sdk.store.get_job(job.id)["exit_code"] == code  # type: ignore[index]  # None would fail here as well
