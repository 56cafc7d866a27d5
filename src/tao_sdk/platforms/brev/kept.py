"""What we keep of a job whose instance goes: how it ended, and its log.

One folder per store. Files are private; the end is written last and says that the log is whole.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tao_sdk.atomic_files import write_private_json
from tao_sdk.platforms.brev.states import End


class Kept:
    """The folder of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def end(self, job_id: str) -> End | None:
        """How it ended; None where nothing was kept."""
        try:
            return End(**json.loads(self._end(job_id).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def log(self, job_id: str) -> Path:
        return self._folder / job_id / "log"

    def keep(self, job_id: str, end: End, log: Iterable[bytes]) -> None:
        folder = self._folder / job_id
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Several watchers may be at it: each has its own draft.
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".writing-")
        draft = Path(name)
        try:
            with open(descriptor, "wb") as file:
                for piece in log:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if self.end(job_id) is None:
                draft.replace(self.log(job_id))
                write_private_json(self._end(job_id), asdict(end))
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, job_id: str) -> None:
        if (self._folder / job_id).exists():
            shutil.rmtree(self._folder / job_id)

    def _end(self, job_id: str) -> Path:
        return self._folder / job_id / "end.json"
