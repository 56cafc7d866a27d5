"""Login hosts: an sshd each, of one test, so that it can cut them and count what went through."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lab.packages import TIED, find
from lab.processes import descendants, kill, name_of, wait_until
from lab.slurm.variant import LoginVariant
from lab.sshd import make_key

BANNER = "*** This system is for authorised users only. ***"
NOISE = "Loading modules: gcc/12.2 cuda/12.4 openmpi/4.1"
COMPLAINT = "module: command not found"


class LoginHost:
    """One sshd, at an address of its own."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.name = f"login{number}"
        self.address = f"127.0.0.{number}"
        with socket.create_server((self.address, 0)) as taken:
            self.port = int(taken.getsockname()[1])
        self._server: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        make_key(folder / "host")

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def known_as(self) -> str:
        """The line for a known_hosts file."""
        kind, key, *_ = (self.folder / "host.pub").read_text().split()
        return f"[{self.address}]:{self.port} {kind} {key}\n"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [*TIED, find("sshd"), "-D", "-e", "-f", str(self.folder / "config")], stderr=log
            )
        wait_until(self._answers, f"sshd does not answer: {self.log.read_text()[-1000:]}")

    def stop(self) -> None:
        """The host is gone: nobody gets in, and whoever was in is thrown out."""
        if self._server is not None:
            inside = self._sessions()
            self._server.kill()
            self._server.wait(timeout=30)
            self._server = None
            for pid in inside:
                kill(pid)

    def drop_connections(self) -> None:
        """Throw out whoever is in; they can come back."""
        for pid in self._sessions():
            kill(pid)

    def _sessions(self) -> list[int]:
        assert self._server is not None, f"{self.name} is stopped"
        return [pid for pid in descendants(self._server.pid) if name_of(pid) == "sshd"]

    def _answers(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, self.log.read_text()[-1000:]
        with contextlib.suppress(OSError):
            socket.create_connection((self.address, self.port), timeout=1).close()
            return True
        return False


class CommandLog:
    """What went through the login hosts so far."""

    def __init__(self, hosts: Sequence[LoginHost]) -> None:
        self._hosts = hosts

    @property
    def connections(self) -> int:
        """Times that somebody logged in."""
        return self._count("Accepted publickey")

    @property
    def sessions(self) -> int:
        """Commands, shells and subsystems: round trips at least."""
        return self._count("Starting session: ")

    def _count(self, text: str) -> int:
        return sum(host.log.read_text().count(text) for host in self._hosts)


class Login:
    """The login hosts of one test, and the files of an `ssh` that knows them."""

    def __init__(
        self, folder: Path, user: str, home: Path, variables: Mapping[str, str], kind: LoginVariant
    ) -> None:
        self.folder = folder
        self.key = folder / "key"
        make_key(self.key)
        self.hosts = [LoginHost(folder / f"host{n}", n) for n in range(1, kind.hosts + 1)]
        self.command_log = CommandLog(self.hosts)
        self.known_hosts.write_text("".join(host.known_as for host in self.hosts))
        self.ssh_config.write_text("".join(self._config_of(host, user) for host in self.hosts))
        self._write_client()
        Path("/run/sshd").mkdir(exist_ok=True)
        for host in self.hosts:
            (host.folder / "config").write_text(self._server_config(host, kind, home, variables))
        (folder / "banner").write_text(f"{BANNER}\n")
        # sshd starts every session where the passwd file says, whatever HOME is.
        noise = f"echo '{NOISE}'\necho '{COMPLAINT}' >&2\n" if kind.noise else ""
        (home / ".bashrc").write_text(f"cd\n{noise}")

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`: the hosts by name and by address."""
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def client_path(self) -> str:
        """PATH with an `ssh` and a `scp` that know the hosts without being told."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def _config_of(self, host: LoginHost, user: str) -> str:
        return (
            f"Host {host.name} {host.address}\n"
            f"  HostName {host.address}\n  Port {host.port}\n  User {user}\n"
            f"  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  StrictHostKeyChecking yes\n"
        )

    def _server_config(
        self, host: LoginHost, kind: LoginVariant, home: Path, variables: Mapping[str, str]
    ) -> str:
        told = {**variables, "HOME": str(home)}
        settings = " ".join(f"{name}={value}" for name, value in told.items())
        return (
            f"Port {host.port}\nListenAddress {host.address}\nHostKey {host.folder}/host\n"
            f"PidFile none\nAuthorizedKeysFile {self.key}.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUseDNS no\n"
            f"MaxStartups 200\nMaxSessions {kind.max_sessions}\nPrintMotd no\n"
            f"Banner {self.folder / 'banner' if kind.noise else 'none'}\n"
            f"SetEnv {settings}\nSubsystem sftp internal-sftp -d {home}\nLogLevel VERBOSE\n"
        )

    def _write_client(self) -> None:
        (self.folder / "bin").mkdir()
        for program in ("ssh", "scp", "sftp"):
            client = self.folder / "bin" / program
            client.write_text(f'#!/bin/sh\nexec {find(program)} -F {self.ssh_config} "$@"\n')
            client.chmod(0o755)


@contextlib.contextmanager
def login(
    folder: Path, user: str, home: Path, variables: Mapping[str, str], kind: LoginVariant
) -> Iterator[Login]:
    """Login hosts where a session finds these variables and this home."""
    with tempfile.TemporaryDirectory(prefix="login-", dir=folder) as place:
        Path(place).chmod(0o755)  # sshd reads the allowed keys as the user
        opened = Login(Path(place), user, home, variables, kind)
        try:
            for host in opened.hosts:
                host.start()
            yield opened
        finally:
            for host in opened.hosts:
                host.stop()
