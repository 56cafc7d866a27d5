"""The watcher of a store: observes every open job of every platform until none is left.

It also attends platforms that past jobs left something on, such as a rented instance, until that is
gone or is only kept.

A lock lets exactly one process per store do this at a time. It keeps states, explanations and logs
current while no other process is attached (`tao-sdk watch`, started by `tao-sdk run`).
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tao_sdk import file_locks
from tao_sdk.errors import TaoError
from tao_sdk.job_store import JobStore
from tao_sdk.models import JobStatus
from tao_sdk.platforms.capabilities import HasLeftovers, Leftovers
from tao_sdk.platforms.observation import describe
from tao_sdk.platforms.registry import get, names
from tao_sdk.platforms.sdk import PlatformSDK
from tao_sdk.polling import PollSchedule

_log = logging.getLogger(__name__)
# `is_watched` holds the lock for a moment; that is not a watcher.
_PROBE_SECONDS = 0.3
# Where the file system has no locks, a lease of the store stands for the lock. After this time it
# may be taken over by another machine, which cannot tell whether its owner still runs.
_LEASE = "watch"
_LEASE_SECONDS = 3600.0
# With thousands of jobs the watcher polls less often, so that it takes no more of a processor.
_SHARE = 0.02
_LONGEST_SECONDS = 60.0
_COSTS = 3
# What is left is attended at once, and then after delays that double up to this one.
_LEFTOVERS_SECONDS = 60.0


@dataclass(frozen=True)
class Change:
    """A job has another state or message than at the poll before."""

    job_id: str
    platform: str
    before: str
    status: JobStatus


class AlreadyWatchedError(TaoError):
    """Another process watches this store."""


class Watcher:
    """Watches one store."""

    def __init__(
        self,
        state_file: str | Path | None,
        report: Callable[[Change], None],
        complain: Callable[[str], None],
        poll_seconds: float = 2.0,
        idle_seconds: float = 0.0,
    ) -> None:
        self._state_file = state_file
        self._store = JobStore.for_state_file(state_file)
        self._report = report
        self._complain = complain
        self._poll_seconds = poll_seconds
        self._idle_seconds = idle_seconds
        self._sdks: dict[str, PlatformSDK] = {}
        self._schedules: dict[str, PollSchedule] = {}
        self._seen: dict[str, tuple[str, str]] = {}
        self._complained: set[str] = set()
        self._platforms: list[str] | None = None
        self._leftovers = 0
        self._next_attendance: dict[str, tuple[float, float]] = {}
        """When a platform with leftovers and without jobs is attended, and the delay after that."""

    def run(self) -> None:
        """Watch until no job has been open, and nothing left to remove, for `idle_seconds`."""
        while True:
            with self._only_watcher():
                self._watch_until_idle()
            # A job that came while we still held the lock got no watcher of its own.
            if not self._look_again():
                return

    def _watch_until_idle(self) -> None:
        idle_since: float | None = None
        costs: deque[float] = deque(maxlen=_COSTS)
        while True:
            began = time.process_time()
            open_jobs = self._look_again()
            costs.append(time.process_time() - began)
            if open_jobs:
                idle_since = None
            else:
                idle_since = idle_since or time.monotonic()
                if time.monotonic() - idle_since >= self._idle_seconds:
                    return
            time.sleep(pause_after(self._poll_seconds, costs))

    def _look_again(self) -> int:
        try:
            return self.look() + self._leftovers
        except BrokenPipeError:
            raise  # nothing reads what this process reports
        except Exception as error:  # noqa: BLE001 - the next poll may succeed
            self._complain_about("the job store", error)
            return 1

    def look(self) -> int:
        """Ask every platform once about its open jobs. Returns how many are still open.

        Jobs of a platform that could not be asked count as open, and so do ended ones that are
        not cleaned up yet. Jobs of a platform that is not installed here do not count, because they
        can never be watched from here. Platforms without open jobs are attended, too, if past jobs
        left something there that is to be removed.
        """
        rows = self._store.active_jobs()
        self._report_ended_elsewhere({row["job_id"] for row in rows})
        by_platform: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["phase"] == "recorded":
                continue  # recorded by another program: no platform here can be asked
            by_platform.setdefault(row["backend_type"], []).append(row)
        for row in self._store.jobs_to_clean():
            by_platform.setdefault(row["backend_type"], [])
        open_jobs = 0
        for platform, mine in by_platform.items():
            try:
                sdk = self._sdk(platform)
            except Exception as error:  # noqa: BLE001 - not installed, or broken
                self._complain_about(platform, error)
                continue
            changes: list[Change] = []
            try:
                if not self._is_due(sdk, mine):
                    open_jobs += max(1, len(mine))
                    continue
                open_jobs += self._look_at(sdk, mine, changes)
            except Exception as error:  # noqa: BLE001 - it must not stop watching the others
                self._complain_about(platform, error)
                open_jobs += max(1, len(mine))
            for change in changes:
                self._report(change)
        self._leftovers = sum(map(self._attend_leftovers, self._used_platforms() - {*by_platform}))
        return open_jobs

    def _used_platforms(self) -> set[str]:
        """The platforms that keep files beside this store: only these can have leftovers."""
        if self._platforms is None:
            self._platforms = names()
        return {name for name in self._platforms if self._store.folder(name).is_dir()}

    def _attend_leftovers(self, platform: str) -> int:
        """Remove what past jobs left on a platform without open jobs. Returns how much is due."""
        try:
            sdk = self._sdk(platform)
            if not isinstance(sdk, HasLeftovers):
                return 0
            left = sdk.leftovers()
            when, delay = self._next_attendance.get(platform, (0.0, self._poll_seconds))
            if not left.due:
                self._next_attendance.pop(platform, None)
            elif time.monotonic() >= when:
                following = time.monotonic() + delay, min(2 * delay, _LEFTOVERS_SECONDS)
                self._next_attendance[platform] = following
                self._complain_of(platform, left)
                sdk.reconcile()
                left = sdk.leftovers()
        except Exception as error:  # noqa: BLE001 - it must not stop watching the others
            self._complain_about(platform, error)
            return 1 if platform in self._sdks else 0
        self._complain_of(platform, left)
        return len(left.due)

    def _complain_of(self, platform: str, left: Leftovers) -> None:
        for sentence in left.due:
            self._complain_once(f"{platform}: {sentence}; tried again until it is gone")
        for sentence in left.kept:
            self._complain_once(f"{platform}: {sentence}")

    def _complain_about(self, source: str, error: Exception) -> None:
        _log.debug("%s cannot be asked", source, exc_info=error)
        what = "" if isinstance(error, TaoError) else f"{type(error).__name__}: "
        self._complain_once(f"{source}: {what}{error}")

    def _sdk(self, platform: str) -> PlatformSDK:
        if platform not in self._sdks:
            self._sdks[platform] = get(platform)(state_file=self._state_file)
        return self._sdks[platform]

    def _is_due(self, sdk: PlatformSDK, rows: list[dict[str, Any]]) -> bool:
        """Whether the platform should be asked now; cleaning up alone keeps no pace."""
        if sdk.platform not in self._schedules:
            self._schedules[sdk.platform] = PollSchedule(sdk.backend)
        ids = [row["job_id"] for row in rows]
        return not ids or self._schedules[sdk.platform].is_due(ids)

    def _look_at(self, sdk: PlatformSDK, rows: list[dict[str, Any]], changes: list[Change]) -> int:
        sdk.reconcile()
        statuses = sdk.get_statuses([row["job_id"] for row in rows])
        for row in rows:
            before = self._seen.get(row["job_id"], (row["status"], row["message"]))
            status = statuses[row["job_id"]]
            if (status.status, status.message) != before:
                changes.append(Change(row["job_id"], sdk.platform, before[0], status))
            self._seen[row["job_id"]] = (status.status, status.message)
        to_clean = self._store.jobs_to_clean(sdk.platform)
        if to_clean and not rows:
            self._complain_once(
                f"{sdk.platform}: ended jobs are still to be cleaned up after ({len(to_clean)}); "
                "tried again until that works"
            )
        return sum(not status.terminal for status in statuses.values()) + len(to_clean)

    def _report_ended_elsewhere(self, still_open: set[str]) -> None:
        """Report jobs whose end another, attached process saw first."""
        ended = [job_id for job_id in self._seen if job_id not in still_open]
        rows = self._store.jobs_by_id(ended)
        for job_id in ended:
            before = self._seen.pop(job_id)
            if job_id in rows:  # else it was removed meanwhile
                status = describe(rows[job_id])
                if (status.status, status.message) != before:
                    platform = str(rows[job_id]["backend_type"])
                    self._report(Change(job_id, platform, before[0], status))

    def _complain_once(self, text: str) -> None:
        if text not in self._complained:
            self._complained.add(text)
            self._complain(text)

    @contextmanager
    def _only_watcher(self) -> Iterator[None]:
        descriptor = _open_lock(self._store.path)
        try:
            locked = _lock_within(descriptor, _PROBE_SECONDS)
        except file_locks.NoFileLocksError:
            os.close(descriptor)
            with self._store.lease(_LEASE, _LEASE_SECONDS) as mine:
                if not mine:
                    raise self._watched_by(self._store.lease_owner(_LEASE)) from None
                yield
            return
        try:
            if not locked:
                raise self._watched_by(os.read(descriptor, 64).decode())
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()}".encode())
            yield
        finally:
            os.close(descriptor)

    def _watched_by(self, owner: str) -> AlreadyWatchedError:
        by = owner or "another process"
        return AlreadyWatchedError(f"{self._store.path} is watched already, by {by}")


def pause_after(poll_seconds: float, costs: Sequence[float]) -> float:
    """How long to sleep after polls that took these processor seconds.

    The cheapest of them counts: the first poll imports what it needs, and many jobs may end in one.
    """
    usual = min(costs) if len(costs) == _COSTS else 0.0
    return max(poll_seconds, min(usual / _SHARE, _LONGEST_SECONDS))


def _lock_within(descriptor: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not file_locks.lock(descriptor, wait=False):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def is_watched(store_path: str | Path) -> bool:
    """Whether a process watches this store now. Creates nothing."""
    try:
        descriptor = os.open(_lock_file(store_path), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not file_locks.lock(descriptor, wait=False)
    except file_locks.NoFileLocksError:
        if not Path(store_path).exists():
            return False
        with JobStore(store_path) as store:
            return store.lease_owner(_LEASE) != ""
    finally:
        os.close(descriptor)


def _open_lock(store_path: str | Path) -> int:
    return os.open(_lock_file(store_path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock_file(store_path: str | Path) -> str:
    return f"{store_path}.watch.lock"
