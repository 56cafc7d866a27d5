"""Answers of `observe.sh`, parsed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from tao_sdk.platforms.backend import Attempt
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.result_record import ResultRecord
from tao_sdk.untrusted import number

# In any other state a job is alive: it runs, or will. New ones come with releases of Slurm.
# fmt: off
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}
# fmt: on

_MAX_CODE = 0xFFFF_FFFF
_MOST_ROWS = 100_000
"""Of one answer: a damaged range of an array must not fill the memory."""


class QueueRow(NamedTuple):
    """A line of squeue."""

    id: str
    state: str
    reason: str
    start: str
    nodes: str
    name: str


class Ended(NamedTuple):
    """A job in Slurm's accounting, or in the controller's memory."""

    id: str
    name: str
    state: str
    exit_code: int | None
    signal: int
    nodes: str
    by: str = ""
    """The user who cancelled it, by number or name."""
    restarts: int | None = None
    """How often it was requeued, if known."""


class Claim(NamedTuple):
    """What the batch script of one attempt recorded."""

    submission: int
    restart: int
    owner: str
    exit_code: int | None
    at_limit: bool
    canceled: bool
    """Whether it was asked to stop while it ran."""


class JobFiles(NamedTuple):
    """The files of a job that is not in the queue."""

    attempts: tuple[Attempt, ...] = ()
    """Its submissions, oldest first."""
    claims: tuple[Claim, ...] = ()
    records: tuple[ResultRecord, ...] = ()
    """Of the last attempt."""
    status_line: str = ""
    has_credentials: bool = False
    """Whether the file with the values of its variables is still there."""


_Row = TypeVar("_Row", QueueRow, Ended)


class Answer(NamedTuple):
    """One answer of the cluster."""

    queue: dict[str, list[QueueRow]]
    """By name and by number."""
    files: dict[str, JobFiles]
    ended: dict[str, list[Ended]]
    """Likewise; newer rows come later."""
    away: dict[str, str]
    """Why some jobs cannot be judged from here."""
    silent: str = ""
    """Why accounting did not answer; a job that is not found may then still exist."""
    queue_text: bytes = b""
    """The answer of squeue as it came."""

    def files_of(self, job_id: str) -> JobFiles:
        return self.files.get(job_id, JobFiles())


def parse_answer(sections: Iterable[Section]) -> Answer:
    """Parse the answer of `observe.sh`."""
    queue = b""
    ended: list[Ended] = []
    grouped: dict[str, list[Section]] = {}
    away: dict[str, str] = {}
    job = silent = ""
    for section in sections:
        if section.name == "away":
            job_id, _, why = section.words.partition(" ")
            away[job_id] = why
        elif section.name == "silent":
            silent = section.words
        elif section.name == "queue":
            queue = section.data
        elif section.name == "job":
            job = section.words
            grouped[job] = []
        elif section.name == "accounting":
            told = list(islice(_accounting(section.text), _MOST_ROWS + 1))
            ended.extend(told[:_MOST_ROWS])
            if len(told) > _MOST_ROWS:
                silent = "accounting names more jobs than there can be"
        elif section.name == "controller":
            ended.extend(_controller(section.text))
        elif job:
            grouped[job].append(section)
    files = {job_id: _files(job_id, parts) for job_id, parts in grouped.items()}
    rows = _queue_rows(queue.decode("utf-8", "replace"))
    return Answer(_indexed(rows), files, _indexed(ended), away, silent, queue)


def _indexed(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    """By name and by id, as there may be thousands of jobs."""
    found: dict[str, list[_Row]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(row)
        found.setdefault(row.id, []).append(row)
    return found


def _queue_rows(text: str) -> Iterable[QueueRow]:
    for line in text.splitlines():
        parts = line.split("|")
        id_ = _of_first_component(parts[0].strip())
        if len(parts) == 6 and id_:
            yield QueueRow(id_, *(part.strip() for part in parts[1:]))


def _accounting(text: str) -> Iterable[Ended]:
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != 5:
            continue
        id_, name, state, code, nodes = parts
        exit_code, signal = exit_status(code)
        by = state.partition(" by ")[2]
        for one in task_ids(_of_first_component(id_)):
            yield Ended(one, name, state_word(state), exit_code, signal, nodes, by)


def _of_first_component(id_: str) -> str:
    """The id of `7+0`, which runs the batch script of a heterogeneous job; "" for others."""
    number, _, component = id_.partition("+")
    return number if component in ("", "0") else ""


def task_ids(text: str) -> Iterator[str]:
    """Each task of `7_[0-2,5%1]`, the id of tasks that never began; any other id as it is."""
    array, bracket, rest = text.partition("_[")
    if not bracket and text:
        yield text
    for part in rest.rstrip("]").partition("%")[0].split(","):
        begin, _, end = part.partition("-")
        first, last = number(begin), number(end or begin)
        if first is not None and last is not None:
            yield from (f"{array}_{task}" for task in range(first, last + 1))


def _controller(text: str) -> Iterable[Ended]:
    for line in text.splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if "JobId" not in fields:
            continue
        id_ = fields["JobId"]
        if "ArrayJobId" in fields and number(fields.get("ArrayTaskId", "")) is not None:
            id_ = f"{fields['ArrayJobId']}_{fields['ArrayTaskId']}"
        exit_code, signal = exit_status(fields.get("ExitCode", "0:0"))
        yield Ended(
            id_,
            fields.get("JobName", ""),
            state_word(fields.get("JobState", "")),
            exit_code,
            signal,
            fields.get("NodeList", ""),
            restarts=number(fields.get("Restarts", "")),
        )


def state_word(text: str) -> str:
    """`CANCELLED by 1000`, `RUNNING+` and the like as one word."""
    words = text.split()
    return words[0].rstrip("+") if words else ""


def exit_status(text: str) -> tuple[int, int]:
    """Slurm's `code:signal`."""
    code, _, signal = text.partition(":")
    return number(code, _MAX_CODE) or 0, number(signal, _MAX_CODE) or 0


