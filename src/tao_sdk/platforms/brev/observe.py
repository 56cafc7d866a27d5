"""Asks about jobs: one list of instances, and one program on each that has jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import MISSING, JobRef, Observation
from tao_sdk.platforms.brev.instances import Instances
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.parse import Instance
from tao_sdk.platforms.brev.status import Answer, End, judge, parse_answer
from tao_sdk.platforms.brev.submit import by_instance
from tao_sdk.platforms.bucket_results import records_in_bucket
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.result_record import ResultRecord
from tao_sdk.runner.deliver import DELIVERY_FAILED

_PARALLEL = 8
# Time for an instance to answer about its jobs.
_LOOK_SECONDS = 60.0
_LOOK_SECONDS_EACH = 0.1


class Observer:
    """The present state of jobs. Changes nothing."""

    def __init__(
        self, instances: Instances, machine: Callable[[str], Machine], kept: OutcomeFiles[End]
    ) -> None:
        self._instances = instances
        self._machine = machine
        self._kept = kept
        self.records: dict[str, ResultRecord | None] = {}
        """Of the last jobs that were observed: `result_records` need not ask again."""

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        listed = self._instances.listed()
        self.records = {}
        grouped = list(by_instance(jobs).items())

        def look(group: tuple[str, list[JobRef]]) -> dict[str, Observation]:
            name, mine = group
            return self._observe_on(name, mine, listed.get(name))

        if len(grouped) == 1:  # in the caller's thread, where Ctrl-C is heard at once
            seen = look(grouped[0])
        else:
            with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="tao-brev") as pool:
                looks = pool.map(look, grouped)
                seen = {job_id: one for found in looks for job_id, one in found.items()}
        entries = self._instances.ledger.entries()
        if jobs and any(entry.needs_attention for entry in entries):
            # Only jobs can be due, so one stands for the instances.
            job_id = jobs[0].job_id
            seen[job_id] = seen[job_id]._replace(due=True)
        return seen

    def look(self, name: str, jobs: Sequence[JobRef]) -> Answer:
        """What an instance that runs says about jobs."""
        rows = "".join(f"{job.job_id}\t{job.native['results'] or '-'}\n" for job in jobs)
        seconds = _LOOK_SECONDS + len(jobs) * _LOOK_SECONDS_EACH
        return parse_answer(
            self._machine(name).run("observe", payload=rows.encode() or b"\n", seconds=seconds)
        )

    def _observe_on(
        self, name: str, jobs: Sequence[JobRef], instance: Instance | None
    ) -> dict[str, Observation]:
        kept = {job.job_id: end for job in jobs if (end := self._kept.outcome(job.job_id))}
        observed = {job_id: end.observation for job_id, end in kept.items()}
        rest = [job for job in jobs if job.job_id not in kept]
        others = 0
        if rest and instance is not None and instance.running:
            try:
                answer = self.look(name, rest)
            except BackendUnreachableError as error:
                return observed | _unreachable(rest, str(error))
            observed |= {job.job_id: judge(job.job_id, answer, name) for job in rest}
            self.records |= {job.job_id: answer.records.get(job.job_id) for job in rest}
            kept |= answer.ended
            others = answer.others
        elif instance is None or instance.lost:
            observed |= dict.fromkeys(
                (job.job_id for job in rest), MISSING._replace(message=_loss(name, instance))
            )
        else:
            observed |= _unreachable(rest, not_running(instance))
        return self._with_fate(name, jobs, observed, kept, others)

    def _with_fate(
        self,
        name: str,
        jobs: Sequence[JobRef],
        observed: dict[str, Observation],
        ends: Mapping[str, End],
        others: int,
    ) -> dict[str, Observation]:
        """Say of ended jobs that their instance stays, if it does: it costs money."""
        entry = self._instances.ledger.get(name)
        ended = [job for job in jobs if job.job_id in ends]
        if entry is None or not ended:
            return observed
        fate = entry.without([job.job_id for job in ended], held_results(ended, ends), others).fate
        for job in ended if fate else ():
            seen = observed[job.job_id]
            observed[job.job_id] = seen._replace(message=f"{seen.message}; {fate}")
        return observed


def held_results(jobs: Iterable[JobRef], ends: Mapping[str, End]) -> dict[str, str]:
    """Those of ended jobs whose results are on the instance and nowhere else, and why."""
    held = {}
    for job in jobs:
        if not ends[job.job_id].started_at:
            continue  # it never ran
        if job.native["results"]:
            held[job.job_id] = f"the results are on it: tao-sdk pull {job.job_id[:8]}"
        elif job.results_dir and (why := _undelivered(job, ends[job.job_id])):
            held[job.job_id] = why
    return held


def _undelivered(job: JobRef, end: End) -> str:
    """Why results for a bucket may not be there; "" if they are."""
    try:
        whole = end.exit_code != DELIVERY_FAILED and bool(records_in_bucket(job))
    except BackendUnreachableError as error:
        return f"it is not known whether the results were delivered: {error}"
    return "" if whole else "not all results were delivered; they are in the job's container"


def not_running(instance: Instance) -> str:
    """Why an instance cannot be asked, and what to do."""
    todo = f"brev start {instance.name}" if instance.stopped else "wait, or look at it: brev ls"
    return f"instance {instance.name} is {instance.status.lower() or 'not running'}: {todo}"


def _loss(name: str, instance: Instance | None) -> str:
    if instance is not None and instance.failed:
        return f"its instance {name} failed (Brev says {instance.status}), and the job with it"
    return f"vanished: its instance {name} is gone, and its log"


def _unreachable(jobs: Sequence[JobRef], why: str) -> dict[str, Observation]:
    return {job.job_id: Observation(None, unreachable=why) for job in jobs}
