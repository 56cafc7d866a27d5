"""The spawner: starts supervisors for one client, each by a fork of an interpreter that is ready.

A new interpreter with its imports takes longer than everything else in a submission (38 ms against
4 ms), so a client starts one of these at its first job and keeps it. It ends with the client's end
of the control socket; the supervisors live on.

For each job the client sends a channel of its own over the control socket. One process, the next
supervisor, already waits for it. So no job can get another's orders, and the spawner itself never
sees orders, which hold secrets.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from tao_sdk.platforms.local.orders import Orders
from tao_sdk.platforms.local.supervisor import listen_for_signals, supervise
from tao_sdk.process_identity import ProcessIdentity, this_host

_CONTROL = 0


def main() -> None:
    """Fork one supervisor after the other, until the client is gone."""
    # The mask is inherited: a client that blocks signals must not make its jobs immortal.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Supervisors are not waited for, and leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    this_host()  # cached for all supervisors
    # Untouched pages stay shared: 0.35 MB less for each supervisor.
    gc.freeze()
    called = True
    while called:
        readiness, report = os.pipe()
        if os.fork() == 0:
            os.close(readiness)
            _run_apart(report)
        os.close(report)
        # Nothing is read if the next supervisor was killed, or found the client gone.
        called = bool(os.read(readiness, 1))
        os.close(readiness)


def _run_apart(report: int) -> NoReturn:
    """Be the next supervisor; never returns to the loop of the spawner."""
    code = 1
    try:
        os.setsid()
        wake = listen_for_signals()
        identity = str(ProcessIdentity.current())
        channel = _next_channel()
        if channel is not None:
            with contextlib.suppress(BrokenPipeError):  # the spawner was killed
                os.write(report, b".")
            os.close(report)
            _serve(channel, identity, wake)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # the traceback goes to supervisor.log
        raise
    finally:
        os._exit(code)


def _next_channel() -> socket.socket | None:
    """Wait for the channel of a job; None when the client is gone."""
    with socket.socket(fileno=os.dup(_CONTROL)) as control:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    # From here on it holds nothing of the client.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (_CONTROL, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    return socket.socket(fileno=descriptors[0]) if descriptors else None


def _serve(channel: socket.socket, identity: str, wake: int) -> None:
    """Read the orders of one job and carry them out."""

    def answer(reply: dict[str, Any]) -> None:
        with channel, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may be gone
            channel.sendall(json.dumps(reply).encode() + b"\n")

    parts = []
    while part := channel.recv(65536):
        parts.append(part)
    try:
        orders = Orders.loads(b"".join(parts))
    except ValueError:
        return  # its client died while sending it
    os.umask(orders.umask)
    try:
        _log_errors(orders.job_folder.supervisor_log)
    except OSError as error:  # a full disk, or the job was settled as never submitted
        answer({"rejected": f"the supervisor did not start: {error}"})
        return
    supervise(orders, identity, wake, answer)


def _log_errors(path: Path) -> None:
    errors = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(errors, 2)
    os.close(errors)
