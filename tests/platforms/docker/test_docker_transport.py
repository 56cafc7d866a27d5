"""The way to the daemon: shared with nobody, with time-outs that fit, told of what happens."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from docker_lab import DockerLab

from lab.docker import Engine
from lab.docker.images import BUSYBOX
from lab.docker.proxy import Proxy
from lab.docker.ssh_server import ssh_server
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import client as client_module
from tao_sdk.platforms.docker.client import DockerClient
from tao_sdk.platforms.docker.endpoint import Endpoint
from tao_sdk.platforms.docker.ssh import ssh_command
from tao_sdk.platforms.docker.watch import EventBackoff
from tao_sdk.platforms.ssh_control import control_folder

LONG = 90

ASK_IN_EVERY_PROCESS = """
import json, os, signal, sys
from tao_sdk.platforms.docker.endpoint import resolve
from tao_sdk.platforms.docker.client import DockerClient

client = DockerClient(resolve(sys.argv[1]))
names = sys.argv[2:]

def is_answered():
    return all(client.api.inspect_container(name)["Name"] == f"/{name}" for name in names)

def fork(gate):
    if child := os.fork():
        return child
    signal.alarm(60)
    answered = False
    try:
        os.close(gate[1])
        os.read(gate[0], 1)
        answered = is_answered()
    finally:
        os._exit(0 if answered else 1)

def ask_all_at_once():
    answered = is_answered()
    gate = os.pipe()
    children = [fork(gate) for _ in range(3)]
    for end in gate:
        os.close(end)
    answered = is_answered() and answered
    return [answered, *(os.waitpid(child, 0)[1] == 0 for child in children)]

signal.alarm(60)
print(json.dumps([ask_all_at_once() for _ in range(20)]))
"""

READ_ON_IN_TWO_PROCESSES = """
import os, pathlib, signal
job = sdk.create_job(**json.loads(sys.argv[1]))
stream = sdk.stream_logs(job.id)
lines = [next(stream)]
child = os.fork()
if not child:
    signal.alarm(60)
    rest = []
    try:
        rest = list(stream)
    finally:
        os._exit(0 if rest == [str(number) for number in range(2, 3001)] else 1)
pathlib.Path(sys.argv[2]).touch()
lines += stream
print(json.dumps([lines, os.waitpid(child, 0)[1]]))
"""


class TestFork:
    """A forked process used its parent's connections, and each read answers to the other."""

    @pytest.mark.parametrize("scheme", ["unix", "tcp"])
    def test_every_process_gets_its_own_answers(self, lab: DockerLab, scheme: str) -> None:
        names = [f"{lab.folder.name[:20]}-{os.getpid()}-{scheme}-{number}" for number in range(4)]
        for name in names:
            volume = f"{lab.results}:/x"
            lab.engine.docker(
                "create", "--network=none", "-v", volume, "--name", name, BUSYBOX, "x"
            )
        with contextlib.closing(Proxy("127.0.0.1", lab.engine.socket)) as proxy:
            url = lab.url if scheme == "unix" else f"tcp://127.0.0.1:{proxy.port}"
            found = lab.run_python_json(ASK_IN_EVERY_PROCESS, url, *names, seconds=LONG)
        assert found == [[True] * 4] * 20

    def test_a_log_is_read_on_in_both_processes(self, lab: DockerLab) -> None:
        script = (
            "echo 1; while [ ! -e /starts/forked ]; do sleep 0.05; done; "
            "for i in $(seq 2 3000); do echo $i; done"
        )
        found = lab.run_python_json(
            f"import json, sys\n{READ_ON_IN_TWO_PROCESSES}",
            json.dumps(lab.job(script)),
            str(lab.starts / "forked"),
            seconds=LONG,
        )
        assert found == [[str(number) for number in range(1, 3001)], 0]


ASK_BESIDE_ONE_THAT_HANGS = """
import json, os, signal, sys, threading, time
from tao_sdk.platforms.docker import client
from tao_sdk.platforms.docker.endpoint import resolve
from tao_sdk.platforms.docker.client import DockerClient

signal.alarm(60)
client.SHORT_SECONDS = 600
hanging, good, go_on = sys.argv[1:]
bad = DockerClient(resolve(hanging))
threading.Thread(target=lambda: bad.info, daemon=True).start()
while not os.path.exists(go_on):
    time.sleep(0.01)
answers = [bool(DockerClient(resolve(good)).info)]
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(0 if DockerClient(resolve(good)).info else 1)
answers.append(os.waitpid(child, 0)[1] == 0)
print(json.dumps(answers), flush=True)
os._exit(0)
"""


