"""A real sshd on loopback, behind which the engine is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.docker.engine import Engine
from lab.packages import find, provide
from lab.sshd import PACKAGES, make_key, sshd


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
    provide(("sshd", "ssh", "ssh-keygen"), PACKAGES)
    folder.mkdir(parents=True, mode=0o700)
    make_key(folder / "user")
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    (folder / "ssh_config").write_text(
        f"IdentityFile {folder}/user\nIdentitiesOnly yes\nHostKeyAlias tao-lab\n"
        f"UserKnownHostsFile {folder}/known_hosts\nStrictHostKeyChecking yes\n"
    )
    (folder / "bin").mkdir()
    client = folder / "bin" / "ssh"
    client.write_text(f'#!/bin/sh\nexec {find("ssh")} -F {folder}/ssh_config "$@"\n')
    client.chmod(0o755)
    limits = ("PermitRootLogin prohibit-password", "MaxStartups 100")
    with sshd(folder, *limits, f"SetEnv DOCKER_HOST={engine.url}") as port:
        yield SshServer(folder, port)
