"""From the answers of an instance about jobs to their states: pure."""

from __future__ import annotations

from collections.abc import Sequence
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
from tao_sdk.untrusted import number


@dataclass(frozen=True)
class End:
    """How a job ended, as its supervisor recorded it."""

    exit_code: int | None
    """None for a job that never ran."""
    started_at: str = ""
    ended_at: str = ""
    oom_killed: bool = False
    canceled: bool = False
    why: str = ""
    log_tail: str = ""
    """The end of the log without secrets, if it was read."""

    @classmethod
    def parse(cls, text: str) -> End:
        values = dict(line.partition(" ")[::2] for line in text.splitlines())
        code = values.get("code", "")
        started, ended = (
            container_time(values.get("started", "")),
            container_time(values.get("ended", "")),
        )
        ended = ended or container_time(values.get("now", ""))
        return cls(
            exit_code=number(code),
            # Docker may record the start of a short job after its end.
            started_at=min(started, ended),
            ended_at=ended,
            oom_killed=values.get("oom") == "true",
            canceled=values.get("canceled") == "yes",
            why=values.get("why", "").strip(),
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
            due=True,
        )

    @property
    def _message(self) -> str:
        if self.canceled:
            return "cancelled"
        if self.exit_code is None:
            return self.why or "it ended without a reason"
        if self.exit_code == 0:
            return "completed"
        killed = ", killed because memory ran out" if self.oom_killed else ""
        return f"ended with exit code {self.exit_code}{killed}"

    @property
    def evidence(self) -> Evidence:
        """What explains it; redacted when it was read, because the values to hide go."""
        if self.canceled:
            return Evidence(reason="cancelled")
        return Evidence(
            exit_code=self.exit_code,
            reason="OOMKilled" if self.oom_killed else self.why,
            log_tail=self.log_tail if self.exit_code is not None else "",
            never_started=self.exit_code is None,
            memory_sufficed=not self.oom_killed,
        )


@dataclass
class Answer:
    """What the program `observe` found on an instance."""

    ended: dict[str, End] = field(default_factory=dict)
    open: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Docker's word for the container ("none" without one), and the stage of the supervisor."""
    unattended: set[str] = field(default_factory=set)
    """Open jobs whose supervisor is gone."""
    unknown: set[str] = field(default_factory=set)
    records: dict[str, ResultRecord] = field(default_factory=dict)
    others: int = 0
    """Jobs on that instance that were not asked about, and may still be needed."""
    silent: str = ""
    """Why Docker does not answer there."""


def parse_answer(sections: Sequence[Section]) -> Answer:
    """The answer of the program `observe`."""
    answer = Answer()
    for section in sections:
        job_id, _, rest = section.words.partition(" ")
        if section.name == "ended":
            answer.ended[job_id] = End.parse(section.text)
        elif section.name == "open":
            answer.open[job_id] = (rest, section.text.strip())
        elif section.name == "unattended":
            answer.unattended.add(job_id)
        elif section.name == "unknown":
            answer.unknown.add(job_id)
        elif section.name == "record":
            if record := ResultRecord.parse(section.text, job_id):
                answer.records[job_id] = record
        elif section.name == "others":
            answer.others = number(section.words) or 0
        elif section.name == "silent":
            answer.silent = section.words or "no reason was given"
    return answer


def judge(job_id: str, answer: Answer, instance: str) -> Observation:
    """The state of one job on an instance that answered."""
    if job_id in answer.ended:
        return answer.ended[job_id].observation
    if job_id not in answer.open:
        return MISSING
    if answer.silent:
        why = f"Docker does not answer on instance {instance}: {answer.silent}"
        return Observation(None, unreachable=why)
    container, stage = answer.open[job_id]
    state, message = JobState.PENDING, f"{stage or 'about to begin'} (on {instance})"
    if container == "paused":
        state, message = JobState.PAUSED, ""
    elif container in ("running", "restarting", "removing"):
        state, message = JobState.RUNNING, f"running on {instance}"
    elif container in ("exited", "dead"):
        state, message = JobState.RUNNING, f"ending on {instance}"
    return Observation(state, message, due=job_id in answer.unattended)


def with_log(end: End, log: str, environment: str) -> End:
    """The same, with the end of its log, less the secrets of its environment and of our own."""
    secrets = [*values_in(environment), *settings.known_secrets()]
    return replace(end, log_tail=redact(log, secrets), why=redact(end.why, secrets))
