"""The process groups of one rank: all those in the session that its first process leads.

A program may put its children into groups of their own, as a shell with job control does; the
runner does so with the user's command. They stay in the session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence

from tao_sdk.process_identity import (
    ProcessIdentity,
    has_variable,
    session_members,
    session_of,
    signal_group,
    signal_if,
    this_host,
)

# How long the processes that a job left behind may take to end.
LEFTOVER_SECONDS = 2.0
# How long to go on killing what cannot be killed (a process stuck in the kernel).
_UNKILLABLE_SECONDS = 5.0


class Session:
    """The processes of a rank.

    The parent of the first process has not reaped it, so its number, which is also the session's,
    is not reused. Any other caller gives the `job_id`: without a live first process, a session
    counts only if one of its processes was started with that job's environment.
    """

    def __init__(self, leader: ProcessIdentity, job_id: str = "") -> None:
        self._leader = leader
        self._job_id = job_id
        self._group_was_asked = False
        self._rest_was_asked = False

    def members(self) -> list[int]:
        """The processes of the rank that still run."""
        if self._leader.host != this_host():
            return []
        found = session_members(self._leader.pid)
        if not self._job_id or self._leader.alive:
            return found
        ours = any(has_variable(pid, "TAO_JOB_ID", self._job_id) for pid in found)
        return found if ours else []

    def ask_to_end(self) -> bool:
        """SIGTERM, once to each: to the group of the first process and, when that process is gone,
        to the rest. True if this call sent any.

        Not to the whole session at once: the program that made a group passes the signal on to it,
        and many programs take a second SIGTERM as an order to stop immediately.
        """
        if self._leader.alive:
            first_time = not self._group_was_asked
            if first_time:
                signal_group(self._leader.pid, signal.SIGTERM)
            self._group_was_asked = True
            return first_time
        rest = [] if self._rest_was_asked else self.members()
        for pid in rest:
            if not (self._group_was_asked and _group_of(pid) == self._leader.pid):
                self._signal(pid, signal.SIGTERM)
        self._rest_was_asked = True
        return bool(rest)

    def kill(self) -> None:
        """SIGKILL to every process, wherever in the session it is."""
        for pid in self.members():
            self._signal(pid, signal.SIGKILL)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        # Another user's process (a job that uses sudo) cannot be signalled.
        with contextlib.suppress(PermissionError):
            signal_if(lambda: session_of(pid) == self._leader.pid, pid, number)


def end_all(sessions: Sequence[Session], grace_seconds: float, pause: Callable[[], object]) -> None:
    """SIGTERM, a grace period, SIGKILL; then a short wait for processes that cannot be killed."""
    deadline = time.monotonic() + grace_seconds
    for session in sessions:
        session.ask_to_end()
    while running := [session for session in sessions if session.members()]:
        now = time.monotonic()
        for session in running:
            if now >= deadline:
                session.kill()
            elif session.ask_to_end():
                # Its first process has just ended; what is left gets some time of its own.
                deadline = max(deadline, now + min(grace_seconds, LEFTOVER_SECONDS))
        if now >= deadline + _UNKILLABLE_SECONDS:
            return
        pause()


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
