"""A real sshd on loopback, behind which the engine is."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.docker.engine import Engine
from lab.packages import TIED, find, provide

_PACKAGES = ("openssh-server", "openssh-client")


@dataclass(frozen=True)
class SshServer:
    """A running sshd, and the folder of an `ssh` that knows it."""

    folder: Path
    port: int

    @property
    def client_path(self) -> str:
        """PATH with an `ssh` that has keys and known hosts of its own."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def url(self, port: int | None = None) -> str:
        return f"ssh://root@127.0.0.1:{port or self.port}"


@contextlib.contextmanager
def ssh_server(folder: Path, engine: Engine) -> Iterator[SshServer]:
    """sshd with a key of its own; its sessions find the engine as their Docker."""
    provide(("sshd", "ssh", "ssh-keygen"), _PACKAGES)
    folder.mkdir(parents=True, mode=0o700)
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True, timeout=30)
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    Path("/run/sshd").mkdir(exist_ok=True)
    port = _free_port()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nMaxStartups 100\nMaxSessions 100\n"
        f"SetEnv DOCKER_HOST={engine.url}\n"
    )
    host_key = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"tao-lab {host_key[0]} {host_key[1]}\n")
    (folder / "ssh_config").write_text(
        f"IdentityFile {folder}/user\nIdentitiesOnly yes\nHostKeyAlias tao-lab\n"
        f"UserKnownHostsFile {folder}/known_hosts\nStrictHostKeyChecking yes\n"
    )
    (folder / "bin").mkdir()
    client = folder / "bin" / "ssh"
    client.write_text(f'#!/bin/sh\nexec {find("ssh")} -F {folder}/ssh_config "$@"\n')
    client.chmod(0o755)
    server = subprocess.Popen(
        [*TIED, find("sshd"), "-D", "-e", "-f", str(folder / "sshd_config")],
        stderr=(folder / "sshd.log").open("wb"),
    )
    try:
        _wait_for_port(port, server)
        yield SshServer(folder, port)
    finally:
        server.terminate()
        server.wait(timeout=30)


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
