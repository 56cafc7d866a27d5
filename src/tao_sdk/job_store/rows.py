"""What goes into the store and what comes out: plain data and its JSON columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tao_sdk.errors import DamagedRowError, ValidationError
from tao_sdk.job_states import TERMINAL_STATES, JobState

Row = dict[str, Any]
"""One row by column name. JSON columns are still text: see `decode`.

A *narrow* row, which polls read, has no `specs`, and its `request` is `abridged`.
"""

_STATES = frozenset(state.value for state in JobState)
JSON_COLUMNS = ("specs", "native", "request", "failure")

_LONGEST_REQUEST = 2_000
_LONGEST_ENTRY = 200


class NewJob(NamedTuple):
    """A job about to be handed to its platform."""

    job_id: str
    network_arch: str
    action: str
    workspace_id: str
    backend_type: str
    token: str
    owner: str
    image: str = ""
    specs: Mapping[str, Any] | None = None
    request: Mapping[str, Any] | None = None
    native: Mapping[str, Any] | None = None
    """Where to look the job up, should we die before the platform has answered."""
    results_dir: str = ""
    local_results_dir: str = ""
    backend_job_id: str = ""
    parent_job_id: str = ""
    plan_id: str = ""
    step_id: int = 0
    base_checkpoint: str = ""
    message: str = ""


class Confirmation(NamedTuple):
    """The platform has accepted a job, under these names."""

    job_id: str
    backend_job_id: str
    native: Mapping[str, Any]
    message: str = ""


class StatusUpdate(NamedTuple):
    """What was learnt about a job. None keeps what is known."""

    job_id: str
    status: str | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    native: Mapping[str, Any] | None = None
    """Replaces the stored mapping as a whole."""
    missing_since: str | None = None
    """Since when the reachable platform denies knowing the job; "" clears."""
    poll_error: str | None = None
    """Why the platform could not be asked; "" clears."""
    observed: bool = False
    """The platform answered. Noted at most once a minute when nothing else changed."""
    last_epoch: int | None = None
    cleanup_due: bool | None = None
    """The platform still has to clean up after this job; may also change after its end."""


def decode(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    """A JSON column of a row as a mapping; {} when it holds nothing, or is damaged."""
    try:
        return decode_strictly(row, column)
    except DamagedRowError:
        return {}


def decode_strictly(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    """Like `decode`; raises `DamagedRowError` for what is damaged."""
    try:
        value = json.loads(row[column] or "{}")
    except (ValueError, TypeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DamagedRowError(
            f"job {row['job_id']}: its {column} in the store is damaged: restore the store from a "
            "backup; `tao-sdk doctor` counts such jobs"
        )
    return value


def known_status(status: Any) -> str:
    """A stored state; "Unknown" for one that is damaged."""
    return status if status in _STATES else JobState.UNKNOWN.value


def encode(value: Mapping[str, Any] | None, where: str) -> str:
    """The JSON text of a mapping; raises `ValidationError` naming `where`."""
    if value is not None and not isinstance(value, Mapping):
        raise ValidationError(f"{where}: expected a mapping, got {type(value).__name__}")
    try:
        return json.dumps(dict(value or {}), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"{where} cannot be stored as JSON: {error}") from error


def abridged(request: str) -> str:
    """The JSON text of a request, made short: of long texts only the beginning is kept, of other
    long entries nothing. `"abridged": true` says that it was.
    """
    if len(request) <= _LONGEST_REQUEST:
        return request
    short: dict[str, Any] = {}
    for name, value in json.loads(request).items():
        if isinstance(value, str):
            short[name] = value[:_LONGEST_ENTRY]
        elif len(json.dumps(value)) <= _LONGEST_ENTRY:
            short[name] = value
    return json.dumps({**short, "abridged": True})


def same_json(left: str, right: str) -> bool:
    """Whether two JSON texts mean the same, whatever the order of their keys."""
    return _canonical(left) == _canonical(right)


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def storable(value: Any) -> Any:
    """What SQLite can hold of a value: bytes of a log that were no UTF-8 become question marks, a
    number beyond its 64 bits nothing.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "replace").decode("utf-8")


def checked_status(status: str) -> str:
    """One of the seven states, as plain text."""
    try:
        return JobState(status).value
    except ValueError:
        raise ValidationError(
            f"{status!r} is not a job status: use one of {', '.join(JobState)}"
        ) from None


def checked_statuses(statuses: str | Collection[str]) -> list[str]:
    """A status or several of them, each checked, without repetition."""
    given = [statuses] if isinstance(statuses, str) else statuses
    return list(dict.fromkeys(checked_status(status) for status in given))


def checked_limit(limit: int | None, where: str = "limit") -> int:
    """A number of rows in SQLite's terms, where -1 means all."""
    if limit is None:
        return -1
    if limit < 0:
        raise ValidationError(f"{where}={limit}: give 0 or more, or None for all")
    return min(limit, 2**63 - 1)


def is_terminal(row: Mapping[str, Any]) -> bool:
    return row["status"] in TERMINAL_STATES
