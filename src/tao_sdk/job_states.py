"""The words in which a job is spoken of everywhere: its states, its id, a moment in time.

Apart from `models` because everything needs these, and only those who hand out jobs need the
dataclasses there, which take longer to load than all of the local platform.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from enum import Enum

from tao_sdk.errors import ValidationError

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class JobState(str, Enum):
    """The seven states. Terminal ones are final: a job never leaves them."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    COMPLETE = "Complete"
    ERROR = "Error"
    CANCELED = "Canceled"
    UNKNOWN = "Unknown"

    def __str__(self) -> str:
        return self.value

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset({JobState.COMPLETE, JobState.ERROR, JobState.CANCELED})
TERMINAL_STATES: frozenset[str] = frozenset(state.value for state in _TERMINAL)


def utc_now() -> str:
    """The present moment as the ISO text that every record of ours uses."""
    return datetime.now(timezone.utc).isoformat()


def validate_job_id(job_id: str) -> str:
    """Return `job_id` if it is safe as a file, container and label name; raise otherwise."""
    if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id):
        raise ValidationError(
            f"{job_id!r} is not a job id: letters, digits, '_', '.' and '-' only, "
            "starting with a letter or digit, at most 128 characters"
        )
    return job_id
