"""The durable job store.

`JobStore` keeps every job, its state and its history in one SQLite file that survives crashes and
is safe to share between threads, processes and, on a network file system, hosts.
"""

from __future__ import annotations

from tao_sdk.job_store.paths import resolve_sdk_state_paths
from tao_sdk.job_store.rows import Confirmation, NewJob, Row, StatusUpdate, decode
from tao_sdk.job_store.store import JobStore, merge_legacy_database

__all__ = [
    "Confirmation",
    "JobStore",
    "NewJob",
    "Row",
    "StatusUpdate",
    "decode",
    "merge_legacy_database",
    "resolve_sdk_state_paths",
]
