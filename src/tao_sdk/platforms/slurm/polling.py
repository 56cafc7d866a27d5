"""The pace of polls, and how the processes of a machine share one answer.

A controller serves a whole site, and jobs run for hours. A waiting process polls after 2, 4, 8 and
15 s, then at intervals that grow to a minute, and after 2 s again when one of its jobs changed. The
newest answer of `squeue` is kept in a private file. A process whose jobs are all alive in an answer
younger than its own interval uses it and times its next poll by it, so any number of processes poll
once per interval. Calls outside a wait always ask.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tao_sdk.atomic_files import write_private
from tao_sdk.file_locks import NoFileLocksError, lock
from tao_sdk.platforms.capabilities import PollBackoff
from tao_sdk.platforms.slurm.client import Login
from tao_sdk.platforms.ssh_control import control_folder

_FIRST_PAUSES = (2.0, 4.0, 8.0, 15.0)
_GROWTH = 1.5
MAX_PAUSE_SECONDS = 60.0
# How long to wait for the answer of another process that is asking already.
_TURN_SECONDS = 5.0
_TURN_CHECK_SECONDS = 0.05


def pause_after(quiet_polls: int) -> float:
    """The pause after so many polls in a row that showed no change."""
    if quiet_polls < len(_FIRST_PAUSES):
        return _FIRST_PAUSES[quiet_polls]
    exponent = min(quiet_polls - len(_FIRST_PAUSES) + 1, 10)
    return min(_FIRST_PAUSES[-1] * _GROWTH**exponent, MAX_PAUSE_SECONDS)


class SharedAnswer(NamedTuple):
    """What `squeue` said about all jobs of the user."""

    age: float
    queue: bytes


class SharedQueue:
    """The newest answer of a cluster, kept for all processes of this user on this machine."""

    def __init__(
        self,
        login: Login,
        folder: Callable[[], Path] = control_folder,
        now: Callable[[], float] = time.time,
    ) -> None:
        cluster = f"{login.config}\0{login.user}@{','.join(login.hosts)}"
        key = hashlib.sha256(cluster.encode()).hexdigest()[:16]
        self._name = f"queue-{key}"
        self._folder = folder
        self.now = now

    def keep(self, asked_at: float, queue: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk costs a question, no more
            write_private(self._folder() / self._name, f"{asked_at!r}\n".encode() + queue)

    def newest(self, max_age: float) -> SharedAnswer | None:
        """The newest answer, unless it is older than that."""
        try:
            head, _, queue = (self._folder() / self._name).read_bytes().partition(b"\n")
            age = self.now() - float(head)
        except (OSError, ValueError):
            return None
        # An answer of the future is one from before the clock was set.
        return SharedAnswer(age, queue) if 0 <= age < max_age else None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One process at a time asks; the others wait a moment for its answer."""
        with contextlib.ExitStack() as opened:
            with contextlib.suppress(OSError, NoFileLocksError):
                file = opened.enter_context((self._folder() / f"{self._name}.lock").open("wb"))
                deadline = time.monotonic() + _TURN_SECONDS
                while not lock(file.fileno(), wait=False) and time.monotonic() < deadline:
                    time.sleep(_TURN_CHECK_SECONDS)
            yield


class AcceptedAge(threading.local):
    """How old an answer the next poll of this thread may use, and how old its last one was."""

    max_age = 0.0
    used = 0.0

    def take(self) -> float:
        """The accepted age, for one poll: it follows a pause of that length."""
        max_age, self.max_age, self.used = self.max_age, 0.0, 0.0
        return max_age


class SlurmBackoff(PollBackoff):
    """The pauses of one process that waits for some jobs."""

    def __init__(
        self,
        states: Callable[[], Sequence[object]],
        accepted: AcceptedAge,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`states` are those of the jobs at the last poll, and anything that hints at their end."""
        super().__init__(MAX_PAUSE_SECONDS)
        self._states = states
        self._accepted = accepted
        self._sleep = sleep
        self._last: Sequence[object] | None = None
        self._quiet_polls = 0
        self._interval = 0.0
        self._clock = clock
        self._asked_at = 0.0
        self._due_at: float | None = -math.inf

    def after(self, delay: float) -> float:  # noqa: ARG002 - has a schedule of its own
        """The next delay, counted from when the last answer was given."""
        states = self._states()
        self._quiet_polls = self._quiet_polls + 1 if states == self._last else 0
        self._last = states
        self._interval = pause_after(self._quiet_polls)
        return max(0.0, self._interval - self._accepted.used)

    def pause(self, seconds: float) -> None:
        self._sleep(seconds)
        self._accepted.max_age = max(self._interval, seconds)

    def close(self) -> None:
        self._accepted.max_age = 0.0

    def is_due(self) -> bool:
        now = self._clock()
        if self._due_at is None:  # the answer of the poll that was due last is known now
            self._due_at = self._asked_at + self.after(0.0)
        is_new = self._last is not None and self._states() != self._last
        if not is_new and now < self._due_at:
            return False
        self._asked_at, self._due_at = now, None
        self._accepted.max_age = 0.0 if is_new else self._interval
        return True
