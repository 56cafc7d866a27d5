"""One writer's part in a crowd of writers."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

Write = Callable[[str], object]


def write_jobs(name: str, count: int, writes: Sequence[Write]) -> dict[str, Any]:
    """All writes of each job, in order; a write that fails is counted and not repeated."""
    slowest, failed = 0.0, 0
    for number in range(count):
        for write in writes:
            began = time.perf_counter()
            try:
                write(f"{name}-{number}")
            except sqlite3.Error:
                failed += 1
            slowest = max(slowest, time.perf_counter() - began)
    return {"slowest": slowest, "failed": failed}
