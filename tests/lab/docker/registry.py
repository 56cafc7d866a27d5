"""A real registry on loopback that asks for a name and a password."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.packages import TIED, find, provide

USER, PASSWORD = "tao", "lab-password"
# The password above, as `htpasswd -nbB` writes it.
_HTPASSWD = "tao:$2y$05$4mqT66PW.5bV6TC5AE0g4u1/0CX2JTOWUzNugG42.MCdDLDn6.pAG\n"


@dataclass(frozen=True)
class Registry:
    """A running registry."""

    host: str


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    provide(("docker-registry",), ("docker-registry",))
    folder.mkdir(parents=True)
    (folder / "htpasswd").write_text(_HTPASSWD)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (folder / "config.yml").write_text(
        "version: 0.1\nlog: {level: warn}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
        f"auth: {{htpasswd: {{realm: lab, path: {folder}/htpasswd}}}}\n"
    )
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*TIED, find("docker-registry"), "serve", str(folder / "config.yml")],
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.02)
        yield Registry(f"127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(timeout=30)
