"""Files about jobs that a platform keeps beside the store: marks, logs, outcomes.

One folder per store, with one folder per job. Files are private, and complete or absent.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from tao_sdk.atomic_files import write_private_json
from tao_sdk.platforms.common.dataclass_json import from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Outcome = TypeVar("_Outcome", bound="DataclassInstance")

CANCELED = "canceled"


class JobFiles:
    """The folder of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, job_id: str, name: str) -> Path:
        return self._folder / job_id / name

    def mark(self, job_id: str, name: str) -> None:
        """Set one bit: an empty file of this name."""
        self._make(job_id)
        self.path(job_id, name).touch(mode=0o600)

    def unmark(self, job_id: str, name: str) -> None:
        self.path(job_id, name).unlink(missing_ok=True)

    def is_marked(self, job_id: str, name: str) -> bool:
        return bool(job_id) and self.path(job_id, name).exists()

    def marked(self, job_ids: Iterable[str], name: str) -> set[str]:
        """The marked ones of many jobs. Lists the folder once, because most jobs have no files."""
        try:
            with os.scandir(self._folder) as entries:
                kept = {entry.name for entry in entries}
        except FileNotFoundError:
            return set()
        return {job_id for job_id in kept.intersection(job_ids) if self.is_marked(job_id, name)}

    def named(self, job_id: str, suffix: str) -> dict[str, Path]:
        """The job's files with this suffix, by their name without it."""
        return {path.stem: path for path in sorted((self._folder / job_id).glob(f"*{suffix}"))}

    def write(
        self,
        job_id: str,
        name: str,
        pieces: Iterable[bytes],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Write a file from `pieces`; True if it was kept.

        Several processes and threads may write the same file at once: each writes a draft of its
        own, and renames it if `is_wanted` still holds afterwards.
        """
        self._make(job_id)
        path = self.path(job_id, name)
        descriptor, drafted = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        draft = Path(drafted)
        try:
            with open(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if wanted := is_wanted():
                draft.replace(path)
            return wanted
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, job_id: str) -> None:
        """Remove all files of a job."""
        if (self._folder / job_id).exists():
            shutil.rmtree(self._folder / job_id)

    def _make(self, job_id: str) -> None:
        (self._folder / job_id).mkdir(parents=True, exist_ok=True, mode=0o700)


class OutcomeFiles(JobFiles, Generic[_Outcome]):
    """Job files with the log and the outcome, for jobs that their platform has forgotten."""

    def __init__(
        self, folder: Path, outcome: type[_Outcome], *, outcome_name: str, log_name: str
    ) -> None:
        super().__init__(folder)
        self._outcome = outcome
        self._outcome_name = outcome_name
        self._log_name = log_name

    def log(self, job_id: str) -> Path:
        return self.path(job_id, self._log_name)

    def keep(self, job_id: str, outcome: _Outcome, log: Iterable[bytes]) -> None:
        """Write log and outcome; the outcome last, because it shows that both are complete.

        An outcome that is already there stays.
        """
        if self.write(job_id, self._log_name, log, lambda: self.outcome(job_id) is None):
            write_private_json(self.path(job_id, self._outcome_name), asdict(outcome))

    def outcome(self, job_id: str) -> _Outcome | None:
        """How the job ended; None if no outcome was kept. Raises `DamagedRowError`."""
        try:
            text = self.path(job_id, self._outcome_name).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return None
        return from_json(self._outcome, text, self.path(job_id, self._outcome_name))
