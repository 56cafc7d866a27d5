"""What a client hands to the supervisor of one job."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import NamedTuple

from tao_sdk.platforms.local.job_files import JobFolder

_umask_lock = threading.Lock()


class Orders(NamedTuple):
    """One job for one supervisor. Holds secrets: sent through a socket, never written to a file."""

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
    """The lease of the job in which the client runs; the GPUs belong to it."""
    umask: int = 0o077

    def __repr__(self) -> str:
        return f"Orders({self.job_id})"  # without the environment

    @property
    def job_folder(self) -> JobFolder:
        return JobFolder(Path(self.folder))

    def dumps(self) -> bytes:
        """As JSON: no beginning of it is whole, should the client die while sending it."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def loads(cls, text: bytes) -> Orders:
        return cls(**json.loads(text))


class StagedFiles(NamedTuple):
    """What must lie on the disk before the job starts."""

    files: dict[str, str]
    """In the job's own folder, by relative name."""
    folders: list[Path]
    """Outside of it, parents first."""


def current_umask() -> int:
    """The umask of this process."""
    with contextlib.suppress(FileNotFoundError), open("/proc/self/status", "rb", 0) as status:
        _, found, rest = status.read(256).partition(b"\nUmask:")  # the second line of it
        if found:
            return int(rest.split(None, 1)[0], 8)
    # Other systems tell it only to a process that sets it; a private one, in case another thread
    # makes a file at this moment.
    with _umask_lock:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask
