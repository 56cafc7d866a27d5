"""Plain data: what a job is, what we know about it, what was asked for.

Nothing here talks to a platform. A `Job`'s methods delegate to the `JobClient` that handed it
out; the client is held outside the dataclass fields, so it is neither compared nor stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tao_sdk.errors import CredentialError, TaoError, ValidationError
from tao_sdk.job_states import TERMINAL_STATES, JobState, utc_now, validate_job_id

__all__ = [
    "TERMINAL_STATES",
    "Checkpoint",
    "CredentialError",
    "Job",
    "JobClient",
    "JobState",
    "JobStatus",
    "JobUri",
    "Mount",
    "utc_now",
    "validate_job_id",
]


@dataclass
class JobStatus:
    """What is known about a job, and (in `message`) how well."""

    job_id: str
    status: str
    message: str = ""
    updated_at: str = field(default_factory=utc_now)

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL_STATES

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Checkpoint:
    """A saved model state."""

    path: str
    epoch: int
    metric_name: str = ""
    metric_value: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class JobClient(Protocol):
    """What a `Job` needs of the SDK object that handed it out."""

    @property
    def platform(self) -> str: ...
    @property
    def state_uri_path(self) -> str: ...
    def get_job_status(self, job_id: str) -> JobStatus: ...
    def get_job(self, job_id: str) -> Job | None: ...
    def wait(
        self, job_id: str, timeout: float | None = None, poll_interval: float | None = None
    ) -> JobStatus: ...
    def stream_logs(
        self, job_id: str, *, follow: bool = True, tail: int | None = None, cursor: str = ""
    ) -> Iterator[str]: ...
    def cancel_job(self, job_id: str) -> bool: ...
    def get_failure_analysis(self, job_id: str) -> dict[str, Any] | None: ...


@dataclass
class Job:
    """A durable handle on one job.

    The fields are a snapshot; `refresh()` asks again. `uri` re-attaches from any process:
    `tao_sdk.attach(uri)`.
    """

    id: str
    network_arch: str
    action: str
    workspace_id: str
    backend_type: str = ""
    status: str = JobState.PENDING.value
    created_at: str = field(default_factory=utc_now)
    backend_job_id: str = ""
    parent_job_id: str = ""
    results_dir: str = ""
    local_results_dir: str = ""
    base_checkpoint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, with `id` called `job_id`."""
        fields = asdict(self)
        return {"job_id": fields.pop("id"), **fields}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_client"}

    def bind(self, client: JobClient) -> Job:
        """Let this handle's methods go through `client`. Returns the handle."""
        self.__dict__["_client"] = client
        return self

    @property
    def client(self) -> JobClient:
        client: JobClient | None = self.__dict__.get("_client")
        if client is None:
            raise TaoError(
                f"job {self.id} is a bare record: get a live handle with sdk.get_job(id) "
                "or tao_sdk.attach(uri)"
            )
        return client

    @property
    def uri(self) -> str:
        """`tao://<platform>/<job id>[?state=<store>]`: re-attaches from any process."""
        return str(JobUri(self.client.platform, self.id, self.client.state_uri_path))

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL_STATES

    def refresh(self) -> JobStatus:
        """Ask the platform and bring this snapshot up to date."""
        status = self.client.get_job_status(self.id)
        self._follow(status)
        return status

    def wait(self, timeout: float | None = None, poll_interval: float | None = None) -> JobStatus:
        """Block until the job has ended; raise `WaitTimeoutError` after `timeout` seconds."""
        status = self.client.wait(self.id, timeout=timeout, poll_interval=poll_interval)
        self._follow(status)
        return status

    def logs(
        self, follow: bool = False, tail: int | None = None, cursor: str = ""
    ) -> Iterator[str]:
        """Lines of the log, without holding it in memory; `follow` goes on until the end."""
        return self.client.stream_logs(self.id, follow=follow, tail=tail, cursor=cursor)

    def cancel(self) -> bool:
        """Stop the job. True once it has ended, also when it had ended before."""
        canceled = self.client.cancel_job(self.id)
        self.refresh()
        return canceled

    def explain(self) -> dict[str, Any] | None:
        """Why the job failed and what to do; None when there is nothing to explain."""
        return self.client.get_failure_analysis(self.id)

    def _follow(self, status: JobStatus) -> None:
        stored = self.client.get_job(self.id)
        if stored is not None:
            self.__dict__.update(stored.__getstate__())
        self.status = status.status


class JobUri(NamedTuple):
    """The address of a job: which platform, which id, which store."""

    platform: str
    job_id: str
    state: str = ""

    def __str__(self) -> str:
        query = f"?state={quote(self.state)}" if self.state else ""
        return f"tao://{self.platform}/{quote(self.job_id)}{query}"

    @classmethod
    def parse(cls, text: str) -> JobUri:
        try:
            parts = urlsplit(text)
        except ValueError:  # a half of [an address]
            parts = urlsplit("")
        platform, job_id = parts.netloc, unquote(parts.path.strip("/"))
        if parts.scheme != "tao" or not platform or not job_id:
            raise ValidationError(
                f"{text!r} is not a job address: expected tao://<platform>/<job id>"
            )
        state = parse_qs(parts.query).get("state", [""])[0]
        return cls(platform, validate_job_id(job_id), state)


_MOUNT_SOURCE_KEYS = ("source", "host_path", "from", "from_path", "src")
_MOUNT_TARGET_KEYS = ("target", "container_path", "mount_path", "path")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Mount:
    """A folder of the platform made visible to the job."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, value: Mount | str | Mapping[str, Any], where: str = "mounts") -> Mount:
        """Accept a `Mount`, `"src[:dst[:ro|rw]]"`, or a mapping with any of the usual names."""
        if isinstance(value, Mount):
            return value
        if isinstance(value, str):
            # The colon of a scheme (pvc://claim) is part of the source.
            scheme, mark, path = value.partition("://")
            if not scheme.isalnum():
                scheme, mark, path = "", "", value
            source, _, rest = path.partition(":")
            source = scheme + mark + source
            target, _, mode = rest.partition(":")
            if not source or mode not in ("", "ro", "rw"):
                raise ValidationError(f"{where}: {value!r} is not 'source[:target[:ro|rw]]'")
            return cls(source, target or source, mode == "ro")
        if isinstance(value, Mapping):
            found_source = _first_of(value, _MOUNT_SOURCE_KEYS)
            found_target = _first_of(value, _MOUNT_TARGET_KEYS)
            if not found_source or not found_target:
                raise ValidationError(
                    f"{where}: a mount needs a source ({', '.join(_MOUNT_SOURCE_KEYS)}) and "
                    f"a target ({', '.join(_MOUNT_TARGET_KEYS)}); got {sorted(value)}"
                )
            read_only = bool(value.get("read_only")) or value.get("mode") == "ro"
            return cls(str(found_source), str(found_target), read_only)
        raise ValidationError(f"{where}: {type(value).__name__} is not a mount")


def _first_of(mapping: Mapping[str, _T], names: tuple[str, ...]) -> _T | None:
    return next((mapping[name] for name in names if mapping.get(name)), None)
