"""Run folders: what was submitted, what became of it, readable long after the process is gone.

`status_events.jsonl` is the truth: every submission and every observation is appended to it
first. `status.json` and `active_jobs.json` are views of it, replaced whole, and remember in
`events_offset` how much of it they show; whatever is missing from them (a writer was killed, the
file was damaged) is taken from the log again. A lock on the folder keeps several processes from
losing each other's jobs. Nothing secret is stored.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import date, datetime, time
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tao_sdk import file_locks, settings
from tao_sdk.atomic_files import write_private, write_private_json
from tao_sdk.errors import TaoError, ValidationError
from tao_sdk.job_store.deadline import Deadline
from tao_sdk.job_store.network_lock import NetworkLock
from tao_sdk.models import TERMINAL_STATES, Job, JobStatus, utc_now
from tao_sdk.plain_data import parse_json
from tao_sdk.secrets import PLACEHOLDER, Secret, redact
from tao_sdk.spec_serialization import is_numpy_value

__all__ = ["ActionWorkflow", "WorkspaceNotFoundError"]

_log = logging.getLogger(__name__)

# A command above this size carries a packed program: its digest says as much as its text.
_LONGEST_STORED_COMMAND = 4096

_Record = dict[str, Any]


class WorkspaceNotFoundError(TaoError, FileNotFoundError):
    """There is no such run folder."""


class ObservesJobs(Protocol):
    """What `sync_from_sdk` needs of an SDK object."""

    def get_job_status(self, job_id: str) -> JobStatus: ...
    def get_job_logs(self, job_id: str, tail: int | None = None) -> str | None: ...
    def get_failure_analysis(self, job_id: str) -> dict[str, Any] | None: ...


class ActionWorkflow:
    """One run folder, `<root>/<run name>/<timestamp>`, for one job or a chain or sweep of jobs."""

    TERMINAL_STATUSES: ClassVar[frozenset[str]] = TERMINAL_STATES

    def __init__(self, root_dir: str | Path, run_name: str, timestamp: str) -> None:
        root = settings.expanded(root_dir)
        workspace = root / _folder_name("run_name", run_name) / _folder_name("timestamp", timestamp)
        if not workspace.resolve().is_relative_to(root.resolve()):
            raise ValidationError(f"{workspace} leads out of {root} through a link")
        _make_private_folder(workspace)
        self._place_in(workspace)

    @classmethod
    def from_workspace(cls, path: str | Path) -> ActionWorkflow:
        """Open the run folder of an earlier process."""
        workspace = settings.expanded(path)
        if not workspace.is_dir():
            raise WorkspaceNotFoundError(
                f"{workspace} is not a run folder: give the folder that holds status.json"
            )
        workflow = cls.__new__(cls)
        workflow._place_in(workspace)
        return workflow

    def _place_in(self, workspace: Path) -> None:
        self.workspace = workspace
        self.metadata_path = workspace / "metadata.json"
        self.status_path = workspace / "status.json"
        self.events_path = workspace / "status_events.jsonl"
        self.active_jobs_path = workspace / "active_jobs.json"
        self.logs_path = workspace / "latest_logs.txt"
        self.failure_analysis_path = workspace / "failure_analysis.json"

    def write_metadata(self, **metadata: object) -> None:
        """Replace metadata.json by these values and the time."""
        storable = _storable(metadata, settings.known_secrets())
        write_private_json(self.metadata_path, {"updated_at": utc_now(), **storable})

    def write_submission(self, job: Job, specs: object, script_runner: object) -> None:
        """Record a job that was just submitted, beside those of the run that are there already."""
        secrets = settings.known_secrets()
        event = {
            "timestamp": utc_now(),
            "event": "submitted",
            "job_id": job.id,
            "status": job.status,
            "backend_job_id": job.backend_job_id,
            # With these the log alone can rebuild status.json.
            "job": _storable(job, secrets),
            "specs": _storable(specs, secrets),
            "script_runner": _storable_command(script_runner, secrets),
        }
        with self._locked():
            self._commit(event)

    def sync_status(
        self,
        status: JobStatus | str,
        message: str = "",
        logs: str | None = "",
        failure_analysis: Mapping[str, Any] | None = None,
        *,
        job_id: str = "",
    ) -> None:
        """Record what is known about a job now: the one named, or the latest of the run."""
        if not isinstance(status, str):
            job_id = job_id or status.job_id
            message = message or status.message
            status = status.status
        secrets = settings.known_secrets()
        with self._locked():
            job_id = job_id or self._load().latest
            if not job_id:
                raise ValidationError(
                    f"{self.workspace} has no job yet: call write_submission first, "
                    "or name the job with job_id="
                )
            event = {
                "timestamp": utc_now(),
                "event": "status",
                "job_id": job_id,
                "status": str(status),
            }
            if message:
                event["message"] = redact(message, secrets)
            if failure_analysis:
                event["failure_analysis"] = _storable(failure_analysis, secrets)
                write_private_json(self.failure_analysis_path, event["failure_analysis"])
            if logs:
                write_private(self.logs_path, _encodable(redact(logs, secrets)))
            self._commit(event)

    def sync_from_sdk(self, sdk: ObservesJobs, job_id: str, tail: int = 200) -> JobStatus:
        """Ask the SDK about a job, record the answer and return its status."""
        status = sdk.get_job_status(job_id)
        try:
            logs = sdk.get_job_logs(job_id, tail=tail)
            failure_analysis = sdk.get_failure_analysis(job_id)
        except Exception:
            # The status we do have; the caller learns about the rest.
            self.sync_status(status, job_id=job_id)
            raise
        self.sync_status(status, logs=logs, failure_analysis=failure_analysis, job_id=job_id)
        return status

    def read_status(self) -> dict[str, Any]:
        """What status.json says, brought up to date (and repaired) from the event log."""
        with self._locked():
            view = self._load()
            self._write_views(view)
            return view.to_status()

    # -- one writer at a time

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.workspace / ".lock"
        with ExitStack() as held:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.callback(os.close, descriptor)
            try:
                file_locks.lock(descriptor, wait=True)
            except file_locks.NoFileLocksError:
                held.enter_context(NetworkLock(path).held(Deadline.from_settings()))
            yield

    def _commit(self, event: _Record) -> None:
        """Append to the log first: from then on nothing can be lost. Needs the lock."""
        view = self._load()
        self._append(event)
        view.apply(event)
        view.events_offset = self.events_path.stat().st_size
        self._write_views(view)

    def _append(self, event: _Record) -> None:
        line = json.dumps(event, sort_keys=True, allow_nan=False).encode() + b"\n"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(self.events_path, flags, 0o600), "r+b", buffering=0) as log:
            os.fchmod(log.fileno(), 0o600)
            if log.seek(0, os.SEEK_END):
                log.seek(-1, os.SEEK_END)
                if log.read(1) != b"\n":
                    line = b"\n" + line  # the last writer was killed in the middle of a line
            # Unbuffered writes may be short (a full disk), and then must not pass as done.
            if log.write(line) != len(line):
                raise OSError(f"{self.events_path} could not be written completely")
            os.fsync(log.fileno())

    def _write_views(self, view: _View) -> None:
        write_private_json(self.status_path, view.to_status())
        write_private_json(self.active_jobs_path, view.to_active_jobs())

    # -- reading back

    def _load(self) -> _View:
        """The state of the run: status.json, and the events that it does not show yet."""
        log_size = self.events_path.stat().st_size if self.events_path.exists() else 0
        try:
            view = _View.from_status(parse_json(self.status_path.read_bytes()), log_size)
        except FileNotFoundError:
            view = _View()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._move_aside(error)
            view = _View()
        if view.events_offset < log_size:
            for event in self._events_since(view.events_offset):
                view.apply(event)
            view.events_offset = log_size
        return view

    def _move_aside(self, error: Exception) -> None:
        moment = utc_now().replace(":", "")
        aside = self.status_path.with_name(f"status.json.corrupt-{moment}")
        self.status_path.rename(aside)
        _log.warning(
            "%s was damaged (%s): kept as %s and rebuilt from %s",
            self.status_path,
            error,
            aside.name,
            self.events_path.name,
        )

    def _events_since(self, offset: int) -> Iterator[_Record]:
        with self.events_path.open("rb") as log:
            log.seek(offset)
            for line in log:
                try:
                    event = parse_json(line) if line.strip() else None
                except ValueError:
                    _log.warning("%s: skipped a line that is not whole", self.events_path)
                    continue
                if isinstance(event, dict) and event.get("job_id"):
                    yield event


class _View:
    """What the events so far add up to."""

    def __init__(self) -> None:
        self.jobs: dict[str, _Record] = {}
        self.latest = ""
        self.events_offset = 0

    @classmethod
    def from_status(cls, status: _Record, log_size: int) -> _View:
        """Read status.json; one without `jobs` (written by other tools) holds a single job."""
        view = cls()
        view.latest = status["job"]["id"] if "job" in status else ""
        single = {name: status[name] for name in _RECORD_KEYS if name in status}
        view.jobs = dict(status["jobs"]) if "jobs" in status else {view.latest: single}
        if any("id" not in record["job"] for record in view.jobs.values()):
            raise ValueError("a job without an id")
        view.events_offset = min(int(status.get("events_offset", log_size)), log_size)
        return view

    def apply(self, event: _Record) -> None:
        job_id, status, moment = event["job_id"], event.get("status", ""), event.get("timestamp")
        if event.get("event") == "submitted":
            self.latest = job_id
            record = {name: event[name] for name in _RECORD_KEYS if name in event}
            record.setdefault("job", {"id": job_id, "status": status})
            self.jobs[job_id] = {**record, "updated_at": moment}
        elif event.get("event") == "status":
            self.latest = self.latest or job_id
            record = self.jobs.setdefault(job_id, {"job": {"id": job_id}})
            known = record["job"].get("status")
            if known in TERMINAL_STATES and status != known:
                return  # a late observer: an end is final
            record["job"]["status"] = status
            record["job_status"] = {
                "job_id": job_id,
                "status": status,
                "message": event.get("message", ""),
                "updated_at": moment,
            }
            if "failure_analysis" in event:
                record["failure_analysis"] = event["failure_analysis"]
            record["updated_at"] = moment

    def to_status(self) -> _Record:
        """The latest job at the top, as readers of one-job runs expect, and every job below."""
        latest = self.jobs.get(self.latest, {})
        return {
            **{name: latest[name] for name in _RECORD_KEYS if name in latest},
            "updated_at": latest.get("updated_at", ""),
            "jobs": self.jobs,
            "events_offset": self.events_offset,
        }

    def to_active_jobs(self) -> list[_Record]:
        """Every job not known to have ended. `Unknown` is no end: the platform may answer again."""
        active = [
            {
                **{name: record["job"].get(name, "") for name in _ACTIVE_JOB_KEYS},
                "job_id": job_id,
                "updated_at": record.get("updated_at", ""),
            }
            for job_id, record in self.jobs.items()
            if record["job"].get("status") not in TERMINAL_STATES
        ]
        return sorted(active, key=lambda job: (job["created_at"], job["job_id"]))


_RECORD_KEYS = ("job", "specs", "script_runner", "job_status")
_ACTIVE_JOB_KEYS = (
    "backend_job_id",
    "network_arch",
    "action",
    "workspace_id",
    "status",
    "created_at",
)


# -- folders


def _folder_name(parameter: str, name: str) -> str:
    if (
        not isinstance(name, str)
        or name in ("", ".", "..")
        or not name.isprintable()
        or "/" in name
        or "\\" in name
    ):
        raise ValidationError(
            f"{parameter}={name!r} is not a folder name: it must be one part of a path"
        )
    return name


def _make_private_folder(folder: Path) -> None:
    """Create what is missing of the path, for the owner only; leave what exists as it is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


