"""The durable job store.

`JobStore` keeps every job, its state and its history in one SQLite file that survives crashes and
is safe to share between threads, processes and, on a network file system, hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tao_sdk.job_store.paths import resolve_sdk_state_paths
from tao_sdk.job_store.rows import Confirmation, NewJob, Row, StatusUpdate, decode, decode_strictly

if TYPE_CHECKING:
    from tao_sdk.job_store.store import JobStore, merge_legacy_database

__all__ = [
    "Confirmation",
    "JobStore",
    "NewJob",
    "Row",
    "StatusUpdate",
    "decode",
    "decode_strictly",
    "merge_legacy_database",
    "resolve_sdk_state_paths",
]


def __getattr__(name: str) -> Any:
    # Lazy, because planning and looking at rows need neither SQLite nor the store.
    if name in ("JobStore", "merge_legacy_database"):
        from tao_sdk.job_store import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
