"""Leases: work that one process at a time does for all that use the store.

A lease is a row that names its owner. When the owner has ended, however it ended, the next process
that asks takes the lease over at once. Only an owner that cannot be examined from here (a process
of another machine or container) keeps its lease until it runs out.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from tao_sdk.errors import StoreError
from tao_sdk.job_store.base import StoreBase
from tao_sdk.job_store.rows import Row
from tao_sdk.job_store.statements import select_all
from tao_sdk.process_identity import Fate, ProcessIdentity

# Leases that threads of this process hold: (process id, store, name). In the store, the threads of
# one process have the same name. A fork copies this set; the process id tells the copy apart.
_held_here: set[tuple[int, str, str]] = set()
_held_here_lock = threading.Lock()


class Leases(StoreBase):
    """Exclusive rights to do something, by name."""

    @contextlib.contextmanager
    def lease(self, name: str, seconds: float) -> Iterator[bool]:
        """Hold the lease `name` for the body: True if it is ours, False if another holds it.

        Another is any living process, and any other thread of this one. A process that takes
        longer than `seconds`, or was stopped, loses it, so the body must be safe to race.
        """
        with self._alone_in_this_process(name) as alone:
            mine = alone and self._take_lease(name, seconds)
            try:
                yield mine
            except BaseException:
                if mine:
                    # The error of the body says more. What stays in the store is ours to take.
                    with contextlib.suppress(StoreError):
                        self._release_lease(name)
                raise
            if mine:
                self._release_lease(name)

    def lease_owner(self, name: str) -> str:
        """The process that holds a lease, as text; "" while it is free."""
        with self._database.read() as connection:
            found = _find(connection, name)
        if found is None or (self._key(name) not in _held_here and _is_abandoned(found)):
            return ""
        return str(found["owner"])

    @contextlib.contextmanager
    def _alone_in_this_process(self, name: str) -> Iterator[bool]:
        key = self._key(name)
        with _held_here_lock:
            alone = key not in _held_here
            _held_here.add(key)
        try:
            yield alone
        finally:
            if alone:
                _held_here.discard(key)

    def _key(self, name: str) -> tuple[int, str, str]:
        return (os.getpid(), str(self._database.path or id(self._database)), name)

    def _take_lease(self, name: str, seconds: float) -> bool:
        """Called by one thread of this process at a time."""
        # Most calls come too late; those keep no writer waiting.
        with self._database.read() as connection:
            if not _is_free(connection, name):
                return False
        until = datetime.now(timezone.utc) + timedelta(seconds=seconds)
        with self._database.write(durable=False) as connection:
            if not _is_free(connection, name):
                return False
            connection.execute(
                "INSERT OR REPLACE INTO leases (name, owner, until) VALUES (?, ?, ?)",
                (name, str(ProcessIdentity.current()), until.isoformat()),
            )
        return True

    def _release_lease(self, name: str) -> None:
        with self._database.write(durable=False) as connection:
            connection.execute(
                "DELETE FROM leases WHERE name = ? AND owner = ?",
                (name, str(ProcessIdentity.current())),
            )


def _is_free(connection: sqlite3.Connection, name: str) -> bool:
    found = _find(connection, name)
    return found is None or _is_abandoned(found)


def _find(connection: sqlite3.Connection, name: str) -> Row | None:
    found = select_all(connection, "SELECT * FROM leases WHERE name = ?", (name,))
    return found[0] if found else None


def _is_abandoned(lease: Row) -> bool:
    owner = ProcessIdentity.parse(lease["owner"])
    if owner == ProcessIdentity.current():
        return True  # no thread of ours holds it, so an earlier release failed
    if owner is not None and owner.fate is Fate.GONE:
        return True
    try:
        return datetime.now(timezone.utc) > datetime.fromisoformat(lease["until"])
    except (ValueError, TypeError):  # a damaged row
        return True
