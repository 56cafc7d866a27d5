"""The runner's own lines, printed while it moves data.

::

    tao-progress: {"stage":"staging","bytes_done":1048576,"bytes_total":4194304,
                   "files_done":1,"files_total":4,"rate":1048576.0,"uri":"s3://bucket/data"}

on a single line: the prefix, then one JSON object. `stage` is required; all counts are totals of
the stage, not of one URI, and `rate` is in bytes per second. The rules are in
`docs/reference/progress.md`.
"""

from __future__ import annotations

import json
from typing import Any

from tao_sdk.progress.numbers import to_count, to_float
from tao_sdk.progress.sightings import Transfer

TRANSFER_PREFIX = "tao-progress: "
STAGES = ("staging", "running", "delivering")


def read_transfer(text: str) -> Transfer | None:
    """What a line of the runner says; None when it is not one, or is damaged."""
    _, prefix, rest = text.partition(TRANSFER_PREFIX)
    record = json_object(rest) if prefix else None
    if record is None or record.get("stage") not in STAGES:
        return None
    rate = to_float(record.get("rate"))
    uri = record.get("uri")
    return Transfer(
        stage=record["stage"],
        attempt=to_count(record.get("attempt")),
        bytes_done=to_count(record.get("bytes_done")),
        bytes_total=to_count(record.get("bytes_total")),
        files_done=to_count(record.get("files_done")),
        files_total=to_count(record.get("files_total")),
        bytes_per_second=rate if rate is not None and 0 < rate < 1e15 else None,
        # What follows the question mark of a signed URI is a credential.
        uri=uri.partition("?")[0] if isinstance(uri, str) else "",
    )


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is; None when it is anything else."""
    if not text.startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):  # torn, not JSON at all, or nested without end
        return None
    return record if isinstance(record, dict) else None
