"""What an attending process does: save what goes with an instance, remove credentials, clean up.

All of it may run in several processes at once, and may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.brev.instances import UNSEEN, Instances
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.observe import Observer, held_results
from tao_sdk.platforms.brev.parse import Instance
from tao_sdk.platforms.brev.status import End, with_log
from tao_sdk.platforms.brev.submit import by_instance
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.remote.framing import table

_log = logging.getLogger("tao_sdk.brev")
_EVIDENCE_AT_ONCE = 50


class Advancer:
    """Acts for jobs that are due, and for the instances of the store."""

    def __init__(
        self,
        instances: Instances,
        machine: Callable[[str], Machine],
        kept: OutcomeFiles[End],
        observer: Observer,
    ) -> None:
        self._instances = instances
        self._machine = machine
        self._kept = kept
        self._observer = observer

    def advance(self, jobs: Sequence[JobRef]) -> list[str]:
        """The jobs that need nothing more. What goes wrong on one instance stops no other."""
        listed = self._instances.listed(fresh=False)
        done = []
        for name, mine in by_instance(jobs).items():
            try:
                if self._advance_on(name, mine, listed.get(name)):
                    done += [job.job_id for job in mine]
            except (BackendUnreachableError, OSError) as error:  # a full disk here, say
                _log.warning("instance %s: %s", name, error)
        self._instances.tend()
        return done

    def _advance_on(self, name: str, jobs: Sequence[JobRef], instance: Instance | None) -> bool:
        """Whether nothing is left to do."""
        if instance is None or instance.going:
            return True
        entry = self._instances.ledger.get(name)
        if instance.failed:
            lost = [job.job_id for job in jobs]
            held = {job.job_id: "it failed, with results" for job in jobs if job.native["results"]}
            return self._instances.release(name, lost, held, 0)
        if not instance.running:
            return False
        machine = self._machine(name)
        if entry is None:
            # It is not ours, and stays as it is.
            _tend_jobs(machine, jobs)
            return True
        answer = self._observer.look(name, jobs)
        ended = [job for job in jobs if job.job_id in answer.ended]
        self._save(machine, ended)
        held = held_results(ended, answer.ended)
        held |= {job_id: UNSEEN for job_id in answer.unknown if self._kept.outcome(job_id) is None}
        _tend_jobs(machine, jobs)
        over = [job.job_id for job in jobs if job.job_id not in answer.open]
        return not over or self._instances.release(name, over, held, answer.others)

    def _save(self, machine: Machine, jobs: Sequence[JobRef]) -> None:
        """Bring here what would go with the instance: how jobs ended, and their logs."""
        missing = [job for job in jobs if self._kept.outcome(job.job_id) is None]
        for job_id, end in ends_of(machine, missing).items():
            self._kept.keep(job_id, end, _whole_log(machine, job_id))


def ends_of(machine: Machine, jobs: Sequence[JobRef]) -> dict[str, End]:
    """How jobs ended, with what may be quoted of their logs."""
    ends: dict[str, End] = {}
    for start in range(0, len(jobs), _EVIDENCE_AT_ONCE):
        rows = table((job.job_id,) for job in jobs[start : start + _EVIDENCE_AT_ONCE])
        found: dict[str, dict[str, str]] = {}
        for section in machine.run("evidence", payload=rows):
            if section.name == "job":
                found[section.words] = current = {}
            else:
                current[section.name] = section.text
        for job_id, parts in found.items():
            if "end" in parts:
                end = End.parse(parts["end"])
                # Without its environment it is not known what in its log is secret.
                ends[job_id] = with_log(end, parts["log"], parts["env"]) if "env" in parts else end
    return ends


def _tend_jobs(machine: Machine, jobs: Sequence[JobRef]) -> None:
    """Remove the credentials of jobs that ended, and start the lost supervisors of others."""
    machine.run("tend", payload=table((job.job_id,) for job in jobs))


def _whole_log(machine: Machine, job_id: str) -> Iterator[bytes]:
    variables = {"job_id": job_id, "from": "0", "tail": "", "limit": str(1 << 62)}
    with machine.stream("logs", variables) as answer:
        while (section := answer.next_section()) is not None:
            if section[0] == "log":
                yield from iter(answer.read, b"")
