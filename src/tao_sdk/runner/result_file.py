"""The rich result record: what every platform's own record says, and what the runner knows.

`tao_result.json` (other ranks: `tao_result.<rank>.json`) lies beside the results, and at their
remote destination where there is one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .report import moment

if TYPE_CHECKING:  # not needed by a job that delivers nothing
    from .deliver import DeliveryResult
    from .process import Outcome
    from .report import Stage

_LISTED = 100


def build_record(
    *,
    job_id: str,
    rank: int,
    attempt: int,
    exit_code: int,
    started_at: str,
    outcome: Outcome | None = None,
    staged: Stage | None = None,
    delivered: DeliveryResult | None = None,
    resumed_from: str = "",
    error: str = "",
    warnings: Sequence[str] = (),
    seconds: Mapping[str, float] = {},
) -> dict[str, Any]:
    """The record of one rank. `outcome` is the command's own, None when it was never started.

    `seconds` says how long each stage took; `error` what stopped the runner itself.
    """
    record: dict[str, Any] = {
        "version": 1,
        "job_id": job_id,
        "rank": rank,
        "attempt": attempt,
        "exit_code": exit_code,
        "started_at": started_at,
        "ended_at": moment(),
        "host": os.uname().nodename,
        "seconds": {stage: round(value, 3) for stage, value in seconds.items()},
    }
    if outcome is not None:
        record["command"] = outcome._asdict()
    if staged is not None:
        record["staged"] = {"files": staged.files_done, "bytes": staged.bytes_done}
    if delivered is not None:
        record["delivered"] = {
            "files": delivered.files,
            "bytes": delivered.nbytes,
            "failed": _listed(delivered.failed),
            "failed_count": len(delivered.failed),
            "skipped": _listed(delivered.skipped),
        }
    record.update(resumed_from=resumed_from, error=error, warnings=list(warnings)[:_LISTED])
    return record


def record_name(rank: int) -> str:
    """The file name of a rank's record."""
    return f"tao_result.{rank}.json" if rank else "tao_result.json"


def save_record(record: Mapping[str, Any], folder: str, env: Mapping[str, str]) -> None:
    """Leave the record in `folder`, whole.

    A shim that is to write a record of its own (TAO_RUNNER_RECORD) takes this one instead, but
    only if the runner really ends with the code that is part of the file's name.
    """
    # Slurm's own name for the node, by which it can be kept away from.
    record = {**record, "host": env.get("SLURMD_NODENAME") or record["host"]}
    path = os.path.join(folder, record_name(record["rank"]))
    if env.get("TAO_RUNNER_RECORD"):
        path = f"{env['TAO_RUNNER_RECORD']}.{record['exit_code']}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = f"{path}.{os.getpid()}"
    with open(draft, "wb") as file:
        file.write(_encode(record))
    os.replace(draft, path)


def publish_record(
    record: Mapping[str, Any], uri: str, put_bytes: Callable[[str, bytes], None]
) -> None:
    """Leave the record at the results' remote destination, too."""
    put_bytes(f"{uri.rstrip('/')}/{record_name(record['rank'])}", _encode(record))


def _encode(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, indent=1).encode() + b"\n"


def _listed(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"path": path, "reason": reason} for path, reason in pairs[:_LISTED]]
