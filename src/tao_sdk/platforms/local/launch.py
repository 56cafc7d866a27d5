"""What the client hands to a supervisor, and the files they share."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import socket

_umask_lock = threading.Lock()


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
    gpu_fraction: float = 1.0
    outer_lease: str = ""
    """The lease of the job in which the client runs: the GPUs are those of it."""
    umask: int = 0o077
    """The caller's, when it submits."""

    def __repr__(self) -> str:
        return f"Launch({self.job_id})"  # the environment is nobody's business

    def dumps(self) -> bytes:
        return json.dumps(self._asdict()).encode() + b"\n"

    @staticmethod
    def is_whole(text: bytes) -> bool:
        """False for a document that was cut off: its client died while sending it."""
        return text.endswith(b"\n")

    @classmethod
    def loads(cls, text: bytes) -> Launch:
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

    @classmethod
    def of(cls, launch: Launch) -> JobFolder:
        return cls(Path(launch.folder))

    @property
    def root(self) -> Path:
        """The folder of all jobs of one LocalSDK: `<root>/jobs/<job id>`."""
        return self.path.parent.parent

    @property
    def root_marker(self) -> Path:
        """Tells a root without this job from one that is not there (an unmounted disk, say), and
        by the name in it from one that was made in its place.
        """
        return self.root / "tao-local-root"

    @property
    def root_name(self) -> str:
        """ "" without a marker."""
        try:
            return self.root_marker.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

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
    """What the marker of its root said then; "" when nobody knows."""


def _read_json(path: Path, if_empty: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The file's content; None without a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    if not text and if_empty is not None:
        return if_empty
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path} does not hold what a supervisor writes")
    return value


def read_all(channel: socket.socket) -> bytes:
    """What the other side sends until its end, expected or not."""
    parts = []
    with contextlib.suppress(ConnectionResetError):  # it ended, and did not read everything
        while part := channel.recv(65536):
            parts.append(part)
    return b"".join(parts)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; on the disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as out:
        out.write(text)
        out.flush()
        os.fsync(descriptor)


def current_umask() -> int:
    """The mask of this process."""
    with contextlib.suppress(FileNotFoundError), open("/proc/self/status", "rb", 0) as status:
        _, found, rest = status.read(256).partition(b"\nUmask:")  # the second line of it
        if found:
            return int(rest.split(None, 1)[0], 8)
    # Elsewhere it can be read only by setting it: private for the moment, should another thread
    # make a file just then.
    with _umask_lock:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask
