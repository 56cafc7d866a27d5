"""A real sshd on loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lab.packages import TIED, find
from lab.ports import free_port
from lab.processes import wait_until

PACKAGES = ("openssh-server", "openssh-client")


@contextlib.contextmanager
def sshd(folder: Path, *settings: str) -> Iterator[int]:
    """It lets in whom the file `authorized` of its folder names; has its port.

    `known_hosts` there knows it by the alias `tao-lab`.
    """
    make_key(folder / "host")
    Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    lines = (
        *(f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", "PidFile none"),
        *(f"AuthorizedKeysFile {folder}/authorized", "StrictModes no", "UsePAM no"),
        *("MaxSessions 100", *settings),
    )
    (folder / "sshd_config").write_text("".join(f"{line}\n" for line in lines))
    kind, key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"tao-lab {kind} {key}\n")
    server = subprocess.Popen(
        [*TIED, find("sshd"), "-D", "-e", "-f", str(folder / "sshd_config")],
        stderr=(folder / "sshd.log").open("wb"),
    )

    def answers() -> bool:
        assert server.poll() is None, "sshd ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    try:
        wait_until(answers, "sshd does not answer", 30)
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)


def make_key(path: Path) -> None:
    """A key without a passphrase, and beside it `.pub`."""
    words = [find("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(words, check=True, timeout=30)
