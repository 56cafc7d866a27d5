"""A process that keeps GPUs locked for as long as a container lives.

Started with the locked files as inherited descriptors, before the container is. Once its client has
closed its input, or died, it asks the daemon to say when the container has ended, and leaves; the
kernel then drops the locks. A daemon that is restarted is asked again. Standard library only: one
runs beside every GPU job of a local daemon.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable

# A container is started at once, or never.
_UNSTARTED_SECONDS = 60
_START_PAUSE_SECONDS = 0.1
_DISMISSED = b"dismissed\n"
_LIVE = ("running", "paused", "restarting")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


class Holder:
    """A holder as its client sees it: from the beginning, the locks outlive the client."""

    def __init__(self, socket_path: str, container: str, descriptors: Iterable[int]) -> None:
        self._process = subprocess.Popen(
            # Isolated, because modules beside this file have names of the standard library's.
            [sys.executable, "-I", "-S", __file__, socket_path, container],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(descriptors),
            start_new_session=True,
            cwd="/",
            env=_environment(),
        )

    def dismiss(self) -> None:
        """The container was not started: nothing is to be held."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(BrokenPipeError):  # it could not even begin, which is as good
            self._process.stdin.write(_DISMISSED)

    def leave(self) -> int:
        """Let it go on alone; anything but 0 says that it could not begin."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.close()
        return self._process.wait()  # only for the process that started the holder: see main


def wait_for_end(socket_path: str, container: str, pause: float = 1.0) -> None:
    """Return once the container has ended, is gone, or was not started for a minute."""
    given_up = time.monotonic() + _UNSTARTED_SECONDS
    while True:
        try:
            state = _state(socket_path, container)
            if state in _LIVE:
                _ask(socket_path, "POST", f"/containers/{container}/wait?condition=not-running")
                return
            if state != "created" or time.monotonic() > given_up:
                return
            time.sleep(_START_PAUSE_SECONDS)
        except (OSError, http.client.HTTPException, _DaemonTroubleError):
            time.sleep(pause)  # the daemon is away; the container may well live


class _DaemonTroubleError(Exception):
    """The daemon answers, but cannot say."""


def _state(socket_path: str, container: str) -> str:
    """What the daemon calls the container's state; "" when there is no such container."""
    body = _ask(socket_path, "GET", f"/containers/{container}/json")
    return "" if body is None else str(json.loads(body)["State"]["Status"])


def _ask(socket_path: str, method: str, path: str) -> bytes | None:
    """The body of the answer; None when the daemon knows no such container."""
    connection = _UnixConnection(socket_path)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise _DaemonTroubleError(f"{method} {path}: HTTP {answer.status}")
    return body


def _environment() -> dict[str, str]:
    """Nothing of the client's, whose secrets a long-lived process would show to its user's others;
    only where a Python finds its own libraries.
    """
    from tao_sdk import settings  # here, because the holder itself cannot import it

    inherited = settings.process_environment()
    return {name: inherited[name] for name in ("LD_LIBRARY_PATH",) if name in inherited}


def main() -> None:
    path, container = sys.argv[1:]
    if os.fork():
        os._exit(0)  # so that the client has no child to wait for, however long it lives
    # Not for ever: a fork of the client may keep the other end open.
    select.select([0], [], [], _UNSTARTED_SECONDS)
    os.set_blocking(0, False)
    with contextlib.suppress(BlockingIOError):
        if os.read(0, len(_DISMISSED)):
            return
    wait_for_end(path, container)


if __name__ == "__main__":
    main()
