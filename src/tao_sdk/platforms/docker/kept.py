"""What we keep of a job beside the store: that it was cancelled, and what outlives its container.

One folder per store. Files are private and written whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tao_sdk.atomic_files import write_private_json


@dataclass(frozen=True)
class Outcome:
    """How a container ended: what the daemon knew before it was removed."""

    exit_code: int | None
    started_at: str
    ended_at: str
    oom_killed: bool = False
    error: str = ""
    log_tail: str = ""
    """The end of the log, secrets left out."""


class Kept:
    """The folder of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log(self, job_id: str) -> Path:
        """The log as the daemon sent it, once the container is gone."""
        return self._folder / job_id / "log.frames"

    def mark_canceled(self, job_id: str) -> None:
        self._make(job_id)
        (self._folder / job_id / "canceled").touch(mode=0o600)

    def unmark_canceled(self, job_id: str) -> None:
        (self._folder / job_id / "canceled").unlink(missing_ok=True)

    def is_canceled(self, job_id: str) -> bool:
        return (self._folder / job_id / "canceled").exists()

    def keep(self, job_id: str, outcome: Outcome, log: Iterable[bytes]) -> None:
        """Keep log and outcome, the outcome last: it says that both are whole."""
        self._make(job_id)
        path = self.log(job_id)
        # Several watchers may be at it, threads of one process among them: each has its own draft.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        draft = Path(name)
        try:
            with open(descriptor, "wb") as file:
                for piece in log:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if self.outcome(job_id) is None:
                draft.replace(path)
                write_private_json(self._outcome(job_id), asdict(outcome))
        finally:
            draft.unlink(missing_ok=True)

    def outcome(self, job_id: str) -> Outcome | None:
        try:
            return Outcome(**json.loads(self._outcome(job_id).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def remove(self, job_id: str) -> None:
        if (self._folder / job_id).exists():
            shutil.rmtree(self._folder / job_id)

    def _outcome(self, job_id: str) -> Path:
        return self._folder / job_id / "outcome.json"

    def _make(self, job_id: str) -> None:
        (self._folder / job_id).mkdir(parents=True, exist_ok=True, mode=0o700)
