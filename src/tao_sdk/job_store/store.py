"""The durable job store: every job of every platform, its state and its history, in one file."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tao_sdk.errors import ForeignStoreError
from tao_sdk.job_store.database import Database
from tao_sdk.job_store.leases import Leases
from tao_sdk.job_store.lineage import Lineage
from tao_sdk.job_store.observations import Observations
from tao_sdk.job_store.paths import MEMORY, address_of, state_paths
from tao_sdk.job_store.records import Records
from tao_sdk.job_store.reference import References, log
from tao_sdk.job_store.retention import Retention
from tao_sdk.job_store.submissions import Submissions

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory


class JobStore(Records, Submissions, Observations, Retention, Lineage, References, Leases):
    """Jobs in a SQLite file that any number of threads, processes and hosts may share.

    The file is opened, and created if need be, by the first call that needs it. `db_path` may be
    ":memory:"; without one it is `jobs.db` in the state folder.
    """

    def __init__(self, db_path: str | os.PathLike[str] | None = None) -> None:
        given = state_paths().database if db_path is None else os.fspath(db_path)
        path = None if given == MEMORY else Path(given)
        super().__init__(Database(path, private_folder=db_path is None))
        self._scratch: TemporaryDirectory[str] | None = None

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
        return MEMORY if self._database.path is None else str(self._database.path)

    @property
    def address(self) -> str:
        """The store in the address of a job; "" for the one that every process finds by default."""
        return address_of(self.path)

    def folder(self, name: str) -> Path:
        """Where a platform keeps files that belong to jobs of this store; not created here.

        It stands beside the database. That of a store in memory is private and ends with the store.
        """
        if self._database.path is not None:
            return self._database.path.with_name(f"{self._database.path.stem}.{name}")
        if self._scratch is None:
            import tempfile  # few stores are in memory

            self._scratch = tempfile.TemporaryDirectory(prefix="tao-sdk-")
        return Path(self._scratch.name) / name

    @property
    def session_file(self) -> str:
        """Where a monitor of this store writes which jobs it watches."""
        if self._database.path is None:
            return str(self.folder("tao_session_state.json"))
        return state_paths(self.path).json

    @property
    def mode(self) -> str:
        """How the store is locked: "wal" (local disk), "network" or "memory"."""
        return self._database.mode

    def close(self) -> None:
        """Let go of the file. The store cannot be used afterwards."""
        self._database.close()
        if self._scratch is not None:
            self._scratch.cleanup()

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
    """Copy the jobs of the reference's database `source` into `db`. Returns how many."""
    if isinstance(db, JobStore):
        return db.import_reference(source)
    with JobStore(db) as store:
        return store.import_reference(source)
