"""Transactions on the store's database, safe for threads, processes and forks.

A transaction is short and whole: `with database.write() as connection:` commits at the end of the
body, or leaves no trace. Whatever SQLite complains about becomes an error of ours that says what
to do.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tao_sdk.errors import StoreBusyError, StoreError, ValidationError
from tao_sdk.job_store.access import Access, LocalAccess, MemoryAccess, NetworkAccess
from tao_sdk.job_store.deadline import Deadline
from tao_sdk.job_store.paths import ensure_folder, harden_state_folder
from tao_sdk.job_store.store_file import choose_mode, damaged

_DAMAGE = ("malformed", "not a database", "unsupported file format", "no such table")
_CONTENTION = ("locked", "locking protocol")


class Database:
    """One database, opened at its first use. `path` None means memory."""

    def __init__(self, path: Path | None, *, private_folder: bool = False) -> None:
        # Absolute and free of links, so that a change of directory or another name for the same
        # file does not lead to other lock files.
        self.path = None if path is None else path.resolve()
        self._private_folder = path.absolute().parent if path and private_folder else None
        self._lock = threading.RLock()
        self._access: Access | None = None
        self._closed = False
        self._in_transaction = False
        with _registry:
            _databases.add(self)

    @property
    def mode(self) -> str:
        """How the database is locked: "wal", "network" or "memory"."""
        deadline = Deadline.from_settings()
        with self._lock, self._sqlite_errors_explained(deadline):
            return self._opened(deadline).mode

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """A consistent view for the length of the body."""
        return self._transaction(writing=False)

    def write(self, *, durable: bool = True) -> AbstractContextManager[sqlite3.Connection]:
        """The body's changes, all of them or none; on the disk when this returns.

        Without `durable` they are as safe from the end of any process, but a power cut soon after
        may undo them: for what can be found out again.
        """
        return self._transaction(writing=True, durable=durable)

    def close(self) -> None:
        """Let go of the file for good."""
        with self._lock:
            self._disconnect()
            self._closed = True

    @contextmanager
    def _transaction(self, *, writing: bool, durable: bool = False) -> Iterator[sqlite3.Connection]:
        deadline = Deadline.from_settings()
        with self._lock, self._not_nested(), self._sqlite_errors_explained(deadline):
            access = self._opened(deadline)
            with access.connection(deadline, writing=writing) as connection:
                try:
                    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                    yield connection
                    if writing:
                        access.before_commit()
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        if durable:
            access.reach_disk()  # with no lock held: others go on meanwhile

    @contextmanager
    def _not_nested(self) -> Iterator[None]:
        # The thread's own lock lets it in again; the lock on the file would not.
        if self._in_transaction:
            raise StoreError(
                "the job store was called from inside one of its own transactions "
                "(a signal handler?): do it outside"
            )
        try:
            # Inside: an interrupt between the two would lock this process out for good.
            self._in_transaction = True
            yield
        finally:
            self._in_transaction = False

    def _opened(self, deadline: Deadline) -> Access:
        if self._closed:
            raise StoreError(f"the job store {self.path or ':memory:'} was closed: make a new one")
        if self._access is None:
            self._access = self._open(deadline)
        return self._access

    def _open(self, deadline: Deadline) -> Access:
        if self.path is None:
            return MemoryAccess()
        if self._private_folder is not None:
            harden_state_folder(self._private_folder)
        else:
            ensure_folder(self.path.parent)
        if choose_mode(self.path) == "wal":
            return LocalAccess(self.path, deadline)
        return NetworkAccess(self.path, deadline)

    def _disconnect(self) -> None:
        if self._access is not None:
            self._access.close()
            self._access = None

    @contextmanager
    def _sqlite_errors_explained(self, deadline: Deadline) -> Iterator[None]:
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a mistake of ours: the traceback is worth more than a sentence
        except UnicodeEncodeError as error:
            raise ValidationError(f"{error.object!a} is not valid UTF-8") from error
        except UnicodeDecodeError as error:  # SQLite quotes its damaged schema
            raise damaged(self.path or Path(":memory:"), "its schema is not text") from error
        except sqlite3.DatabaseError as error:
            path, text = self.path or Path(":memory:"), str(error)
            if any(word in text for word in _DAMAGE):
                raise damaged(path, text) from error
            if any(word in text for word in _CONTENTION):
                raise StoreBusyError(f"{path} is busy ({text}); {deadline.advice}") from error
            raise StoreError(f"the job store {path} cannot be used: {text}") from error

    # SQLite's connections must not cross a fork: its per-process bookkeeping would make the child
    # believe that it holds the parent's file locks. So they are closed before, and both sides
    # open again when they next need one. Taking the lock waits for other threads' transactions.

    def _before_fork(self) -> None:
        self._lock.acquire()
        if self._access is not None and not self._access.survives_fork:
            self._disconnect()

    def _after_fork_in_parent(self) -> None:
        self._lock.release()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.RLock()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_registry = threading.Lock()
_stopped: list[Database] = []


def _stop_for_fork() -> None:
    _registry.acquire()
    for database in _databases:
        database._before_fork()
        _stopped.append(database)


def _go_on_in_parent() -> None:
    while _stopped:
        _stopped.pop()._after_fork_in_parent()
    _registry.release()


def _go_on_in_child() -> None:
    while _stopped:
        _stopped.pop()._after_fork_in_child()
    _registry.release()


os.register_at_fork(
    before=_stop_for_fork,
    after_in_parent=_go_on_in_parent,
    after_in_child=_go_on_in_child,
)