def test_a_daemon_that_hangs_holds_up_no_other(
    lab: DockerLab, slow_daemon: tuple[str, threading.Event, threading.Event]
) -> None:
    """Neither in another thread nor in a forked process: they had one lock for all daemons."""
    url, _, was_asked = slow_daemon
    go_on = lab.folder / "go-on"
    process = lab.start_python(ASK_BESIDE_ONE_THAT_HANGS, url, lab.url, str(go_on))
    assert was_asked.wait(LONG)
    go_on.touch()
    out, err = process.communicate(timeout=LONG)
    assert out, err
    assert json.loads(out) == [True, True]


class TestEvents:
    @pytest.mark.timeout(3 * LONG)
    def test_an_end_is_seen_when_it_happens(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        until = "while [ ! -e /starts/{0} ]; do sleep 0.05; done"
        first, job = sdk.create_jobs([lab.job(until.format(name)) for name in ("first", "end")])
        with contextlib.closing(EventBackoff(sdk.backend.transport, [job.id], 0.25)) as pauses:
            pauses.pause(0.01)
            assert pauses.longest > sdk.backend.poll_seconds, "there is no need to ask often"
            # A daemon answers before it listens to its own events: not when a job has ended since.
            (lab.starts / "first").touch()
            assert first.wait(timeout=LONG).status == "Complete"
            (lab.starts / "end").touch()
            assert pauses._listen(LONG), "the daemon tells of the end"
            while not sdk.get_job_status(job.id).terminal:
                pauses.pause(0.2)

    @pytest.mark.timeout(3 * LONG)
    def test_without_events_it_is_asked_as_often_as_before(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        often = sdk.backend.poll_seconds
        job = sdk.create_job(**lab.job("while [ ! -e /starts/end ]; do sleep 0.05; done"))
        with contextlib.closing(sdk.backend.backoff([job.id])) as pauses:

            def asks_often_after(seconds: float) -> bool:
                pauses.pause(seconds)
                return pauses.longest == often

            eventually(lambda: not asks_often_after(0.01))
            with lab.unreachable():
                eventually(lambda: asks_often_after(5))
                assert asks_often_after(5), "another one cannot be opened"
            eventually(lambda: not asks_often_after(0.01))
        (lab.starts / "end").touch()
        assert job.wait(timeout=LONG).status == "Complete"


@pytest.fixture
def slow_daemon(tmp_path: Path) -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """Says at once that it lives, and all else when it is allowed to; says when it was asked."""
    allowed, was_asked = threading.Event(), threading.Event()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while asked := connection.recv(65536):
                if b"/_ping" not in asked:
                    was_asked.set()
                    allowed.wait(LONG)
                connection.sendall(head.encode())  # unless whoever asked has given up

    def accept(server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "slow.sock"))
        server.listen()
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"unix://{tmp_path}/slow.sock", allowed, was_asked
        allowed.set()
        server.shutdown(socket.SHUT_RDWR)


def test_a_look_is_given_up_before_work_is(
    slow_daemon: tuple[str, threading.Event, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, allowed, _ = slow_daemon
    client = DockerClient(Endpoint(url))
    allowed.set()
    client.api.info()
    allowed.clear()
    monkeypatch.setattr(client_module, "SHORT_SECONDS", 2)
    made: list[object] = []
    making = threading.Thread(target=lambda: made.append(client.api.create_network("n")))
    making.start()
    with pytest.raises(BackendUnreachableError, match="timed out"):
        client.api.containers()
    assert making.is_alive(), "to make something may take longer"
    allowed.set()
    making.join(LONG)
    assert made == [{}]


class TestSsh:
    def test_a_shell_at_the_other_end_sees_one_word(self) -> None:
        words = ssh_command("ssh://gpu-box/run/a%20b;reboot/d.sock", "/run/a b/50%")
        assert words[-4:] == ["--host", "'unix:///run/a b;reboot/d.sock'", "system", "dial-stdio"]
        assert 'ControlPath="/run/a b/50%%/%C"' in words

    def test_paths_with_blanks_on_either_side(
        self, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with (
            ssh_server(tmp_path / "ssh", engine) as server,
            tempfile.TemporaryDirectory(prefix="tao ; exit 1 ; ") as there,
            tempfile.TemporaryDirectory(prefix="tao 50% ") as here,
        ):
            monkeypatch.setenv("PATH", server.client_path)
            monkeypatch.setattr(tempfile, "tempdir", here)
            Path(there, "docker.sock").symlink_to(engine.socket)
            url = f"{server.url()}{quote(there)}/docker.sock"
            client = DockerClient(Endpoint(url))
            assert client.api.version()["Version"]
            client.close()
            assert [path.is_socket() for path in control_folder().iterdir()] == [True]
            words = ssh_command(url, str(control_folder()))
            end = [*words[:1], "-O", "exit", *words[1 : words.index("--") + 2]]
            subprocess.run(end, check=True, capture_output=True, timeout=30)