# -- values


def _storable_command(value: object, secrets: list[Secret]) -> Any:
    """A command, or what `build_entrypoint` returns; long ones by digest and length."""
    if isinstance(value, Mapping):
        return {str(key): _storable_command(item, secrets) for key, item in value.items()}
    if isinstance(value, str):
        data = _encodable(value).encode()
        if len(data) > _LONGEST_STORED_COMMAND:
            return {"sha256": hashlib.sha256(data).hexdigest(), "length": len(data)}
    return _storable(value, secrets)


def _storable(value: Any, secrets: list[Secret]) -> Any:
    """Plain, redacted data. A record must not fail on an odd value: the job runs already."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _storable(value.value, secrets)
    if isinstance(value, Secret):
        return PLACEHOLDER
    if isinstance(value, str):
        return redact(str.__str__(value), secrets)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value) if math.isfinite(value) else float.__repr__(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return redact(os.fsdecode(value), secrets)
    if isinstance(value, Mapping):
        return {
            _storable_key(key, secrets): _storable(item, secrets) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return _storable_items(value, secrets)
    if isinstance(value, (set, frozenset)):
        return sorted(
            _storable_items(value, secrets), key=lambda item: (str(type(item)), str(item))
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: _storable(getattr(value, field.name), secrets) for field in fields}
    if is_numpy_value(value):
        plain = value.tolist()
        return _storable(plain if type(plain) is not type(value) else str(plain), secrets)
    return redact(str(value), secrets)


def _storable_items(items: Iterable[object], secrets: list[Secret]) -> list[Any]:
    return [_storable(item, secrets) for item in items]


def _storable_key(key: object, secrets: list[Secret]) -> str:
    return redact(str(key.value if isinstance(key, Enum) else key), secrets)


def _encodable(text: str) -> str:
    """Text with lone surrogates (undecodable bytes of a log) replaced, as UTF-8 has none."""
    return text.encode("utf-8", "replace").decode("utf-8")
