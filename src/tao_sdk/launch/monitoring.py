"""Reports about a launched job until it has ended, however long that takes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from tao_sdk import settings
from tao_sdk.errors import WaitTimeoutError
from tao_sdk.models import JobStatus

__all__ = ["WaitingSDK", "reports", "status_command"]

_GLANCE_SECONDS = 15.0
"""A change of state is told this soon, whatever the interval."""
_SHORTEST_SECONDS = 1.0
"""No platform is asked more often, however short the interval."""


class WaitingSDK(Protocol):
    """What is needed of a platform's SDK."""

    def wait(self, job_id: str, timeout: float | None = None) -> JobStatus: ...
    def get_job_status(self, job_id: str) -> JobStatus: ...


def reports(
    sdk: WaitingSDK,
    job_id: str,
    minutes: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[JobStatus]:
    """The state of a job: now, at every change, and every so many minutes; the end is the last.

    It goes on while nothing changes: a job may be queued for days.
    """
    interval = max(_SHORTEST_SECONDS, minutes * 60)
    status = sdk.get_job_status(job_id)
    yield status
    due = clock() + interval
    while not status.terminal:
        before = status.status
        try:
            status = sdk.wait(job_id, timeout=max(0.0, min(_GLANCE_SECONDS, due - clock())))
        except WaitTimeoutError:
            status = sdk.get_job_status(job_id)
        if status.terminal or status.status != before or clock() >= due:
            yield status
            due = clock() + interval


def status_command(job_id: str, state_file: str | Path | None = None) -> str:
    """The command that tells how the job is, from any shell of this user."""
    # Another shell may be in another folder, and have no such variable.
    place = [] if state_file is None else ["--state", _from_anywhere(state_file)]
    command = shlex.join(["tao-sdk", *place, "status", job_id])
    folder = settings.lookup("TAO_SDK_STATE_DIR") if state_file is None else ""
    setting = f"TAO_SDK_STATE_DIR={shlex.quote(_from_anywhere(folder))} " if folder else ""
    return f"{setting}{command}"


def _from_anywhere(path: str | Path) -> str:
    return str(settings.expanded(path).absolute())
