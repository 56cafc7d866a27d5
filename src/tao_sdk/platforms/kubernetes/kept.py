"""What we keep of a job beside the store: that it was cancelled, and logs that outlive its pods.

One folder per store. Files are private; a log is whole or not there, but for one that is being
followed to its end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tao_sdk.atomic_files import write_private

_SUFFIX = ".log"


class Kept:
    """The folder of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mark_canceled(self, job_id: str) -> None:
        self._make(job_id)
        (self._folder / job_id / "canceled").touch(mode=0o600)

    def unmark_canceled(self, job_id: str) -> None:
        (self._folder / job_id / "canceled").unlink(missing_ok=True)

    def canceled(self, job_ids: Iterable[str]) -> set[str]:
        """Those of many that were cancelled: of most jobs nothing is kept, which one look tells."""
        try:
            with os.scandir(self._folder) as entries:
                kept = {entry.name for entry in entries}
        except FileNotFoundError:
            return set()
        return {
            job_id
            for job_id in kept.intersection(job_ids)
            if (self._folder / job_id / "canceled").exists()
        }

    def keep_nodes(self, job_id: str, nodes: Iterable[str]) -> None:
        """Keep where the pods of a job were: what they wrote to a folder of the node is there."""
        if known := sorted(set(filter(None, nodes))):
            self._make(job_id)
            write_private(self._folder / job_id / "nodes", "\n".join(known))

    def nodes(self, job_id: str) -> list[str]:
        path = self._folder / job_id / "nodes"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def logs(self, job_id: str) -> dict[str, Path]:
        """The logs that are kept, by the name of their pod."""
        folder = self._folder / job_id
        return {path.stem: path for path in sorted(folder.glob(f"*{_SUFFIX}"))}

    def keep_log(self, job_id: str, pod: str, pieces: Iterable[bytes]) -> None:
        """Keep the log of a pod, as it comes."""
        self._make(job_id)
        path = self._folder / job_id / f"{pod}{_SUFFIX}"
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        draft = Path(name)
        try:
            with open(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, job_id: str) -> None:
        if (self._folder / job_id).exists():
            shutil.rmtree(self._folder / job_id)

    def _make(self, job_id: str) -> None:
        (self._folder / job_id).mkdir(parents=True, exist_ok=True, mode=0o700)
