"""The client's side of its spawner, the process that forks supervisors for it."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import tao_sdk
from tao_sdk.errors import BackendUnreachableError

_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from tao_sdk.platforms.local.spawner_process import main; main()"
)
_PATIENCE_SECONDS = 5.0
# A supervisor answers in milliseconds, on a busy machine in some seconds.
_ANSWER_SECONDS = 60.0


class Spawner:
    """Hands orders to supervisors that a spawner process forks; it starts with the first.

    Safe for threads: several submissions may run at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._called: socket.socket | None = None
        _spawners.add(self)

    def make_ready(self) -> None:
        """Give the next supervisor its channel, where it waits for orders.

        This takes time, most of all before the first job, and the caller has other work meanwhile.
        """
        with self._lock:
            self._current()
            if self._called is not None and _has_ended(self._called):
                self._called.close()
                self._called = None
            if self._called is None:
                self._called = self._call()

    def start(self, orders: bytes) -> bytes:
        """Send these orders to a supervisor; its answer, b"" if it gave none.

        Raises `BackendUnreachableError` when nothing answers. A supervisor may then have the
        orders, and may have claimed the job or do so later.
        """
        with self._lock:
            channel, self._called = self._called or self._call(), None
        channel.settimeout(_ANSWER_SECONDS)
        try:
            with channel:
                # It may end before it has read everything, with an answer that says why.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    _send(channel, orders)
                return _receive(channel)
        except TimeoutError as error:
            with self._lock:
                self._drop()  # the next job gets another one
            raise BackendUnreachableError(
                f"the process that starts jobs did not answer within {_ANSWER_SECONDS:g} s: it, or "
                "the supervisor that it started, was stopped, or the machine is overloaded"
            ) from error

    def last_words(self) -> str:
        """What the process printed when it failed."""
        with self._lock:
            return "" if self._process is None else self._process.last_words()

    def close(self) -> None:
        """End the process. Supervisors live on; the next job starts another spawner."""
        with self._lock:
            self._drop()

    def _call(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        # If this fails, the other end of the channel is closed, and `start` notices.
        with theirs, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._hand_over(theirs)
        return ours

    def _hand_over(self, channel: socket.socket) -> None:
        try:
            self._current().send(channel)
        except (BrokenPipeError, ConnectionResetError):
            # Killed since the last job, before it had anything of this one.
            self._drop()
            self._current().send(channel)

    def _current(self) -> _Process:
        if self._process is None or self._process.inherited != _inherited_attributes():
            self._drop()
            self._process = _Process()
        return self._process

    def _drop(self) -> None:
        if self._called is not None:
            self._called.close()
            self._called = None
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """One spawner process, of the process that started it."""

    def __init__(self) -> None:
        self.inherited = _inherited_attributes()
        self._client = os.getpid()
        self._control, theirs = socket.socketpair()
        package_parent = str(Path(tao_sdk.__file__).parent.parent)
        try:
            self._process = subprocess.Popen(
                # -E -s -S: the environment of jobs must not affect its start.
                [sys.executable, "-E", "-s", "-S", "-c", _START, package_parent],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()

    def send(self, channel: socket.socket) -> None:
        socket.send_fds(self._control, [b"."], [channel.fileno()])

    def last_words(self) -> str:
        errors = self._process.stderr
        if errors is None:
            return ""
        os.set_blocking(errors.fileno(), False)  # it may live and print nothing
        return (errors.read() or b"").decode(errors="replace").strip()

    def end(self) -> None:
        """Close its control socket, which ends it. In a forked child: let go of the copy."""
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        if os.getpid() != self._client:
            self._process.returncode = 0  # the parent's child: not ours to wait for, or to kill
            return
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:  # stopped, for example; killing it loses nothing
            self._process.kill()
            self._process.wait()


def _inherited_attributes() -> tuple[object, ...]:
    """What a job inherits from this process by way of its spawner: user, groups and limits.

    A client that has changed any of them (given up privileges, say) needs another spawner.
    Namespaces and control groups, which cannot be compared as cheaply, stay those of the first job.
    """
    return (
        (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()),
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        [resource.getrlimit(limit) for limit in _LIMITS],
    )


_LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]


def _has_ended(channel: socket.socket) -> bool:
    """Whether the supervisor at this channel was killed: without orders it sends nothing, so only
    the end can be read.
    """
    poll = select.poll()  # not select, which knows no descriptors above 1,023
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def _send(channel: socket.socket, orders: bytes) -> None:
    channel.sendall(orders)
    channel.shutdown(socket.SHUT_WR)


def _receive(channel: socket.socket) -> bytes:
    """The answer, which is one line. The end of the channel is not awaited: a child that another
    thread forked meanwhile may hold it open.
    """
    parts = []
    with contextlib.suppress(ConnectionResetError):  # it ended, and did not read everything
        while part := channel.recv(65536):
            parts.append(part)
            if part.endswith(b"\n"):
                break
    return b"".join(parts)


_spawners: weakref.WeakSet[Spawner] = weakref.WeakSet()


def _reset_in_child() -> None:
    for spawner in list(_spawners):
        spawner._lock = threading.Lock()  # another thread of the parent may have held it
        spawner._drop()


os.register_at_fork(after_in_child=_reset_in_child)
