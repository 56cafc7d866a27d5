"""A process that keeps GPUs locked for as long as a container lives.

Started with the locked files as inherited descriptors, and told through its input: the daemon's
socket and the container. It asks the daemon to say when the container has ended, and leaves; the
kernel then drops the locks. A daemon that is restarted is asked again. Standard library only: one
runs beside every GPU job of a local daemon.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def start(socket_path: str, container: str, descriptors: Iterable[int]) -> None:
    """Let a process of its own hold these locks until the container has ended."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=tuple(descriptors),
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with process.stdin as orders:
        orders.write(f"{socket_path}\n{container}\n".encode())
    process.wait()  # only for the process that started the holder: see main


def wait_for_end(socket_path: str, container: str, pause: float = 1.0) -> None:
    """Return once the container is known to be not running, or gone."""
    while True:
        connection = _UnixConnection(socket_path)
        try:
            connection.request("POST", f"/containers/{container}/wait?condition=not-running")
            answer = connection.getresponse()
            body = answer.read()
            if answer.status == 404 or (answer.status == 200 and b"StatusCode" in body):
                return
        except (OSError, http.client.HTTPException):
            pass  # the daemon is away; the container may well live
        finally:
            connection.close()
        time.sleep(pause)


def main() -> None:
    path, container = sys.stdin.read().splitlines()
    os.close(0)
    if os.fork():
        os._exit(0)  # so that the client has no child to wait for, however long it lives
    wait_for_end(path, container)


if __name__ == "__main__":
    main()
