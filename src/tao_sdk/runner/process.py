"""The command: started, told of every signal, ended with its whole group; its exit code exact.

The command leads a process group of its own, in the runner's session. A platform that signals the
runner's group therefore reaches the command through the runner only, once per signal. What the
command starts in a group or session of its own (`setsid`) is not reached, and ends with the
container.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .errors import RunnerError
from .report import moment

if TYPE_CHECKING:
    Result = TypeVar("Result")

_GRACE = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
_STOP = {*_GRACE, signal.SIGHUP}
_FORWARDED = {*_STOP, signal.SIGUSR1, signal.SIGUSR2}
# What Python ignores, and what a shell's background process has to ignore.
_RESET = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT]
_LEFTOVER_SECONDS = 2.0
_UNKILLABLE_SECONDS = 5.0
_POLL_SECONDS = 0.05

# Ends the command's group when the runner is gone without a word (SIGKILL, out of memory): the
# guard's input then ends after the first of two lines.
_GUARD = 'read -r group && ! read -r _ && kill -KILL "-$group"'


class StoppedError(RunnerError):
    """The runner was asked to stop while no command ran."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Outcome(NamedTuple):
    """How a command ended."""

    exit_code: int
    """Its own; 128+n when signal n ended it."""
    signal: int
    """The signal that ended it, or 0."""
    started_at: str
    ended_at: str


