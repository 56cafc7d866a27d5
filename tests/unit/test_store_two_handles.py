"""Two handles on one store in one process: the locks of one survive what the other does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tao_sdk import JobStore

OPEN_AND_CLOSE = """
import sys
from tao_sdk import JobStore
with JobStore(sys.argv[1]) as store:
    store.create_job(sys.argv[2], "", "", "")
"""


def test_a_second_handle_does_not_drop_the_locks_of_the_first(tmp_path: Path) -> None:
    """POSIX locks go with any descriptor of the file: a process that leaves would otherwise take
    itself for the last one and delete the log that we still write to.
    """
    path = tmp_path / "jobs.db"
    first = JobStore(path)
    first.create_job("a", "", "", "")
    second = JobStore(path)
    second.create_job("b", "", "", "")
    for name in ("c", "d"):
        subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, str(path), name], check=True)
        assert path.with_name("jobs.db-wal").exists()
        first.create_job(f"{name}-first", "", "", "")
        second.create_job(f"{name}-second", "", "", "")
    first.close()
    second.close()
    with JobStore(path) as again:
        names = {row["job_id"] for row in again.list_jobs()}
    assert names == {"a", "b", "c", "c-first", "c-second", "d", "d-first", "d-second"}
