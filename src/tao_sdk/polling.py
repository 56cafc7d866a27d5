"""How often a platform is asked about its jobs, by callers that wait and by callers that watch.

`PollBackoff` is the delay of one caller. A platform that reports changes, or that serves a whole
site, brings a subclass of its own (`BacksOff`). `PollSchedule` is for callers that cannot sleep in
`pause`, because they do other things meanwhile: the watcher, `tao-sdk ls --watch`, the monitor.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable


class PollBackoff:
    """Delay between polls; this default sleeps."""

    def __init__(self, longest: float) -> None:
        self._longest = longest

    @property
    def longest(self) -> float:
        """The longest delay that still shows an end in good time."""
        return self._longest

    @property
    def has_own_pace(self) -> bool:
        """Whether `is_due` keeps a pace; otherwise the caller's own interval is the pace."""
        return type(self).is_due is not PollBackoff.is_due

    def after(self, delay: float) -> float:
        """The next delay: what the caller proposes, up to a limit."""
        return min(delay, self.longest)

    def pause(self, seconds: float) -> None:
        """Wait that long, or less if something happens."""
        time.sleep(seconds)

    def is_due(self) -> bool:
        """Whether a caller that does other things between polls should poll now."""
        return True

    def close(self) -> None:
        """Release what reports changes."""


@runtime_checkable
class BacksOff(Protocol):
    """The platform reports changes, or wants to be polled at a pace of its own."""

    def backoff(self, job_ids: Sequence[str]) -> PollBackoff:
        """How a caller waits between two polls of these jobs. The caller closes it."""


class Polled(Protocol):
    """What is polled: a backend."""

    @property
    def poll_seconds(self) -> float: ...


def backoff_of(backend: Polled, job_ids: Sequence[str]) -> PollBackoff:
    """How a caller waits between two polls of these jobs. The caller closes it."""
    if isinstance(backend, BacksOff):
        return backend.backoff(job_ids)
    return PollBackoff(backend.poll_seconds)


class PollSchedule:
    """When a caller that does other things between polls should poll one platform's jobs.

    Ask `is_due`, and poll, in one thread: a platform may keep for each thread which answers of
    other processes its next poll accepts.
    """

    def __init__(self, backend: Polled) -> None:
        self._backend = backend
        self._job_ids: frozenset[str] = frozenset()
        self._backoff: PollBackoff | None = None

    @property
    def has_own_pace(self) -> bool:
        """Whether the platform keeps a pace for the jobs that were asked about last."""
        return self._backoff is not None and self._backoff.has_own_pace

    def is_due(self, job_ids: Collection[str]) -> bool:
        """Whether to poll these jobs now: new ones at once, the same or fewer at the pace."""
        ids = frozenset(job_ids)
        if self._backoff is None or not ids <= self._job_ids:
            self.close()
            self._backoff = backoff_of(self._backend, sorted(ids))
            self._job_ids = ids
        return self._backoff.is_due()

    def close(self) -> None:
        """Release what reports changes."""
        if self._backoff is not None:
            self._backoff.close()
            self._backoff = None
