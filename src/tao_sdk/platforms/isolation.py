"""Keeping what one job wrote from breaking the answer about the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tao_sdk.errors import DamagedRowError, TaoError
from tao_sdk.platforms.backend import JobRef

_Answer = TypeVar("_Answer")


def ask_isolated(
    ask: Callable[[Sequence[JobRef]], dict[str, _Answer]],
    jobs: Sequence[JobRef],
    instead: Callable[[JobRef, Exception], dict[str, _Answer]],
) -> dict[str, _Answer]:
    """Ask about all jobs at once, and about halves of them if that fails unexpectedly.

    `instead` answers for the jobs that fail when asked about alone. Errors of ours concern the
    platform and are raised, except those about a damaged file of one job.
    """
    try:
        return ask(jobs)
    except Exception as error:
        if isinstance(error, TaoError) and not isinstance(error, DamagedRowError):
            raise
        if len(jobs) == 1:
            import logging  # most processes log nothing

            logging.getLogger(__name__).debug("no answer about %s", jobs[0].job_id, exc_info=True)
            return instead(jobs[0], error)
    middle = len(jobs) // 2
    return {
        **ask_isolated(ask, jobs[:middle], instead),
        **ask_isolated(ask, jobs[middle:], instead),
    }


def senseless(error: Exception) -> str:
    """What is said about a job whose answer raised this."""
    if isinstance(error, DamagedRowError):
        return str(error)
    return f"its answer makes no sense ({type(error).__name__}: {error})"
