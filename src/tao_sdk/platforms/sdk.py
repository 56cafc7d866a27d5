"""PlatformSDK: the whole public interface, written once for every platform.

A platform's class adds a name, a constructor and a `Backend`. Constructing one opens nothing: no
file, no connection, no credential is looked at before the first call that needs it.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tao_sdk.errors import (
    BackendUnreachableError,
    JobNotFoundError,
    UnsupportedError,
    ValidationError,
    WaitTimeoutError,
)
from tao_sdk.job_states import TERMINAL_STATES, JobState
from tao_sdk.job_store import decode, resolve_sdk_state_paths
from tao_sdk.platforms.backend import Backend, JobIdentity, Plan
from tao_sdk.platforms.bucket_results import remove_from_bucket
from tao_sdk.platforms.capabilities import (
    Browses,
    Closes,
    Deletes,
    ListsReplicas,
    PollBackoff,
    backoff_of,
)
from tao_sdk.platforms.logs import LogStream, in_pieces
from tao_sdk.platforms.request import Command, NoOptions, Option, build_request, options_of
from tao_sdk.platforms.staged_data import (
    has_runner,
    stop_seconds,
    storage_for,
    with_data,
    with_payload,
)
from tao_sdk.platforms.submit import Submitter, job_ref

# Loaded by the first call that needs them: the store by what opens it; the models, whose
# dataclasses take longer than all of this, by what hands out a job or a status.
if TYPE_CHECKING:
    from tao_sdk.job_store import JobStore
    from tao_sdk.models import Job, JobStatus
    from tao_sdk.monitor import JobMonitor
    from tao_sdk.platforms.refresh import Refresher
    from tao_sdk.platforms.whereabouts import Whereabouts

Row = dict[str, Any]
_FIRST_DELAY = 0.05
_CLEANUP_WAIT_SECONDS = 5.0
_Self = TypeVar("_Self", bound="PlatformSDK")


class PlatformSDK(ABC):
    """Launch, watch, explain and stop jobs on one platform."""

    platform: ClassVar[str]
    options_type: ClassVar[type[Any]] = NoOptions
    """The keywords of `create_job` that only this platform has: a NamedTuple, see `Keyword`."""
    default_workspace: ClassVar[str] = ""

    def __init__(
        self,
        poll_interval: float = 30,
        epoch_milestone_interval: int = 10,
        state_file: str | Path | None = None,
        *,
        store: JobStore | None = None,
        attend: bool = True,
    ) -> None:
        self.attend = attend
        """Whether polls also act: settle, retry, start what waits, clean up. See `look`."""
        self.poll_interval = poll_interval
        self.epoch_milestone_interval = epoch_milestone_interval
        self._state_file = state_file
        self._given_store = store
        self._reconciled = False
        self._close_backend: Callable[[], object] = lambda: None
        self._streams: weakref.WeakSet[LogStream] = weakref.WeakSet()

    # ---------------------------------------------------------------- what a platform supplies

    def _workspace_of_jobs(self) -> str:
        """The `workspace_id` of jobs that name none."""
        return self.default_workspace

    @abstractmethod
    def _make_backend(self) -> Backend:
        """The platform's backend. Called on first use."""

    @property
    def options(self) -> tuple[Option, ...]:
        """The keywords of `create_job` that only this platform has."""
        return options_of(self.options_type)

    @functools.cached_property
    def backend(self) -> Backend:
        backend = self._make_backend()
        if isinstance(backend, Closes):
            self._close_backend = weakref.finalize(self, backend.close)
        return backend

    @functools.cached_property
    def store(self) -> JobStore:
        from tao_sdk.job_store import JobStore

        return self._given_store or JobStore.for_state_file(self._state_file)

    @functools.cached_property
    def _submitter(self) -> Submitter:
        return Submitter(self.store, self.backend)

    @functools.cached_property
    def _refresher(self) -> Refresher:
        from tao_sdk.platforms.refresh import Refresher

        return Refresher(self.store, self.backend)

    @property
    def whereabouts(self) -> Whereabouts:
        """Tells which jobs the platform cannot be asked about."""
        return self._refresher.whereabouts

    @functools.cached_property
    def monitor(self) -> JobMonitor:
        """The watch loop that calls hooks; started by the first job that has any."""
        from tao_sdk.monitor import JobMonitor

        if self._given_store is not None:
            json_path = self._given_store.session_file
        else:
            json_path, _ = resolve_sdk_state_paths(self._state_file)
        return JobMonitor(
            poll_interval=self.poll_interval,
            epoch_milestone_interval=self.epoch_milestone_interval,
            state_file=json_path,
            store=self.store,
        )

    @property
    def state_uri_path(self) -> str:
        """The store as a job's address names it; "" for the default one."""
        return self.store.address

    def close(self) -> None:
        """Stop watching, end followed logs and close the store. Jobs go on."""
        if "monitor" in self.__dict__:
            self.monitor.stop()
        for stream in tuple(self._streams):
            stream.close()
        if "store" in self.__dict__ and self._given_store is None:
            self.store.close()
        self._close_backend()
        for name in ("store", "backend", "monitor", "_submitter", "_refresher"):
            self.__dict__.pop(name, None)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------- submitting

    def plan(
        self,
        image: str = "",
        command: Command = "",
        gpu_count: int = 1,
        env_vars: Mapping[str, str] | None = None,
        inputs: Any = None,
        outputs: Any = None,
        **options: Any,
    ) -> Plan:
        """Exactly what `create_job` with the same arguments would run. Nothing is created."""
        options.pop("hooks", None)
        if inputs or outputs:
            command = with_data(command, inputs, outputs)
        request = build_request(
            self.options_type,
            image=image,
            command=command,
            gpu_count=gpu_count,
            env_vars=env_vars,
            keywords={"workspace_id": self._workspace_of_jobs(), **options},
            platform=self.platform,
        )
        return with_payload(self.backend.plan(request, JobIdentity.new()))

    def submit(self, plan: Plan, hooks: Mapping[str, Any] | None = None) -> Job:
        """Run a plan. A plan can be submitted once."""
        if plan.platform != self.platform:
            raise ValidationError(
                f"this plan is for {plan.platform}, and this SDK is for {self.platform}"
            )
        self._get_ready()
        row = self._submitter.submit(plan)
        job = self._handle(row or self._own_row(plan.job_id))
        if hooks:
            self.monitor.watch(job, hooks, self)
            self.monitor.start()
        return job

    def create_job(
        self,
        image: str = "",
        command: Command = "",
        gpu_count: int = 1,
        env_vars: Mapping[str, str] | None = None,
        inputs: Any = None,
        outputs: Any = None,
        **options: Any,
    ) -> Job:
        """Plan and submit one job; `hooks=` are called while this process lives."""
        hooks = options.pop("hooks", None)
        plan = self.plan(image, command, gpu_count, env_vars, inputs, outputs, **options)
        return self.submit(plan, hooks)

    def create_jobs(self, requests: Iterable[Mapping[str, Any]]) -> list[Job]:
        """Submit many jobs, given as the keywords of `create_job`, in order.

        Every request is planned before anything exists. A job that the platform then refuses is
        returned with status Error and its reason in `explain()`; it stops none of the others.
        """
        plans = [self.plan(**request) for request in requests]
        if not plans:
            return []
        self._get_ready()
        self._submitter.submit_many(plans)
        rows = self.store.jobs_by_id([plan.job_id for plan in plans])
        return [self._handle(rows[plan.job_id]) for plan in plans]

    def reconcile(self) -> list[str]:
        """Settle submissions that a killed process left behind; returns their ids.

        Also cleans up after jobs whose end was seen only by processes that do not attend.
        """
        settled = self._submitter.reconcile()
        self.clean_up()
        self._reconciled = True
        return settled

    def clean_up(self) -> None:
        """Clean up after jobs whose end was seen only by processes that do not attend."""
        self._refresher.clean_up()

    # ---------------------------------------------------------------- watching

    def get_job_status(self, job_id: str) -> JobStatus:
        """The state of a job now. Never raises for a platform that cannot be reached."""
        return self.get_statuses([job_id])[job_id]

    def get_statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """The states of many jobs in one round trip. Attends to them, unless `attend` is off."""
        return self._poll(job_ids, attend=self.attend)

    def look(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """The states of many jobs in one round trip. Changes nothing on the platform."""
        return self._poll(job_ids, attend=False)

    def wait(
        self, job_id: str, timeout: float | None = None, poll_interval: float | None = None
    ) -> JobStatus:
        """Block until the job has ended; `WaitTimeoutError` after `timeout` seconds."""
        return self.wait_all([job_id], timeout, poll_interval)[job_id]

    def wait_all(
        self,
        job_ids: Sequence[str],
        timeout: float | None = None,
        poll_interval: float | None = None,
    ) -> dict[str, JobStatus]:
        """Block until all the jobs have ended, asking about all of them at once."""
        for job_id in job_ids:
            self._own_row(job_id)  # an unknown job would never end
        deadline = None if timeout is None else time.monotonic() + timeout
        delay = _FIRST_DELAY
        with contextlib.closing(backoff_of(self.backend, job_ids)) as backoff:
            while True:
                statuses = self.get_statuses(job_ids)
                for job_id, status in statuses.items():
                    if status.status == JobState.UNKNOWN.value:
                        self._own_row(job_id)  # removed while we waited: say so
                if all(status.terminal for status in statuses.values()):
                    return statuses
                left = math.inf if deadline is None else deadline - time.monotonic()
                if timeout is not None and left <= 0:
                    from tao_sdk.platforms.handles import still_open

                    raise WaitTimeoutError(still_open(statuses, timeout))
                pause = backoff.after(delay) if poll_interval is None else min(delay, poll_interval)
                backoff.pause(min(pause, left))
                delay *= 1.5

    def get_job(self, job_id: str) -> Job | None:
        """A live handle on a job of this platform, from the store; None when there is none."""
        row = self.store.get_job(job_id)
        return self._handle(row) if row and row["backend_type"] == self.platform else None

    def list_jobs(self, status: str | None = None, limit: int | None = None) -> list[Job]:
        """Jobs of this platform, newest first, from the store."""
        rows = self.store.list_jobs(status, limit=limit, backend_type=self.platform, narrow=True)
        return [self._handle(row) for row in rows]

    # ---------------------------------------------------------------- logs, results, reasons

    def stream_logs(
        self, job_id: str, *, follow: bool = True, tail: int | None = None, cursor: str = ""
    ) -> LogStream:
        """Lines of the log as an iterator that never holds the log in memory."""
        row = self._own_row(job_id)
        has_ended = None
        if follow and row["status"] not in TERMINAL_STATES:
            has_ended = functools.partial(self._is_over, job_id, backoff_of(self.backend, [job_id]))
        job = job_ref(row)
        stream = LogStream(
            self.backend.log_sources(job),
            tail=tail,
            cursor=cursor,
            has_ended=has_ended,
            if_unknown=functools.partial(self.whereabouts.require_here, job),
            poll_seconds=self.backend.poll_seconds,
            owner=self,
        )
        self._streams.add(stream)
        return stream

    def get_job_logs(self, job_id: str, tail: int | None = None) -> str:
        """The log as text; "" for a job that is not known or has written nothing."""
        if not self._is_mine(self.store.get_job(job_id)):
            return ""
        lines = list(self.stream_logs(job_id, follow=False, tail=tail))
        return "\n".join(lines) + "\n" if lines else ""

    def iter_job_log_chunks(self, job_id: str, chunk_size: int = 262_144) -> Iterator[str]:
        """The log in pieces of about `chunk_size` characters."""
        return in_pieces(self.stream_logs(job_id, follow=False), chunk_size)

    def get_failure_analysis(self, job_id: str) -> dict[str, Any] | None:
        """Why the job failed and what to do; None when there is nothing to explain."""
        rows = self._refresher.refresh(self.store.jobs_by_id([job_id]), attend=False)
        row = rows.get(job_id)
        if row is None or row["backend_type"] != self.platform:
            return None
        if row["failure"] is not None:
            return decode(row, "failure")
        if row["phase"] != "submitted" or row["status"] != JobState.PENDING.value:
            return None
        return self._refresher.why_stuck(row)

    def get_job_results_dir(self, job_id: str) -> str:
        """Where the job's results are or will be; "" when unknown."""
        row = self.store.get_job(job_id)
        return str(row["results_dir"]) if row else ""

    def get_checkpoints(self, job_id: str) -> list[str]:
        """Paths or URIs of the checkpoints that the job has written so far, oldest first."""
        from tao_sdk.platforms.handles import checkpoints_of

        row = self.store.get_job(job_id)
        if row is None:
            return []
        return checkpoints_of(row, (lambda: self.backend) if self._is_mine(row) else None)

    def get_job_replicas(self, job_id: str) -> list[dict[str, Any]]:
        """The processes, pods or containers of a job."""
        row = self.store.get_job(job_id)
        if row is None or not self._is_mine(row) or not isinstance(self.backend, ListsReplicas):
            return []
        job = job_ref(row)
        replicas = self.backend.replicas(job)
        if not replicas:
            self.whereabouts.require_here(job)
        return replicas

    def check_path(self, remote_path: str) -> bool:
        """Whether a path exists where jobs run, or a URI. Not being able to ask is an error."""
        if storage := storage_for(remote_path):
            return bool(storage.exists(remote_path))
        return self._browse().check_path(remote_path)

    def list_path(self, remote_path: str) -> list[str]:
        """Names in a folder, seen from where jobs run, or below a URI."""
        if storage := storage_for(remote_path):
            return list(storage.list_names(remote_path))
        return self._browse().list_path(remote_path)

    # ---------------------------------------------------------------- stopping, cleaning

    def cancel_job(self, job_id: str) -> bool:
        """Stop a job. True once it has ended, also when it had ended before."""
        self._reconcile_once()
        rows = self._refresher.refresh(self.store.jobs_by_id([job_id]), attend=True)
        row = rows.get(job_id)
        if not self._is_mine(row) or row is None:
            return False
        if row["status"] in TERMINAL_STATES:
            return True
        if self.whereabouts.at_last_poll(job_id):
            return False
        asked_at = self.store.request_cancel(job_id)
        try:
            self.backend.cancel(job_ref({**row, "cancel_requested_at": asked_at}))
        except BackendUnreachableError:
            # The platform did not get the request: an end by itself must not count as cancelled.
            # A job that is being submitted is cancelled by its submitter.
            if row["phase"] == "submitted" and not row["cancel_requested_at"]:
                self.store.withdraw_cancel(job_id)
            return False
        try:
            limit = stop_seconds(runner=has_runner(decode(row, "request"))) + 10
            return self.wait(job_id, timeout=limit).terminal
        except WaitTimeoutError:
            return False

    def validate_artifact_retention(self, **_platform_kwargs: Any) -> bool:
        """True when results outlive the job, so that cleaning up later is possible."""
        return True

    def delete_job_artifacts(self, job_id: str) -> bool:
        """Remove an ended job's results; the record of the job stays."""
        row = self.store.get_job(job_id)
        if not self._is_mine(row) or row is None or row["status"] not in TERMINAL_STATES:
            return False
        try:
            job = job_ref(row)
            if not isinstance(self.backend, Deletes):
                return False
            self.whereabouts.require_here(job)
            if not self.backend.delete_artifacts(job):
                return False
            remove_from_bucket(job)
        except BackendUnreachableError:
            return False
        self.store.delete_checkpoints(job_id)
        self.store.add_event(job_id, "artifacts_deleted")
        return True

    # ---------------------------------------------------------------- inner workings

    def _get_ready(self) -> None:
        """For a submission: the platform prepared, what others left half submitted settled."""
        self.backend.prepare()  # first: what it starts works while the store is opened
        self._reconcile_once()

    def _poll(self, job_ids: Sequence[str], *, attend: bool) -> dict[str, JobStatus]:
        if attend:
            self._reconcile_once()
        rows = self.store.jobs_by_id(list(job_ids))
        if attend and any(row["phase"] == "submitting" for row in rows.values()):
            self._reconciled = False  # their submitter may have died since
            self._reconcile_once()
            rows = self.store.jobs_by_id(list(job_ids))
        rows = self._refresher.refresh(rows, attend=attend)
        if attend and any(row["cleanup_due"] for row in rows.values()):
            self._refresher.clean_up(_CLEANUP_WAIT_SECONDS)  # another process was acting meanwhile
        from tao_sdk.platforms.handles import status_of

        return {job_id: status_of(job_id, rows.get(job_id), self.platform) for job_id in job_ids}

    def _browse(self) -> Browses:
        if isinstance(self.backend, Browses):
            return self.backend
        raise UnsupportedError(f"paths on {self.platform} cannot be looked at from here")

    def _reconcile_once(self) -> None:
        if self._reconciled:
            return
        with contextlib.suppress(BackendUnreachableError):  # asked again on the next call
            self.reconcile()

    def _is_over(self, job_id: str, backoff: PollBackoff) -> bool:
        """Whether a followed job has ended, or is no longer in the store; polled when due."""
        if not backoff.is_due():
            return False
        try:
            status = self.get_job_status(job_id)
        finally:
            backoff.close()  # no other poll of this thread accepts an older answer
        if why := self.whereabouts.at_last_poll(job_id):
            raise BackendUnreachableError(why)
        return status.terminal or status.status == JobState.UNKNOWN.value

    def _is_mine(self, row: Row | None) -> bool:
        """Can the platform be asked about this job? Not about one that another program recorded."""
        return (
            row is not None and row["backend_type"] == self.platform and row["phase"] != "recorded"
        )

    def _own_row(self, job_id: str) -> Row:
        row = self.store.get_job(job_id)
        if row is None:
            raise JobNotFoundError(f"no job {job_id} in {self.store.path}")
        if row["backend_type"] != self.platform:
            raise JobNotFoundError(
                f"job {job_id} runs on {row['backend_type']}, and this SDK is for {self.platform}"
            )
        if not self._is_mine(row):
            raise UnsupportedError(
                f"job {job_id} was recorded by another program: it can be listed, not asked about"
            )
        return row

    def _handle(self, row: Row) -> Job:
        from tao_sdk.platforms.handles import job_of

        return job_of(row).bind(self)
