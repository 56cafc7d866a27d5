"""What we keep of a job beside the store: that it was cancelled, or kept from starting.

One folder per store. Files are private and empty: their names say it all.
"""

from __future__ import annotations

import shutil
from pathlib import Path


class Kept:
    """The folder of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mark_canceled(self, job_id: str) -> None:
        self._mark(job_id, "canceled")

    def unmark_canceled(self, job_id: str) -> None:
        (self._folder / job_id / "canceled").unlink(missing_ok=True)

    def is_canceled(self, job_id: str) -> bool:
        return (self._folder / job_id / "canceled").exists()

    def mark_fenced(self, job_id: str) -> None:
        """Its secrets are taken away, so that it cannot start any more."""
        self._mark(job_id, "fenced")

    def is_fenced(self, job_id: str) -> bool:
        return (self._folder / job_id / "fenced").exists()

    def mark_unwanted(self, job_id: str) -> None:
        """It was declared never submitted: if it turns up after all, it goes."""
        self._mark(job_id, "unwanted")

    def is_unwanted(self, job_id: str) -> bool:
        return bool(job_id) and (self._folder / job_id / "unwanted").exists()

    def remove(self, job_id: str) -> None:
        if (self._folder / job_id).exists():
            shutil.rmtree(self._folder / job_id)

    def _mark(self, job_id: str, what: str) -> None:
        (self._folder / job_id).mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._folder / job_id / what).touch(mode=0o600)
