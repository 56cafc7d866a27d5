"""The seam between the SDK and a platform.

`PlatformSDK` (sdk.py) is the whole public interface, written once. A platform supplies a
`Backend`: a handful of primitives over one thin transport. Nothing above this line knows how a
platform works; nothing below it knows about stores, handles or waiting.

What a backend may assume, and what it must keep:

* `plan` is pure: it looks, it never creates. `submit` runs exactly that plan.
* `submit` is called once per plan, and its process may die at any point. `settle` then finds out
  what became of the submission. If it answers "nothing", the job must never start later.
* `observe` answers for all its jobs in one round trip. It reports a job as `MISSING` only if the
  platform could be asked.
* Every job counts as the platform's own. Where another daemon, cluster or machine may have it, the
  platform `Locates` its jobs, and the code above the seam asks.
* Every call raises `BackendUnreachableError` if the platform could not be asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from tao_sdk.bundle.recognition import without_bundle
from tao_sdk.job_states import JobState
from tao_sdk.platforms.request import JobRequest
from tao_sdk.result_record import ResultRecord

if TYPE_CHECKING:
    from tao_sdk.platforms.evidence import RawEvidence


class CallLog:
    """Counts round trips, so that tests and benchmarks can state them."""

    def __init__(self, remembered: int = 10_000) -> None:
        self._recent: deque[str] = deque(maxlen=remembered)
        self._total = 0

    def record(self, what: str) -> None:
        self._recent.append(what)
        self._total += 1

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> Iterator[str]:
        """The most recent calls by name, oldest first."""
        return iter(tuple(self._recent))


class Transport(Protocol):
    """How a backend reaches its platform; every round trip is recorded in `calls`."""

    calls: CallLog


class JobIdentity(NamedTuple):
    """The names of a job before it exists: enough to find it again after a crash."""

    job_id: str
    token: str

    @classmethod
    def new(cls) -> JobIdentity:
        import uuid  # here, because commands that only look need none

        return cls(str(uuid.uuid4()), uuid.uuid4().hex)

    @property
    def name(self) -> str:
        return f"tao-job-{self.job_id}"


class Artefact(NamedTuple):
    """One thing that a submission hands to the platform, secrets left out."""

    name: str
    text: str


class Plan:
    """Exactly what would run. The only thing that `submit` accepts.

    Not a tuple, so that code which walks through values (JSON, say) never reaches the payload.
    """

    def __init__(
        self,
        identity: JobIdentity,
        platform: str,
        request: JobRequest,
        artefacts: tuple[Artefact, ...] | Callable[[], tuple[Artefact, ...]],
        intent: Mapping[str, Any],
        results_dir: str = "",
        local_results_dir: str = "",
        warnings: tuple[str, ...] = (),
        payload: Any = None,
    ) -> None:
        self.identity = identity
        self.platform = platform
        self.request = request
        self._artefacts = artefacts
        self.intent = intent
        """Where the platform will keep the job; stored before submission, for `settle`."""
        self.results_dir = results_dir
        self.local_results_dir = local_results_dir
        self.warnings = warnings
        self.payload = payload
        """What `submit` hands over. May hold secrets: never printed, never stored."""

    def __repr__(self) -> str:
        return f"Plan({self.identity.name} on {self.platform})"

    def with_artefact(self, artefact: Artefact) -> Plan:
        """The same plan, showing one more thing."""
        same = {name: value for name, value in vars(self).items() if name != "_artefacts"}
        return Plan(**same, artefacts=lambda: (*self.artefacts, artefact))

    @property
    def artefacts(self) -> tuple[Artefact, ...]:
        """What the platform gets; rendered on first use."""
        if callable(self._artefacts):
            self._artefacts = self._artefacts()
        return self._artefacts

    @property
    def job_id(self) -> str:
        return self.identity.job_id

    def to_dict(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "name": self.identity.name,
            "platform": self.platform,
            "request": self.request.to_dict(),
            "results_dir": self.results_dir,
            "warnings": list(self.warnings),
            "artefacts": {artefact.name: artefact.text for artefact in self.artefacts},
        }

    def render(self) -> str:
        """The plan as text for a person."""
        parts = [f"{self.identity.name} on {self.platform}"]
        if self.results_dir:
            parts.append(f"results: {self.results_dir}")
        for artefact in self.artefacts:
            text = without_bundle(artefact.text.rstrip("\n"))
            body = "\n".join(f"  {line}" for line in text.split("\n"))
            parts.append(f"{artefact.name}:\n{body}")
        parts.extend(f"note: {warning}" for warning in self.warnings)
        return "\n".join(parts)


class Submission(NamedTuple):
    """The platform has the job: its own name for it, and what is needed to find it."""

    backend_job_id: str
    native: Mapping[str, Any]
    message: str = ""


class JobRef(NamedTuple):
    """The facts about a job that a backend needs."""

    identity: JobIdentity
    native: Mapping[str, Any]
    results_dir: str = ""
    cancel_requested_at: str = ""
    """When the user asked for its end: distinguishes a cancelled job from a failed one. See also
    `observation.caused_by_cancel`.
    """

    @property
    def job_id(self) -> str:
        return self.identity.job_id

    @property
    def cancel_requested(self) -> bool:
        return bool(self.cancel_requested_at)


class Attempt(NamedTuple):
    """One submission of a job to its platform."""

    number: int
    cause: str = ""
    """Why it was made: "infra" or "preempted"; empty for the first."""
    excluded: tuple[str, ...] = ()
    """Nodes that it must not run on."""
    native_id: str = ""


class RetryLimits(NamedTuple):
    """How often a platform's jobs are submitted again, and after which delay."""

    budget: int
    """Attempts after the first, for each cause."""
    pause_seconds: float
    """Before the first retry of an infrastructure failure; doubles with each further one."""
    setting: str = ""
    """The variable that sets the budget, for messages."""


