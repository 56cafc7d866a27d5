"""The spawner: starts supervisors for one client, each by a fork of an interpreter that is ready.

A new interpreter with its imports takes longer than everything else in a submission, so a client
starts one of these at its first job and keeps it. It lives as long as the client's end of the
control socket; the supervisors live on.

For each job the client sends a channel of its own over the control socket. One process, the next
supervisor, already waits for it. So nothing of one launch can be mistaken for another's, and the
spawner itself never sees a launch (they hold secrets). The one after is forked when the client has
its answer, off its way.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tao_sdk.platforms.local.launch import JobFolder, Launch, read_all
from tao_sdk.platforms.local.supervisor import Station, supervise
from tao_sdk.process_identity import this_host

_CONTROL = 0


def main() -> None:
    """Fork one supervisor after the other, until the client is gone."""
    # The mask is inherited: a client that blocks signals must not make its jobs immortal.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Nobody here asks how a supervisor ended; this way none stays behind as a zombie.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    this_host()  # remembered, for all of them
    gc.freeze()  # what is here stays; pages that nobody touches stay shared
    while True:
        told, tell = os.pipe()
        if os.fork() == 0:
            os.close(told)
            _run_apart(tell)
        os.close(tell)
        # Nothing is read when the next supervisor has found the client gone (or was killed).
        called = os.read(told, 1)
        if called:
            os.read(told, 1)  # the end of it, when the client has its answer or none will come
        os.close(told)
        if not called:
            return


def _run_apart(tell: int) -> NoReturn:
    """Be the next supervisor; never return into the loop of the spawner."""
    code = 1
    try:
        os.setsid()
        station = Station.set_up()
        channel = _next_channel()
        if channel is not None:
            with contextlib.suppress(BrokenPipeError):  # the spawner was killed: there is no next
                os.write(tell, b".")
            _serve(channel, station, lambda: os.close(tell))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # the traceback goes to supervisor.log
        sys.stderr.flush()
        raise
    finally:
        os._exit(code)


def _next_channel() -> socket.socket | None:
    """Wait for a job; None when there will be none any more."""
    with socket.socket(fileno=os.dup(_CONTROL)) as control:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    # From here on without any hold on the client.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (_CONTROL, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    return socket.socket(fileno=descriptors[0]) if descriptors else None


def _serve(channel: socket.socket, station: Station, answered: Callable[[], None]) -> None:
    """Read one launch and carry it through."""

    def answer(said: dict[str, Any]) -> None:
        with channel, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may be gone
            channel.sendall(json.dumps(said).encode() + b"\n")
        answered()

    text = read_all(channel)
    if not Launch.is_whole(text):
        answered()
        return  # its client died while sending it
    launch = Launch.loads(text)
    os.umask(launch.umask)
    try:
        _log_errors(JobFolder.of(launch).supervisor_log)
    except OSError as error:  # a full disk; or somebody has settled that this job never starts
        answer({"rejected": f"the supervisor did not start: {error}"})
        return
    supervise(launch, station, answer)


def _log_errors(path: Path) -> None:
    errors = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(errors, 2)
    os.close(errors)
