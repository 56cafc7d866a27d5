"""The first process of each rank of a local job; it leads a session of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tao_sdk.job_states import utc_now
from tao_sdk.platforms.local.process_groups import Session
from tao_sdk.process_identity import ProcessIdentity, start_time, this_host

# Python and the supervisor change these, and a program would inherit that.
_RESET = ("SIGPIPE", "SIGXFSZ", "SIGTERM", "SIGCHLD", "SIGINT")
_CANNOT_START = 126


class Rank:
    """One node's part of the job: its first process, and all that this process started."""

    def __init__(self, number: int, pid: int, gpus: list[str]) -> None:
        self.number = number
        self.gpus = gpus
        self.process = ProcessIdentity(this_host(), pid, start_time(pid) or "")
        self.session = Session(self.process)
        self.exit_code: int | None = None
        self.ended_at = ""

    def collect(self) -> bool:
        """Record the end of the process; True the first time."""
        if self.exit_code is not None:
            return False
        code = _exit_code_of(self.process.pid)
        if code is None:
            return False
        self.exit_code = code
        self.ended_at = utc_now()
        return True

    @property
    def alive(self) -> bool:
        """Whether any process of this rank still runs, background processes included."""
        return self.exit_code is None or bool(self.session.members())

    def to_dict(self) -> dict[str, Any]:
        return {
            "rank": self.number,
            "process": str(self.process),
            "gpus": self.gpus,
            "exit_code": self.exit_code,
            "ended_at": self.ended_at,
        }


def _exit_code_of(pid: int) -> int | None:
    """The exit code of a child that has ended (128+n for a signal); None while it runs.

    The child is not reaped: while it is a zombie, its number, which is also that of its session,
    is not reused, and no signal to the session can reach another program.
    """
    if hasattr(os, "waitid"):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        by_signal = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        return 128 + ended.si_status if by_signal else ended.si_status
    found, status = os.waitpid(pid, os.WNOHANG)  # macOS before Python 3.13 has no waitid
    if found == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


class Gate:
    """Holds new processes back until they are recorded.

    If the supervisor is killed before that, they find the gate closed and exit: no unrecorded
    process runs. The supervisor opens it when every process leads its own session, so that no
    signal can miss one.
    """

    def __init__(self) -> None:
        self._wait, self._go = os.pipe()
        self._arrivals, self._arrived = os.pipe()

    def pass_through(self) -> bool:
        """In the new process: report, then wait; False if the supervisor is gone."""
        os.close(self._go)
        os.write(self._arrived, b".")
        os.close(self._arrived)
        return bool(os.read(self._wait, 1))

    def await_arrivals(self, count: int) -> None:
        """In the supervisor: until `count` processes wait, or the last of them has failed."""
        os.close(self._arrived)
        while count > 0 and (arrived := os.read(self._arrivals, count)):
            count -= len(arrived)
        os.close(self._arrivals)

    def open(self, count: int) -> None:
        os.write(self._go, b"." * count)
        os.close(self._go)
        os.close(self._wait)


def start(
    argv: list[str],
    env: dict[str, str],
    *,
    cwd: str,
    log: Path,
    gate: Gate,
    inherit: Iterable[int],
) -> int:
    """Start one process behind the gate; returns its id. It keeps the descriptors `inherit`."""
    # Opened before the fork, so that a full disk is an error of the supervisor.
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    pid = os.fork()
    if pid:
        os.close(output)
        return pid
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        for descriptor in inherit:
            os.set_inheritable(descriptor, True)
        signal.set_wakeup_fd(-1)
        for name in _RESET:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.chdir(cwd)
        if gate.pass_through():
            os.execve(argv[0], argv, env)  # noqa: S606 - the job
    except OSError as error:
        os.write(2, f"cannot start the job: {error}\n".encode())
    finally:
        os._exit(_CANNOT_START)
