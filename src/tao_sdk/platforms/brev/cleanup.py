"""The end of jobs on instances that were made for them: what is saved, and what goes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.brev.instances import Instances
from tao_sdk.platforms.brev.ledger import KEPT, Entry
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.status import End, with_log
from tao_sdk.platforms.bucket_results import records_in_bucket
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.remote.framing import table
from tao_sdk.runner.deliver import DELIVERY_FAILED

_EVIDENCE_AT_ONCE = 50
# How long the end of a job is not told because its instance could not be deleted yet: whoever
# waits, waits on, and it is tried again.
PATIENCE_SECONDS = 300.0


def ends_of(machine: Machine, jobs: Sequence[JobRef]) -> dict[str, End]:
    """How jobs ended, with what may be quoted of their logs."""
    ends: dict[str, End] = {}
    for start in range(0, len(jobs), _EVIDENCE_AT_ONCE):
        rows = table((job.job_id,) for job in jobs[start : start + _EVIDENCE_AT_ONCE])
        said: dict[str, dict[str, str]] = {}
        for section in machine.run("evidence", payload=rows):
            if section.name == "job":
                said[section.words] = current = {}
            else:
                current[section.name] = section.text
        for job_id, told in said.items():
            if "end" in told:
                end = End.parse(told["end"])
                # Without its environment nobody knows what in its log is secret.
                ends[job_id] = with_log(end, told["log"], told["env"]) if "env" in told else end
    return ends


def save(kept: OutcomeFiles[End], machine: Machine, jobs: Sequence[JobRef]) -> None:
    """Bring here what would go with the instance: how jobs ended, and their logs."""
    missing = [job for job in jobs if kept.outcome(job.job_id) is None]
    ends = ends_of(machine, missing) if missing else {}
    for job_id, end in ends.items():
        kept.keep(job_id, end, _whole_log(machine, job_id))
    if ends:
        machine.run("clean", payload=table((job_id,) for job_id in ends))


def _whole_log(machine: Machine, job_id: str) -> Iterator[bytes]:
    told = {"job_id": job_id, "from": "0", "tail": "", "limit": str(1 << 62)}
    with machine.stream("logs", told) as answer:
        while (section := answer.next_section()) is not None:
            if section[0] == "log":
                yield from iter(answer.read, b"")


def held_results(jobs: Iterable[JobRef], kept: OutcomeFiles[End]) -> dict[str, str]:
    """Jobs whose results are on the instance and nowhere else: why."""
    held = {}
    for job in jobs:
        end = kept.outcome(job.job_id)
        if end is None or not end.started_at:
            continue  # it never ran
        if job.native["results"]:
            held[job.job_id] = f"the results are on it: tao-sdk pull {job.job_id[:8]}"
        elif job.results_dir and (why := _undelivered(job, end)):
            held[job.job_id] = why
    return held


def _undelivered(job: JobRef, end: End) -> str:
    """Why results for a bucket may not be there; "" when they are."""
    try:
        whole = end.exit_code != DELIVERY_FAILED and bool(records_in_bucket(job))
    except BackendUnreachableError as error:
        return f"nobody could say whether the results were delivered: {error}"
    return "" if whole else "not all results were delivered; they are in the job's container"


class Release:
    """What becomes of an instance of ours when jobs on it have ended."""

    def __init__(self, instances: Instances, entry: Entry) -> None:
        self._instances = instances
        self._entry = entry

    def decide(self, held: dict[str, str], others: int) -> tuple[str, bool]:
        """What is to be said, and whether the jobs' end may be told."""
        entry = self._entry
        holds = tuple(sorted({*entry.holds, *held}))
        self._instances.ledger.change(entry.name, holds=holds)
        if others:
            why = f"{others} other jobs are on it"
        elif entry.keep:
            why = "keep=True"
        elif holds:
            why = next(iter(held.values()), entry.why)
        else:
            return self._give_up()
        self._instances.keep(entry.name, why)
        return f"instance {entry.name} is kept ({entry.cost}): {why}", True

    def _give_up(self) -> tuple[str, bool]:
        name = self._entry.name
        if self._instances.discard(name, "its job has ended"):
            return "", True
        now = self._instances.ledger.get(name)
        waited = time.time() - now.since if now else PATIENCE_SECONDS
        told = f"instance {name} could not be deleted and costs money ({self._entry.cost})"
        return f"{told}: brev delete {name}", waited >= PATIENCE_SECONDS


def no_longer_held(instances: Instances, job: JobRef) -> None:
    """A job's results are wherever they were wanted: its instance is not kept for them."""
    entry = instances.ledger.get(str(job.native["instance"]))
    if entry is None or job.job_id not in entry.holds:
        return
    left = tuple(held for held in entry.holds if held != job.job_id)
    instances.ledger.change(entry.name, holds=left)
    if not left and entry.state == KEPT and not entry.keep:
        instances.discard(entry.name, "the results were fetched")