class Observation(NamedTuple):
    """The state of one job at one moment, as the platform reports it.

    `state` None means that the platform was reached and has no such job; its message then says
    what may have become of the job, in case it is lost. `unreachable` means that the platform could
    not be asked about this one job (because it is on another machine, say).
    """

    state: JobState | None
    message: str = ""
    exit_code: int | None = None
    started_at: str = ""
    ended_at: str = ""
    unreachable: str = ""
    absent: bool = False
    """The state only follows from the absence of the job: it counts unless the job is elsewhere."""
    cancel_aware: bool = False
    """The platform itself distinguishes a cancelled job from a failed one."""
    due: bool = False
    """`advance` has something to do for this job, which may have ended."""
    attempts: tuple[Attempt, ...] = ()
    """Its submissions, oldest first, where the platform can resubmit it; empty where it cannot."""
    fault: str = ""
    """The cause of this end according to the platform: "infra", "preempted" or "program"; empty if
    only the explanation shows it.
    """
    node: str = ""
    """The node to blame, when the platform names exactly one."""

    @property
    def is_absence(self) -> bool:
        """Whether the platform answered, and does not know the job."""
        return self.absent or (self.state is None and not self.unreachable)


MISSING = Observation(state=None)
CANCELED_AND_GONE = Observation(JobState.CANCELED, "cancelled", absent=True, cancel_aware=True)


class LogLine(NamedTuple):
    """One line without its newline, and the position in its source behind it."""

    text: str
    cursor: str


class LogChunk(NamedTuple):
    """Some lines of one source of a log."""

    lines: tuple[LogLine, ...]
    more: bool
    """True when another read would return lines at once."""
    cursor: str
    """The position behind these lines, also when there are none."""
    start: str = ""
    """The position before them. Where a log has several sources, each must name it."""


class LogReader(Protocol):
    """Chunks of one source. The iterator blocks until there are lines, and ends with the source."""

    def __iter__(self) -> Iterator[LogChunk]: ...

    def __next__(self) -> LogChunk: ...

    def close(self) -> None:
        """End reading, from any thread; a blocked `next` returns. Harmless to repeat."""


class LogSource(Protocol):
    """One stream of a job's log: the output of a rank, a container or a whole job.

    The platform is not contacted before `open`. `common.polled_log.PolledLog` is a source for
    platforms that return a log chunk by chunk.
    """

    rank: int
    ends_with_job: bool
    """Whether a followed reader ends by itself when the job does."""

    def open(self, position: str, *, tail: int | None, follow: bool) -> LogReader:
        """Read from a position on. If it is empty, read from the start, or the last `tail` lines.

        A reader that follows waits for further lines, and holds back a last line without a newline.
        Other readers stop at the end of the log, unfinished line included. With a `tail`, the first
        chunk comes at once, because the position may be known from it alone.
        """


class Backend(ABC):
    """The primitives that every platform supplies; optional abilities are in capabilities.py."""

    platform: ClassVar[str]
    poll_seconds: ClassVar[float] = 2.0
    """How often a waiting caller polls; a poll is one round trip for any number of jobs."""
    submit_parallelism: ClassVar[int] = 4
    transport: Transport

    @abstractmethod
    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        """Describe exactly what `submit` would do. Looks, never creates."""

    def prepare(self) -> None:  # noqa: B027 - most platforms have nothing to prepare
        """Make what must exist before the first job is written down. A place that is missing later
        is then known to be lost, not merely new. Harmless to repeat.
        """

    def provide(self, plans: Sequence[Plan]) -> None:  # noqa: B027 - most have nothing that takes long
        """Do slow work before these plans are submitted: fetch their images, rent machines.

        Called before the jobs are written down: a row that waits half an hour for an image would
        look like an abandoned submission. `submit` reports what cannot be had.
        """

    def withdraw(self, plans: Sequence[Plan]) -> None:  # noqa: B027 - most provide nothing that costs
        """Give back what `provide` got for plans that will not be submitted after all."""

    @abstractmethod
    def submit(self, plan: Plan) -> Submission:
        """Start the job.

        Raises `SubmissionRejectedError` or `CapacityError` if certainly nothing was started. After
        any other exception the outcome is in doubt, and `settle` is called.
        """

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        """Start many jobs in fewer steps. Those left out of the answer are submitted singly.

        After an exception the outcome of all is in doubt, and `settle` is called.
        """
        del plans
        return {}

    @abstractmethod
    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        """Find out what became of these submissions, whose submitting process is gone.

        None promises that the job has not started and never will. Jobs that the platform cannot be
        asked about are left out of the answer.
        """

    @abstractmethod
    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        """The present state of all these jobs, in one round trip. Looks, never acts."""

    @abstractmethod
    def cancel(self, job: JobRef) -> None:
        """Ask the platform to stop the job. Returns at once; `observe` shows when it has."""

    @abstractmethod
    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        """The streams that make up a job's log, at least one, always the same for a job."""

    @abstractmethod
    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        """Everything that explains ended jobs, while the platform still knows them. Only looks.

        Jobs that the platform cannot be asked about are left out of the answer; a job without any
        evidence has `Evidence()`. Nothing is redacted here: see `platforms/evidence.py`.
        """

    @abstractmethod
    def result_records(self, job: JobRef) -> list[ResultRecord]:
        """The records that the job itself left where only the platform can read them, by rank.

        Not those in a bucket, which need no platform: see `bucket_results.py`.
        """
