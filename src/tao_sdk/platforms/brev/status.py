"""From what an instance says about jobs to their states: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tao_sdk import settings
from tao_sdk.failures import Evidence
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import MISSING, Observation
from tao_sdk.platforms.common.credentials import values_in
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.result_record import ResultRecord
from tao_sdk.secrets import redact


@dataclass(frozen=True)
class End:
    """How a job ended, as its supervisor wrote it down."""

    exit_code: int | None
    """None for a job that never ran."""
    started_at: str = ""
    ended_at: str = ""
    oom_killed: bool = False
    canceled: bool = False
    why: str = ""
    log_tail: str = ""
    """The end of the log, secrets left out; where it was read."""

    @classmethod
    def parse(cls, text: str) -> End:
        said = dict(line.partition(" ")[::2] for line in text.splitlines())
        code = said.get("code", "")
        started, ended = (
            container_time(said.get("started", "")),
            container_time(said.get("ended", "")),
        )
        ended = ended or container_time(said.get("now", ""))
        return cls(
            exit_code=int(code) if code.isdigit() else None,
            # Docker notes a start when it has heard of it, which may be after the end.
            started_at=min(started, ended),
            ended_at=ended,
            oom_killed=said.get("oom") == "true",
            canceled=said.get("canceled") == "yes",
            why=said.get("why", "").strip(),
        )

    @property
    def observation(self) -> Observation:
        state = JobState.COMPLETE if self.exit_code == 0 else JobState.ERROR
        return Observation(
            JobState.CANCELED if self.canceled else state,
            self._message,
            None if self.canceled else self.exit_code,
            self.started_at,
            self.ended_at,
            cancel_aware=True,
        )

    @property
    def _message(self) -> str:
        if self.canceled:
            return "cancelled"
        if self.exit_code is None:
            return self.why or "it ended and left no word"
        if self.exit_code == 0:
            return "completed"
        killed = ", killed for want of memory" if self.oom_killed else ""
        return f"ended with exit code {self.exit_code}{killed}"

    @property
    def evidence(self) -> Evidence:
        """What explains it, redacted when it was read: the values to hide go with the instance."""
        if self.canceled:
            return Evidence(reason="cancelled")
        return Evidence(
            exit_code=self.exit_code,
            reason="OOMKilled" if self.oom_killed else self.why,
            log_tail=self.log_tail if self.exit_code is not None else "",
            never_started=self.exit_code is None,
            memory_sufficed=not self.oom_killed,
        )


@dataclass(frozen=True)
class Answer:
    """What one look at an instance has told."""

    ended: Mapping[str, End]
    open: Mapping[str, tuple[str, str]]
    """Docker's word for the container ("none" without one), and what the supervisor is at."""
    unknown: frozenset[str]
    records: Mapping[str, ResultRecord]
    others: int = 0
    """How many jobs are on that instance that were not asked about, and may still be wanted."""
    silent: str = ""
    """Why Docker does not answer there."""


@dataclass
class _Reading:
    ended: dict[str, End] = field(default_factory=dict)
    open: dict[str, tuple[str, str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    records: dict[str, ResultRecord] = field(default_factory=dict)


def parse_answer(sections: Sequence[Section]) -> Answer:
    """The answer of the program `observe`."""
    read, others, silent = _Reading(), 0, ""
    for section in sections:
        job_id, _, rest = section.words.partition(" ")
        if section.name == "ended":
            read.ended[job_id] = End.parse(section.text)
        elif section.name == "open":
            read.open[job_id] = (rest, section.text.strip())
        elif section.name == "unknown":
            read.unknown.add(job_id)
        elif section.name == "record":
            if record := ResultRecord.parse(section.text, job_id):
                read.records[job_id] = record
        elif section.name == "others":
            others = int(section.words or 0)
        elif section.name == "silent":
            silent = section.words or "it does not say why"
    return Answer(read.ended, read.open, frozenset(read.unknown), read.records, others, silent)


def judge(job_id: str, answer: Answer, instance: str) -> Observation:
    """The state of one job on an instance that has answered."""
    if job_id in answer.ended:
        return answer.ended[job_id].observation
    if job_id not in answer.open:
        return MISSING
    if answer.silent:
        told = f"Docker does not answer on instance {instance}: {answer.silent}"
        return Observation(None, unreachable=told)
    container, phase = answer.open[job_id]
    if container in ("running", "paused", "restarting", "removing"):
        state = JobState.PAUSED if container == "paused" else JobState.RUNNING
        return Observation(state, f"running on {instance}" if state is JobState.RUNNING else "")
    if container in ("exited", "dead"):
        return Observation(JobState.RUNNING, f"ending on {instance}")
    return Observation(JobState.PENDING, f"{phase or 'about to begin'} (on {instance})")


def with_log(end: End, log: str, environment: str) -> End:
    """The same, with the end of its log, less the secrets of its environment and of our own."""
    secrets = [*values_in(environment), *settings.known_secrets()]
    return replace(end, log_tail=redact(log, secrets), why=redact(end.why, secrets))
