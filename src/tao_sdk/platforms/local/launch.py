"""What the client hands to a supervisor, and the files they share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple


class DamagedFileError(Exception):
    """A file of ours does not hold what we wrote."""


class Launch(NamedTuple):
    """One job for one supervisor. Holds secrets: it travels through a pipe, never a file."""

    job_id: str
    token: str
    folder: str
    cwd: str
    argv: list[str]
    env: dict[str, str]
    secret_names: list[str]
    nodes: int
    gpus_per_node: int
    gpu_indexes: list[str]
    gpu_keys: list[str]
    lease_folder: str
    when_busy: str
    grace_seconds: float

    def __repr__(self) -> str:
        return f"Launch({self.job_id})"  # the environment is nobody's business

    def dumps(self) -> bytes:
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def loads(cls, text: bytes) -> Launch:
        if not text.endswith(b"\n"):
            raise ValueError("the launch document was cut off: its client died while sending it")
        return cls(**json.loads(text))


class Staged(NamedTuple):
    """What must lie on the disk before the job starts."""

    files: dict[str, str]
    """In the job's own folder, by relative name."""
    folders: list[Path]
    """Outside of it, parents first."""


class JobFolder(NamedTuple):
    """The files of one job. The supervisor writes them, clients read them."""

    path: Path

    @property
    def root(self) -> Path:
        """The folder of all jobs of one LocalSDK: `<root>/jobs/<job id>`."""
        return self.path.parent.parent

    @property
    def root_marker(self) -> Path:
        """Tells a root without this job from one that is not there (an unmounted disk, say)."""
        return self.root / "tao-local-root"

    @property
    def claim(self) -> Path:
        """Made exactly once, by the supervisor that may start the job (or to forbid that)."""
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
        return _read_json(self.claim)


class LocalJob(NamedTuple):
    """A job of this platform, as a client finds it."""

    job_id: str
    folder: JobFolder
    results: Path
    nodes: int
    host: str
    """The machine on which it was submitted."""


def _read_json(path: Path) -> dict[str, Any] | None:
    """The file's content; None without a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path} does not hold what a supervisor writes")
    return value


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; on the disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as out:
        out.write(text)
        out.flush()
        os.fsync(descriptor)
