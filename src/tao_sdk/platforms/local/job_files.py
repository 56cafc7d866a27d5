"""The files of one local job: its supervisor writes them, clients read them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tao_sdk.untrusted import read_regular

_MAX_BYTES = 4 << 20


class DamagedFileError(Exception):
    """A file of ours does not hold what we wrote."""


class JobFolder(NamedTuple):
    """The files of one job. The supervisor writes them, clients read them."""

    path: Path

    @property
    def root(self) -> Path:
        """The folder of all jobs of one LocalSDK: `<root>/jobs/<job id>`."""
        return self.path.parent.parent

    @property
    def root_marker(self) -> Path:
        """Distinguishes a root without this job from a missing one (an unmounted disk, say), and,
        by the name in it, from one that was made in its place.
        """
        return self.root / "tao-local-root"

    @property
    def root_name(self) -> str:
        """The name in the marker; "" without one."""
        try:
            return self.root_marker.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    @property
    def claim(self) -> Path:
        """Made exactly once: by the supervisor that may start the job, or to forbid that."""
        return self.path / "claim.json"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def evidence(self) -> Path:
        """The end of a failed job's log, its secrets left out."""
        return self.path / "evidence.txt"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    def log(self, rank: int, nodes: int) -> Path:
        return self.path / ("job.log" if nodes == 1 else f"rank-{rank}.log")

    def read_state(self) -> dict[str, Any] | None:
        return _read_json(self.state)

    def read_claim(self) -> dict[str, Any] | None:
        """{} for a claim that the machine did not get onto its disk before it went down."""
        return _read_json(self.claim, if_empty={})


class LocalJob(NamedTuple):
    """A job of this platform, as a client finds it."""

    job_id: str
    folder: JobFolder
    results: Path
    nodes: int
    host: str
    """The machine on which it was submitted."""
    root_name: str = ""
    """The content of its root's marker at that time; "" if unknown."""

    @property
    def log_files(self) -> list[Path]:
        """One per rank."""
        return [self.folder.log(rank, self.nodes) for rank in range(self.nodes)]


def _read_json(path: Path, if_empty: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The file's content; None without a file."""
    data = read_regular(path, _MAX_BYTES)
    if data is None:
        return None
    if not data and if_empty is not None:
        return if_empty
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path} does not hold what a supervisor writes")
    return value


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; on the disk when this returns."""
    path.unlink(missing_ok=True)  # a job may have left a pipe or a link there
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as out:
        out.write(text)
        out.flush()
        os.fsync(descriptor)
