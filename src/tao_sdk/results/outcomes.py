"""What becomes of the entries of a pull."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum

from tao_sdk.errors import PlatformError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class State(str, Enum):
    """What became of an entry."""

    COPIED = "copied"
    PRESENT = "present"
    """It was there already."""
    SKIPPED = "skipped"
    """Not a thing to copy."""
    GONE = "gone"
    """Removed from the results since they were listed."""
    CHANGED = "changed"
    """It changed whenever it was being copied: not copied."""
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value

    @property
    def incomplete(self) -> bool:
        """Whether something is missing at the destination."""
        return self in (State.CHANGED, State.FAILED)


@dataclass(frozen=True)
class Outcome:
    """One entry and what became of it."""

    path: str
    state: State
    size: int = 0
    message: str = ""


def gone(path: str) -> Outcome:
    return Outcome(path, State.GONE, message="removed while it was fetched")


def changed(path: str, size: int) -> Outcome:
    return Outcome(path, State.CHANGED, size, "is being written just now: pull again later")


def failed(path: str, size: int, error: OSError) -> Outcome:
    """A failure that concerns one entry; raises when it concerns them all."""
    if error.errno in _NO_SPACE:
        raise PlatformError(
            f"the destination is full ({error.strerror}); what was copied so far stays: make room "
            "and pull again"
        ) from error
    return Outcome(path, State.FAILED, size, error.strerror or str(error))
