"""Exclusive access to a store on a network file system.

Neither WAL's shared memory nor byte-range locks can be trusted between hosts, but `link(2)` is
atomic on every NFS server: the process that links its ticket to the lock's name holds the lock. The
ticket names its owner, so a lock left by a killed process of this host is recognised and broken
at once. The owner on another host cannot be examined; its lock is broken only after a long
silence, measured in the file server's time because the hosts' clocks may differ.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import random
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tao_sdk.errors import StoreBusyError, StoreError
from tao_sdk.file_locks import NoFileLocksError
from tao_sdk.job_store.deadline import Deadline
from tao_sdk.job_store.file_gate import FileGate
from tao_sdk.job_store.paths import PRIVATE_FILE
from tao_sdk.process_identity import ProcessIdentity, start_time, this_host

# Far longer than any access to the store takes, and longer than waiters usually wait.
FOREIGN_SILENCE_SECONDS = 300.0

_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.012
_EXAMINE_EVERY = 0.25

_ticket_numbers = itertools.count(1)


class NetworkLock:
    """The lock of one store; every process makes its own object for the same path."""

    def __init__(self, store: Path, foreign_silence: float = FOREIGN_SILENCE_SECONDS) -> None:
        self._lock = store.with_name(f"{store.name}-access")
        self._tickets = store.with_name(f"{store.name}-ticket")
        self._breakers = FileGate(store.with_name(f"{store.name}-breaker"))
        self._breaking = store.with_name(f"{store.name}-breaking")
        self._foreign_silence = foreign_silence

    @contextmanager
    def held(self, deadline: Deadline) -> Iterator[Ticket]:
        """Hold the lock for the body."""
        ticket = Ticket.draw(self._tickets, self._lock)
        try:
            self._acquire(ticket, deadline)
            yield ticket
        finally:
            ticket.give_back()

    def sweep(self, ticket: Ticket) -> None:
        """Remove the tickets of processes that were killed while they waited."""
        now = ticket.server_time()
        for left in self._tickets.parent.iterdir():
            ours = left.name.startswith(f"{self._tickets.name}.") and left != ticket.path
            if ours and self._abandoned(left, now):
                left.unlink(missing_ok=True)

    def _acquire(self, ticket: Ticket, deadline: Deadline) -> None:
        examine_at = 0.0
        while not ticket.link():
            if deadline.passed:
                raise StoreBusyError(
                    f"{self._lock} is held by {_owner_of(self._lock) or 'an unknown process'}; "
                    f"{deadline.advice}, or, if that process is gone, remove the file"
                )
            if time.monotonic() >= examine_at:
                self._break_if_abandoned(ticket, deadline)
                examine_at = time.monotonic() + _EXAMINE_EVERY
            time.sleep(random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE))  # noqa: S311 - jitter

    def _break_if_abandoned(self, ticket: Ticket, deadline: Deadline) -> None:
        if not self._abandoned(self._lock, ticket.server_time()):
            return
        # One breaker at a time, looking again inside: otherwise the second of two could remove
        # the lock that a third process has taken in between.
        try:
            with self._breakers.held(deadline):
                self._break(ticket)
        except NoFileLocksError:
            self._break_without_file_locks(ticket)

    def _break(self, ticket: Ticket) -> None:
        if self._abandoned(self._lock, ticket.server_time()):
            self._lock.unlink(missing_ok=True)
            self.sweep(ticket)

    def _break_without_file_locks(self, ticket: Ticket) -> None:
        """One breaker at a time by a link; if another breaks, ask again at the next examination."""
        turn = Ticket(ticket.path, self._breaking)
        if turn.link():
            try:
                self._break(ticket)
            finally:
                turn.drop_lock()
        elif self._abandoned(self._breaking, ticket.server_time()):
            # Its breaker was killed within the milliseconds that breaking takes.
            self._breaking.unlink(missing_ok=True)

    def _abandoned(self, path: Path, now: float) -> bool:
        owner = _owner_of(path)
        changed = _changed(path)
        if changed is None:
            return False
        # Only the very same machine, boot and pid namespace can be examined. Guessing about others
        # from their names would risk two writers at once.
        if owner is not None and owner.host == this_host() and owner.started:
            return not owner.alive
        return now - changed > self._foreign_silence


class Ticket:
    """A private file naming its owner; linked to the lock's name while the lock is held."""

    def __init__(self, path: Path, lock: Path) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def draw(cls, prefix: Path, lock: Path) -> Ticket:
        owner = _this_process(os.getpid())
        # The host is part of the name because process ids repeat on other hosts.
        host = f"{zlib.crc32(owner.host.encode('utf-8', 'replace')):08x}"
        name = f"{prefix.name}.{host}.{owner.pid}.{next(_ticket_numbers)}"
        ticket = cls(prefix.with_name(name), lock)
        ticket._write()
        return ticket

    def _write(self) -> None:
        try:
            # A killed process that had our id may have left the same name, linked to the lock.
            self.path.unlink(missing_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(str(_this_process(os.getpid())))
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error

    def link(self) -> bool:
        """Try to take the lock."""
        try:
            os.link(self.path, self._lock)
        except FileExistsError:
            # A server that repeats a lost answer says so although our first request succeeded.
            return self.holds_lock
        except FileNotFoundError:
            self._write()  # swept away while we were suspended
            return False
        except OSError as error:
            raise StoreError(
                f"cannot link {self.path} to {self._lock} ({error.strerror}): the job store needs "
                "a file system with hard links; choose another place for the state file"
            ) from error
        return True

    @property
    def holds_lock(self) -> bool:
        try:
            return self.path.samefile(self._lock)
        except OSError as error:
            _only_if_gone(error)
            return False

    def server_time(self) -> float:
        """The file server's clock; also shows the other hosts that we are alive."""
        try:
            os.utime(self.path)
        except OSError as error:
            _only_if_gone(error)
        # Without a ticket (it was swept away) nothing counts as old until it is drawn again.
        return _changed(self.path) or 0.0

    def give_back(self) -> None:
        self.drop_lock()
        self.path.unlink(missing_ok=True)

    def drop_lock(self) -> None:
        if self.holds_lock:
            self._lock.unlink(missing_ok=True)


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of a file for the body, on any file system; `StoreBusyError` in the end."""
    deadline = Deadline.from_settings()
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(FileGate(path).held(deadline))
        except NoFileLocksError:
            held.enter_context(NetworkLock(path).held(deadline))
        yield


def _owner_of(path: Path) -> ProcessIdentity | None:
    try:
        return ProcessIdentity.parse(path.read_text(encoding="utf-8", errors="replace").strip())
    except OSError as error:
        _only_if_gone(error)
        return None


def _changed(path: Path) -> float | None:
    """When the file was made or touched, by the file server's clock; None when it is gone."""
    try:
        return path.stat().st_ctime
    except OSError as error:
        _only_if_gone(error)
        return None


def _only_if_gone(error: OSError) -> None:
    """Raise again, unless the file is simply not there any more."""
    # A network file system says "stale" when another host removed the file under our eyes.
    if error.errno not in (errno.ENOENT, errno.ESTALE):
        raise error


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> ProcessIdentity:
    # By process id, because a forked child is another process.
    return ProcessIdentity(this_host(), pid, start_time(pid) or "")