class SignalWatch:
    """Takes the runner's signals, from its first moment to its last; none is lost.

    The kernel's order is kept: every signal is a byte in a pipe, read when there is time for it.
    To be made once, in the main thread.
    """

    def __init__(self) -> None:
        self.stop_signal = 0
        self._stopped_at = 0.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*_FORWARDED, signal.SIGCHLD):
            # Whoever started the job under nohup meant it.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        # The mask is inherited: a parent that blocks signals must not make the job immortal.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def wait(self, seconds: float | None) -> list[int]:
        """The signals since the last call; waits for the first of them."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        numbers = list(os.read(self._read, 4096)) if ready else []
        stops = [number for number in numbers if number in _STOP]
        if stops and not self.stop_signal:
            self.stop_signal, self._stopped_at = stops[0], time.monotonic()
        return numbers

    def attend(
        self, work: Callable[[], Result], time_limit: Callable[[], float] | None = None
    ) -> Result:
        """What `work` returns or raises; StoppedError as soon as the runner is to stop.

        With a `time_limit`, not before that.

        Abandoned work goes on in its thread until the process ends (by `os._exit`, as Python
        would wait for threads): it must be of a kind that may be cut off at any moment.
        """
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                errors.append(error)
            os.write(self._write, b"\0")

        threading.Thread(target=run, daemon=True).start()
        while not results and not errors:
            left = time_limit() - time.monotonic() if time_limit else 0.0
            if results or errors:  # asking for the limit may have read the word of it
                break
            if self.stop_signal and left <= 0:
                raise StoppedError(self.stop_signal)
            self.wait(left if self.stop_signal else None)
        if errors:
            raise errors[0]
        return results[0]

    def time_limit(self, seconds: float) -> Callable[[], float]:
        """For work that begins now: until when it may take, on the monotonic clock.

        Without end; once the runner is to stop, `seconds` from then on (or from now).
        """
        began = time.monotonic()

        def until() -> float:
            self.wait(0)
            return max(began, self._stopped_at) + seconds if self.stop_signal else math.inf

        return until


def run_command(
    command: str, env: Mapping[str, str], cwd: str, *, signals: SignalWatch, grace_seconds: float
) -> Outcome:
    """Run `command` with a shell, in `cwd`; "" is where the runner was started.

    Its input and output are the runner's own. StoppedError when the runner was to stop before.
    After SIGTERM, SIGINT or SIGQUIT the command's group has `grace_seconds`; what is still there
    when the command has ended by itself gets SIGTERM, and two seconds.
    """
    signals.wait(0)  # but for an order to stop, nobody is there yet whom these could concern
    if signals.stop_signal:
        raise StoppedError(signals.stop_signal)
    started_at = moment()
    guard = _Guard()
    pid = _start(command, env, cwd)
    guard.say(pid)
    with _terminal_of(pid):
        code, ended_at = _attended(pid, signals, grace_seconds)
    guard.say(0)
    return Outcome(128 - code if code < 0 else code, max(0, -code), started_at, ended_at)


def _attended(pid: int, signals: SignalWatch, grace_seconds: float) -> tuple[int, str]:
    """The exit code of the command, -n for signal n, and when it ended; its group is gone then."""
    code: int | None = None
    kill_at = math.inf
    ended_at = ""
    while True:
        if code is None:
            code = _exit_code_of(pid)
            ended_at = moment()
        now = time.monotonic()
        if code is not None:
            if not _group_lives(pid):
                break
            if kill_at == math.inf:
                _signal_group(pid, signal.SIGTERM)
                kill_at = now + min(_LEFTOVER_SECONDS, grace_seconds)
        if now >= kill_at:
            _signal_group(pid, signal.SIGKILL)
        if now >= kill_at + _UNKILLABLE_SECONDS:
            break  # stuck in the kernel; the platform has stronger means
        patience = _POLL_SECONDS if code is not None or now >= kill_at else kill_at - now
        for number in signals.wait(None if patience == math.inf else patience):
            if number in _FORWARDED:
                _signal_group(pid, number)
            if number in _GRACE:
                # A second order does not shorten the time that the first one gave.
                kill_at = min(kill_at, time.monotonic() + grace_seconds)
    return -signal.SIGKILL if code is None else code, ended_at


@contextlib.contextmanager
def _terminal_of(group: int) -> Iterator[None]:
    """Lend the command the terminal, if there is one: only the foreground group may read it."""
    own = os.getpgrp()
    try:
        is_ours = os.tcgetpgrp(0) == own
    except OSError:  # the input is no terminal, or not this session's
        is_ours = False
    if not is_ours:
        yield
        return
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or it could not be taken back
    with contextlib.suppress(OSError):  # the terminal is gone
        os.tcsetpgrp(0, group)
    _signal_group(group, signal.SIGCONT)  # it may have been too early
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, own)


def _start(command: str, env: Mapping[str, str], cwd: str) -> int:
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    try:
        if cwd:
            os.chdir(cwd)
        # Atomic where threads run, and open files that were handed down (the leases of GPUs) go
        # on to the command.
        return os.posix_spawn(
            shell, [shell, "-c", command], env, setpgroup=0, setsigmask=[], setsigdef=_RESET
        )
    except OSError as error:
        where = f" in {cwd}" if cwd else ""
        raise RunnerError(
            f"the command ({len(os.fsencode(command)):,} bytes) cannot be started with "
            f"{shell}{where}: {error.strerror}"
        ) from error


class _Guard:
    """A small shell that outlives a killed runner just long enough to end the command."""

    def __init__(self) -> None:
        read_end, self._write = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        # Blocked, because a platform that signals every process must not end the guard.
        os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _GUARD, "tao-guard"],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_end, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ],
            setpgroup=0,
            setsigmask=_FORWARDED,
        )
        os.close(read_end)
        os.close(null)

    def say(self, number: int) -> None:
        """First the command's group, then anything when there is nothing left to end."""
        with contextlib.suppress(BrokenPipeError):  # somebody ended the guard
            os.write(self._write, b"%d\n" % number)


def _exit_code_of(pid: int) -> int | None:
    """The exit code of a child that has ended, -n for signal n; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _signal_group(group: int, number: int) -> None:
    # Gone, or (a job that uses sudo) another user's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _group_lives(group: int) -> bool:
    """Does a process of this group run? Zombies, which nobody may ever reap, do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if not os.path.isdir("/proc/self"):
        return True
    return any(_group_of(name) == group for name in os.listdir("/proc") if name.isdigit())


def _group_of(pid: str) -> int:
    """The group of a running process; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _parent, group = file.read().rpartition(b")")[2].split()[:3]
    except OSError:
        return 0
    return 0 if state in (b"Z", b"X") else int(group)
