"""What an observation changes about a job: the rules, as pure functions.

* A state that has ended is final. All that may still happen to such a row is that a fact which is
  missing gets filled in (`exit_code`, `started_at`, `ended_at`, `message`) and that `last_epoch`
  grows: the log's last lines are often read after the end. Whether the platform still has to
  clean up (`cleanup_due`) is no part of the state and changes as given, before the end and after.
* The end of a job answers every open question about it: `poll_error` and `missing_since` are
  cleared unless the same update sets them.
* An update that brings nothing new changes nothing, so an unchanged poll writes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tao_sdk.errors import DamagedRowError
from tao_sdk.job_states import TERMINAL_STATES
from tao_sdk.job_store.rows import (
    Row,
    StatusUpdate,
    checked_status,
    decode_strictly,
    encode,
    is_terminal,
    same_json,
)

_OBSERVED_EVERY_SECONDS = 60.0
_FILLED_AFTER_THE_END = ("exit_code", "started_at", "ended_at", "message")
_REPLACED_AS_GIVEN = (*_FILLED_AFTER_THE_END, "missing_since", "last_epoch")


def checked(update: StatusUpdate) -> None:
    """Raise before anything is written."""
    if update.status is not None:
        checked_status(update.status)
    encode(update.native, "native")


def changes_of(row: Row, update: StatusUpdate, now: str) -> dict[str, Any]:
    """The columns of `row` that `update` changes."""
    if is_terminal(row):
        return {**_filled_in(row, update), **_native(row, update), **_cleanup(row, update)}
    wanted = {name: getattr(update, name) for name in _REPLACED_AS_GIVEN}
    wanted["status"] = None if update.status is None else checked_status(update.status)
    wanted["poll_error"] = update.poll_error
    if wanted["status"] in TERMINAL_STATES:
        wanted["missing_since"] = update.missing_since or ""
        wanted["poll_error"] = update.poll_error or ""
    wanted["poll_error_since"] = _poll_error_since(row, wanted["poll_error"], now)
    changes = {
        name: value for name, value in wanted.items() if value is not None and value != row[name]
    }
    changes.update(_native(row, update))
    changes.update(_cleanup(row, update))
    if update.observed and (changes or _long_ago(row["observed_at"], now)):
        changes["observed_at"] = now
    return changes


def _filled_in(row: Row, update: StatusUpdate) -> dict[str, Any]:
    changes = {
        name: value
        for name in _FILLED_AFTER_THE_END
        if (value := getattr(update, name)) not in (None, "") and row[name] in (None, "")
    }
    if update.last_epoch is not None and update.last_epoch > row["last_epoch"]:
        changes["last_epoch"] = update.last_epoch
    return changes


def _native(row: Row, update: StatusUpdate) -> dict[str, Any]:
    """A damaged one is replaced after the end, too."""
    if update.native is None:
        return {}
    native = encode(update.native, "native")
    try:
        decode_strictly(row, "native")
    except DamagedRowError:
        return {"native": native}
    same = is_terminal(row) or same_json(native, row["native"])
    return {} if same else {"native": native}


def _cleanup(row: Row, update: StatusUpdate) -> dict[str, Any]:
    if update.cleanup_due is None or update.cleanup_due == bool(row["cleanup_due"]):
        return {}
    return {"cleanup_due": int(update.cleanup_due)}


def _poll_error_since(row: Row, poll_error: str | None, now: str) -> str | None:
    if poll_error is None:
        return None
    if poll_error == "":
        return ""
    return row["poll_error_since"] or now


def _long_ago(earlier: str, now: str) -> bool:
    try:
        passed = datetime.fromisoformat(now) - datetime.fromisoformat(earlier)
    except (ValueError, TypeError):  # never, or a damaged row
        return True
    return abs(passed.total_seconds()) >= _OBSERVED_EVERY_SECONDS
