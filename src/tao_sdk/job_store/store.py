"""The durable job store: every job of every platform, its state and its history, in one file."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from tao_sdk.errors import ForeignStoreError
from tao_sdk.job_store.database import Database
from tao_sdk.job_store.leases import Leases
from tao_sdk.job_store.lineage import Lineage
from tao_sdk.job_store.observations import Observations
from tao_sdk.job_store.paths import state_paths
from tao_sdk.job_store.records import Records
from tao_sdk.job_store.reference import References, log
from tao_sdk.job_store.retention import Retention
from tao_sdk.job_store.submissions import Submissions

_MEMORY = ":memory:"


class JobStore(Records, Submissions, Observations, Retention, Lineage, References, Leases):
    """Jobs in a SQLite file that any number of threads, processes and hosts may share.

    The file is opened, and created if need be, by the first call that needs it. `db_path` may be
    ":memory:"; without one it is `jobs.db` in the state folder.
    """

    def __init__(self, db_path: str | os.PathLike[str] | None = None) -> None:
        given = state_paths().database if db_path is None else os.fspath(db_path)
        path = None if given == _MEMORY else Path(given)
        super().__init__(Database(path, private_folder=db_path is None))

    @classmethod
    def for_state_file(cls, state_file: str | os.PathLike[str] | None = None) -> JobStore:
        """The store that belongs to a `state_file`, with the jobs of a reference database beside
        it taken over once.
        """
        paths = state_paths(state_file)
        store = cls(None if state_file is None else paths.database)
        if Path(paths.reference).is_file():
            try:
                store.import_reference(paths.reference, once=True)
            except ForeignStoreError as error:
                # A file that is not ours must not stand in the way of our own jobs.
                log().warning("%s", error)
        return store

    @property
    def path(self) -> str:
        """The database file, or ":memory:"."""
        return _MEMORY if self._database.path is None else str(self._database.path)

    @property
    def mode(self) -> str:
        """How the store is locked: "wal" (local disk), "network" or "memory"."""
        return self._database.mode

    def close(self) -> None:
        """Let go of the file. The store cannot be used afterwards."""
        self._database.close()

    def __enter__(self) -> JobStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def merge_legacy_database(
    source: str | os.PathLike[str], db: str | os.PathLike[str] | JobStore
) -> int:
    """Take over the jobs of the reference's database `source` into the store `db`. How many."""
    if isinstance(db, JobStore):
        return db.import_reference(source)
    with JobStore(db) as store:
        return store.import_reference(source)
