"""One watch loop for any number of jobs, and the hooks it calls.

Each SDK has a loop of its own thread: one round trip asks about all its jobs, and a platform that
hangs delays no other. A platform with a pace of its own (SLURM) is polled at that pace, which
processes share; logs, and every other platform, are read every `poll_interval` seconds. What was
seen is in the store, so a restarted process loses nothing but its hooks.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tao_sdk.atomic_files import write_private_json
from tao_sdk.errors import TaoError
from tao_sdk.job_store import JobStore, StatusUpdate, resolve_sdk_state_paths
from tao_sdk.models import TERMINAL_STATES, Job, JobState, JobStatus
from tao_sdk.polling import Polled, PollSchedule

_log = logging.getLogger(__name__)
_EPOCH = re.compile(r"\b[Ee]poch[ :=]*(\d+)(?:\s*/\s*(\d+))?")
_FIRST_LOOK_LINES = 200
# How often a loop checks whether a platform with a pace of its own is due; asks it nothing.
_PACE_CHECK_SECONDS = 1.0

_HOOK_OF_STATE = {
    JobState.COMPLETE.value: "on_complete",
    JobState.ERROR.value: "on_error",
    JobState.CANCELED.value: "on_canceled",
    JobState.RUNNING.value: "on_running",
}

Hooks = Mapping[str, Callable[..., Any]]


class LogLines(Iterable[str], Protocol):
    """Lines of a log that know where they are."""

    @property
    def cursor(self) -> str: ...


class WatchableSDK(Protocol):
    """What the monitor needs of an SDK. One with a `backend` is polled at the pace of that."""

    @property
    def platform(self) -> str: ...
    def get_statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]: ...
    def stream_logs(
        self, job_id: str, *, follow: bool = True, tail: int | None = None, cursor: str = ""
    ) -> LogLines: ...


class JobMonitor:
    """Watches jobs and calls `on_complete(job)`, `on_error(job)`, `on_canceled(job)`,
    `on_running(job)` and `on_epoch_milestone(job, epoch, total)`.

    A hook that raises is logged and stops nothing. `poll_interval` is for platforms without a pace
    of their own, and for reading logs.
    """

    TERMINAL_STATUSES = TERMINAL_STATES

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path = "tao_session_state.json",
        store: JobStore | None = None,
    ) -> None:
        self.poll_interval = poll_interval
        self.epoch_milestone_interval = epoch_milestone_interval
        session_file, _ = resolve_sdk_state_paths(state_file)
        self._state_file = Path(session_file)
        self._store = store or JobStore.for_state_file(state_file)
        self._lock = threading.Lock()
        self._loops: dict[int, _PlatformLoop] = {}
        self._running = False

    def watch(self, job: Job, hooks: Hooks | None, handler: WatchableSDK) -> None:
        """Watch `job` through the SDK `handler`. A job that has ended is not watched."""
        self._remember(job)
        row = self._store.get_job(job.id)
        if row is not None and row["status"] in TERMINAL_STATES:
            return
        with self._lock:
            loop = self._loops.get(id(handler))
            if loop is None:
                loop = _PlatformLoop(self, handler)
                self._loops[id(handler)] = loop
            loop.add(_Watched(job, hooks or {}, row["status"] if row else job.status))
            if self._running:
                loop.start()
        self._write_state_file()

    def unwatch(self, job_id: str) -> None:
        """Stop watching a job; it goes on."""
        with self._lock:
            for loop in self._loops.values():
                loop.remove(job_id)
        self._write_state_file()

    def start(self) -> None:
        """Watch in the background. Calling it again changes nothing."""
        with self._lock:
            self._running = True
            for loop in self._loops.values():
                loop.start()

    def stop(self) -> None:
        """Stop watching; waits for a poll that is under way, within reason."""
        with self._lock:
            self._running = False
            loops = list(self._loops.values())
            self._loops.clear()
        for loop in loops:
            loop.stop(self.poll_interval + 5)

    def _remember(self, job: Job) -> None:
        self._store.create_job_if_absent(
            job.id,
            job.network_arch,
            job.action,
            job.workspace_id,
            backend_type=job.backend_type,
            backend_job_id=job.backend_job_id,
            status=job.status,
            parent_job_id=job.parent_job_id or None,
            results_dir=job.results_dir,
            local_results_dir=job.local_results_dir,
            base_checkpoint=job.base_checkpoint,
            created_at=job.created_at,
        )

    def _write_state_file(self) -> None:
        # From the store, not from what this process watches: every process of the store writes
        # the same truth, so it does not matter who writes last.
        active = [_state_entry(row) for row in self._store.active_jobs()]
        write_private_json(self._state_file, {"active_jobs": active})


class _Watched:
    """One job under watch."""

    def __init__(self, job: Job, hooks: Hooks, status: str) -> None:
        self.job = job
        self.hooks = hooks
        self.status = status
        # A job met before it ran has all its epochs ahead; of one met later only the last count.
        self.from_start = status == JobState.PENDING.value
        self.cursor = ""
        self.last_epoch = 0

    def call(self, name: str, *details: Any) -> None:
        hook = self.hooks.get(name)
        if hook is None:
            return
        try:
            hook(self.job, *details)
        except Exception:  # noqa: BLE001 - a user's hook must not end the watching of other jobs
            _log.exception("hook %s of job %s failed", name, self.job.id)


class _PlatformLoop:
    """The thread that watches all jobs of one SDK."""

    def __init__(
        self,
        monitor: JobMonitor,
        sdk: WatchableSDK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monitor = monitor
        self._sdk = sdk
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[str, _Watched] = {}
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._schedule: PollSchedule | None = None
        self._read_logs_at = 0.0

    def add(self, watched: _Watched) -> None:
        with self._lock:
            self._jobs[watched.job.id] = watched
        self._wake.set()

    def remove(self, job_id: str) -> None:
        with self._lock:
            self._jobs.pop(job_id, None)

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"tao-monitor-{self._sdk.platform}", daemon=True
            )
            self._thread.start()

    def stop(self, seconds: float) -> None:
        self._stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        with contextlib.closing(self):
            while True:
                self._wake.clear()  # before looking: whatever changes afterwards wakes us again
                if self._stopped:
                    return
                self._wake.wait(self.look())

    def look(self) -> float | None:
        """Poll the jobs if that is due; the pause until the next look, None without jobs."""
        with self._lock:
            jobs = list(self._jobs.values())
        if not jobs:
            return None
        interval = self._monitor.poll_interval
        try:
            if self._is_due(jobs):
                self._read_logs_at = self._clock() + interval
                self._poll(jobs)
            elif self._clock() >= self._read_logs_at:
                self._read_logs_at = self._clock() + interval
                self._read_logs(jobs)
        except Exception:  # noqa: BLE001 - one bad poll must not end the watch
            _log.exception("watching jobs on %s failed; trying again", self._sdk.platform)
        own_pace = self._schedule is not None and self._schedule.has_own_pace
        return min(interval, _PACE_CHECK_SECONDS) if own_pace else interval

    def _is_due(self, jobs: Sequence[_Watched]) -> bool:
        if self._schedule is None:
            backend: Polled | None = getattr(self._sdk, "backend", None)
            if backend is None:
                return True
            self._schedule = PollSchedule(backend)
        return self._schedule.is_due([watched.job.id for watched in jobs])

    def close(self) -> None:
        if self._schedule is not None:
            self._schedule.close()

    def _poll(self, jobs: Sequence[_Watched]) -> None:
        statuses = self._sdk.get_statuses([watched.job.id for watched in jobs])
        changed = False
        for watched in jobs:
            status = statuses[watched.job.id]
            if status.status == JobState.RUNNING.value or status.terminal:
                self._report_epochs(watched)
            if status.status == watched.status:
                continue
            changed = True
            watched.status = watched.job.status = status.status
            if status.terminal:
                self.remove(watched.job.id)
            watched.call(_HOOK_OF_STATE.get(status.status, ""))
        if changed:
            self._monitor._write_state_file()

    def _read_logs(self, jobs: Sequence[_Watched]) -> None:
        """Between two polls. A log that shows its job's end makes the next poll due."""
        for watched in jobs:
            if watched.status == JobState.RUNNING.value:
                self._report_epochs(watched)

    def _report_epochs(self, watched: _Watched) -> None:
        first_look = None if watched.cursor or watched.from_start else _FIRST_LOOK_LINES
        try:
            lines = self._sdk.stream_logs(
                watched.job.id, follow=False, tail=first_look, cursor=watched.cursor
            )
            epochs = [(epoch, total) for epoch, total in epochs_in(lines)]
        except TaoError as error:
            _log.debug("no log of job %s yet: %s", watched.job.id, error)
            return
        watched.cursor = lines.cursor
        interval = self._monitor.epoch_milestone_interval
        for epoch, total in epochs:
            if epoch <= watched.last_epoch:
                continue
            watched.last_epoch = epoch
            if interval > 0 and epoch % interval == 0:
                watched.call("on_epoch_milestone", epoch, total)
        if epochs:
            self._monitor._store.apply_updates(
                [StatusUpdate(watched.job.id, last_epoch=watched.last_epoch)]
            )


def epochs_in(lines: Iterable[str]) -> Iterable[tuple[int, int]]:
    """The epochs that a log mentions, as (epoch, total); total 0 when it does not say."""
    for line in lines:
        for match in _EPOCH.finditer(line):
            yield int(match.group(1)), int(match.group(2) or 0)


def _state_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "job_id",
        "network_arch",
        "action",
        "workspace_id",
        "backend_type",
        "status",
        "created_at",
        "backend_job_id",
        "results_dir",
        "local_results_dir",
        "base_checkpoint",
        "last_epoch",
        "updated_at",
    )
    entry = {name: row[name] for name in names}
    return {**entry, "parent_job_id": row["parent_job_id"] or ""}
