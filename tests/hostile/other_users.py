"""Processes of other users, which do what a test tells them; only root can start them."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two other users")
ANSWER_SECONDS = 120  # also for a process that a busy machine lets wait


class User:
    """A forked process of another user."""

    def __init__(self, number: int) -> None:
        self._channel, theirs = multiprocessing.connection.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setgroups([])
                os.setgid(number)
                os.setuid(number)
                os.umask(0o077)
                _obey(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def do(self, act: Callable[..., Any], *arguments: object) -> Any:
        """The result; an exception of the process is raised here."""
        self._channel.send((act, arguments))
        assert self._channel.poll(ANSWER_SECONDS), f"{act.__name__} hangs"
        worked, answer = self._channel.recv()
        if not worked:
            raise answer
        return answer

    def end(self) -> None:
        # Later processes have copies of this end, so closing it would not be noticed.
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._channel.close()


def _obey(channel: multiprocessing.connection.Connection) -> None:
    while True:
        act, arguments = channel.recv()
        try:
            answer = (True, act(*arguments))
        except Exception as error:  # noqa: BLE001 - raised again in the test
            answer = (False, error)
        channel.send(answer)


def memory_mib() -> int:
    """The most that this process had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@contextlib.contextmanager
def users(*numbers: int) -> Iterator[list[User]]:
    made = [User(number) for number in numbers]
    try:
        yield made
    finally:
        for user in made:
            user.end()


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """A folder like /tmp: every user can reach it and put something into it."""
    folder = Path(tempfile.mkdtemp(prefix="tao-public-", dir="/tmp"))
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
