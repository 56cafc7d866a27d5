"""What the client hands to a supervisor, and the files they share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class Launch(NamedTuple):
    """One job for one supervisor. Holds secrets: it travels through a pipe, never a file."""

    job_id: str
    token: str
    folder: str
    cwd: str
    argv: list[str]
    env: dict[str, str]
    nodes: int
    gpus_per_node: int
    gpu_indexes: list[str]
    gpu_keys: list[str]
    lease_folder: str
    when_busy: str
    grace_seconds: float

    def dumps(self) -> bytes:
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def loads(cls, text: bytes) -> Launch:
        if not text.endswith(b"\n"):
            raise ValueError("the launch document was cut off: its client died while sending it")
        return cls(**json.loads(text))


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
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    def log(self, rank: int, nodes: int) -> Path:
        return self.path / ("job.log" if nodes == 1 else f"rank-{rank}.log")

    def read_state(self) -> dict[str, Any] | None:
        return _read_json(self.state)

    def read_claim(self) -> dict[str, Any] | None:
        return _read_json(self.claim)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    value = json.loads(text)
    return value if isinstance(value, dict) else None
