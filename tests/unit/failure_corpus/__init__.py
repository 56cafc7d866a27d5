"""Logs of failed jobs, each with the cause that is to be found in it.

Most of those called `real_*` were made by failing on purpose: PyTorch 2.15 (the GPU ones 2.11 on
an H200), Lightning, Hydra, boto3, huggingface_hub and the shell. `near_miss` holds logs with
tempting words and another cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tao_sdk.failures import Evidence

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One log and what is to be found in it."""

    name: str
    evidence: Evidence
    cause: str
    err_class: str
    rank: int | None
    near_miss: str


def read_cases() -> list[Case]:
    """Every case, in a stable order."""
    return [_read(path) for path in sorted(FOLDER.glob("*/*.txt"))]


def _read(path: Path) -> Case:
    head, rule, log = path.read_text(encoding="utf-8").partition("---\n")
    assert rule, f"{path} has no line of dashes after its header"
    header = dict(line.split(": ", 1) for line in head.splitlines())
    code, rank = header.pop("exit", None), header.pop("rank", None)
    case = Case(
        name=f"{path.parent.name}/{path.stem}",
        evidence=Evidence(
            exit_code=None if code is None else int(code),
            reason=header.pop("reason", ""),
            log_tail=log,
        ),
        cause=header.pop("cause"),
        err_class=header.pop("class"),
        rank=None if rank is None else int(rank),
        near_miss=header.pop("near-miss", ""),
    )
    assert not header, f"{path}: unknown header {sorted(header)}"
    return case