def _files(job_id: str, sections: Iterable[Section]) -> JobFiles:
    has_credentials = False
    attempts: dict[int, Attempt] = {}
    claims: list[Claim] = []
    records: list[ResultRecord] = []
    status_line = ""
    for section in sections:
        if section.name == "credentials":
            has_credentials = True
        elif section.name == "submissions":
            noted = (_attempt(line) for line in section.text.splitlines())
            attempts = {attempt.number: attempt for attempt in noted if attempt}
        elif section.name == "claim":
            if claim := _claim(section.words):
                claims.append(claim)
        elif section.name == "record":
            if record := ResultRecord.parse(section.text, job_id):
                records.append(record)
        elif section.name == "status":
            status_line = section.text.strip()
    claims.sort()
    begun = [claim for claim in claims if number(claim.owner[:1]) is not None]
    for claim in begun:
        # If one was submitted twice, the copy that claimed it counts; one whose submitter died
        # before it noted it is known by its claim alone.
        attempt = attempts.get(claim.submission, Attempt(claim.submission))
        attempts[claim.submission] = attempt._replace(native_id=claim.owner)
    return JobFiles(
        tuple(attempts[number] for number in sorted(attempts)),
        tuple(claims),
        # An attempt's number is how many had begun, itself included.
        tuple(record for record in records if record.attempt >= len(begun)),
        status_line,
        has_credentials,
    )


def _attempt(line: str) -> Attempt | None:
    """A line `<number> <Slurm's id> [<cause> [<excluded nodes>]]`; None if it is cut off."""
    words = line.split()
    attempt = number(words[0]) if len(words) > 1 else None
    if attempt is None:
        return None
    _, native_id, cause, excluded = [*words, "", ""][:4]
    return Attempt(attempt, cause, tuple(filter(None, excluded.split(","))), native_id)


def _claim(words: str) -> Claim | None:
    """`<token>.<submission>.<restart> <owner> <exit code or -> <at limit> <canceled>`."""
    parts = words.split()
    if len(parts) != 5:
        return None
    name, owner, code, limit, canceled = parts
    submission, _, restart = map(number, name.partition(".")[2].partition("."))
    if submission is None or restart is None:
        return None  # a right to submit, not an attempt
    size = number(code.removeprefix("-"), _MAX_CODE)
    exit_code = -size if size is not None and code.startswith("-") else size
    return Claim(submission, restart, owner, exit_code, limit == "yes", canceled == "yes")
