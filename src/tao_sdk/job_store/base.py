"""What the parts of `JobStore` have in common."""

from __future__ import annotations

from tao_sdk.job_store.database import Database


class StoreBase:
    """Holds the database; every public method of a part is one transaction on it."""

    def __init__(self, database: Database) -> None:
        self._database = database
