"""Starting the lab's cloud, changing its mood, and looking behind its scenes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.brev import program
from lab.docker.engine import Engine, discard
from lab.packages import TIED, find, provide

_PACKAGES = ("openssh-server", "openssh-client", "util-linux")
_GPUS = 2


class BrevCloud:
    """One test's own account at the lab's Brev."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder = folder
        self.engine = engine
        self._cloud = program.Cloud(str(folder))

    @property
    def path(self) -> str:
        """PATH with the lab's `brev`."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def brev(self, *words: str) -> str:
        """Run the program as a person would."""
        done = subprocess.run(
            [str(self.folder / "bin" / "brev"), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def configure(self, **values: Any) -> None:
        """What the account is like: `api_key`, `version`, `create_flags`."""
        self._cloud.write({**self._cloud.read("config.json"), **values}, "config.json")

    def faults(self, **values: Any) -> None:
        """What goes wrong from now on; nothing without any."""
        self._cloud.write(values, "faults.json")

    @contextlib.contextmanager
    def faulty(self, **values: Any) -> Iterator[None]:
        before = self._cloud.read("faults.json")
        self.faults(**{**before, **values})
        try:
            yield
        finally:
            self.faults(**before)

    # ------------------------------------------------------------------ behind the scenes

    def make(self, name: str) -> None:
        """An instance that is there already."""
        self.brev("create", name, "--type", "g6e.12xlarge", "--detached")

    def names(self) -> set[str]:
        """The instances that there are, whatever anybody says."""
        return {one["name"] for one in self._cloud.instances()}

    def ever_made(self) -> list[str]:
        path = self.folder / "made.log"
        return path.read_text().split() if path.exists() else []

    def home(self, name: str) -> Path:
        return self.folder / "machines" / name / "home"

    def reboot(self, name: str) -> None:
        """Every process on it ends, and it comes up again."""
        one = self._cloud.find(name)
        self._cloud.halt(one)
        self._cloud.boot(one)
        self._cloud.save(one)

    def kill_shells(self, name: str) -> None:
        """Every process on it ends; Docker and its containers do not."""
        one = self._cloud.find(name)
        os.kill(one["init"], 9)
        self._cloud.boot(one)
        self._cloud.save(one)

    def vanish(self, name: str) -> None:
        """As if somebody had deleted it in Brev's console."""
        program.vanish(self._cloud, self._cloud.find(name))

    def requests(self) -> list[list[str]]:
        path = self.folder / "requests.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        for one in self._cloud.instances():
            program.vanish(self._cloud, one)


@contextlib.contextmanager
def brev_cloud(engine: Engine) -> Iterator[BrevCloud]:
    """A cloud with nothing in it."""
    provide(("sshd", "ssh", "scp", "ssh-keygen", "unshare", "nsenter", "flock"), _PACKAGES, "brev")
    # A short path: it is in every command of ssh.
    folder = Path(tempfile.mkdtemp(prefix="tao-brev-"))
    for name in ("instances", "machines", "ssh", "bin", "tools"):
        (folder / name).mkdir(mode=0o700)
    port = _free_port()
    server = _sshd(folder / "ssh", port)
    cloud = BrevCloud(folder, engine)
    try:
        cloud.configure(docker=engine.url, port=port)
        _write_program(
            folder / "bin" / "brev",
            f'exec {sys.executable} -S -E {program.__file__} {folder} "$@"',
        )
        _write_program(folder / "tools" / "nvidia-smi", f"seq 0 {_GPUS - 1}")
        _wait_for_port(port, server)
        yield cloud
    finally:
        cloud.close()
        server.terminate()
        server.wait(timeout=30)
        discard(folder)


def _sshd(folder: Path, port: int) -> subprocess.Popen[bytes]:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host")]
    subprocess.run(words, check=True, timeout=30)
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "authorized").touch(mode=0o600)
    (folder / "config").touch(mode=0o600)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin yes\nMaxStartups 200\nMaxSessions 100\nUseDNS no\n"
        "Subsystem sftp /usr/lib/openssh/sftp-server\n"
    )
    host_key = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"tao-lab {host_key[0]} {host_key[1]}\n")
    return subprocess.Popen(
        [*TIED, find("sshd"), "-D", "-e", "-f", str(folder / "sshd_config")],
        stderr=(folder / "sshd.log").open("wb"),
    )


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert server.poll() is None, "sshd ended"
            assert time.monotonic() < deadline, "sshd does not answer"
            time.sleep(0.02)
        else:
            return
