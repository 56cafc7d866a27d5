"""A process that keeps GPUs locked for as long as a container lives.

It inherits the locked files, asks the daemon to report the container's end, and exits; the kernel
then drops the locks. After a restart of the daemon it asks again. Standard library only, because
one runs beside every GPU job of a local daemon.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable

# As long as a client waits for the daemon to start a container.
_UNSTARTED_SECONDS = 120
_START_PAUSE_SECONDS = 0.1
_ANSWER_SECONDS = 30.0
# The daemon is asked anew after so long.
_WAIT_SECONDS = 3600.0
_LIVE = ("running", "paused", "restarting")


def start(socket_path: str, container: str, descriptors: Iterable[int]) -> subprocess.Popen[bytes]:
    """Start a holder of these files, which outlives this process.

    The process returned ends at once: with 0 when the holder runs.
    """
    return subprocess.Popen(
        # Isolated, because modules beside this file have names of the standard library's.
        [sys.executable, "-I", "-S", __file__, socket_path, container],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=tuple(descriptors),
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """Where Python finds its libraries, and nothing else: the client's environment has secrets."""
    from tao_sdk import settings  # here, because the holder itself cannot import it

    inherited = settings.process_environment()
    return {name: inherited[name] for name in ("LD_LIBRARY_PATH",) if name in inherited}


def wait_for_end(socket_path: str, container: str, pause: float = 1.0) -> None:
    """Return once the container has ended, is gone, or was not seen to start in time."""
    given_up = time.monotonic() + _UNSTARTED_SECONDS
    has_started = False
    while True:
        try:
            state = _state(socket_path, container)
            if state in _LIVE:
                has_started = True
                path = f"/containers/{container}/wait?condition=not-running"
                _ask(socket_path, "POST", path, _WAIT_SECONDS)
                return
            if state != "created":
                return
            time.sleep(_START_PAUSE_SECONDS)
        except (OSError, http.client.HTTPException):
            time.sleep(pause)  # the daemon is away; the container may well live
        if not has_started and time.monotonic() > given_up:
            return


def _state(socket_path: str, container: str) -> str:
    """The daemon's word for the container's state; "" when there is no such container."""
    body = _ask(socket_path, "GET", f"/containers/{container}/json", _ANSWER_SECONDS)
    return "" if body is None else str(json.loads(body)["State"]["Status"])


def _ask(socket_path: str, method: str, path: str, seconds: float) -> bytes | None:
    """The body of the answer; None when the daemon knows no such container.

    `OSError` if the daemon does not answer within so many seconds.
    """
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.sock.settimeout(seconds)
        connection.sock.connect(socket_path)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise OSError(f"{method} {path}: HTTP {answer.status}")
    return body


def main() -> None:
    socket_path, container = sys.argv[1:]
    if os.fork():
        os._exit(0)  # so that the client has no child to wait for, however long it lives
    wait_for_end(socket_path, container)


if __name__ == "__main__":
    main()
