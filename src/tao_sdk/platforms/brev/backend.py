"""The Brev platform: one list of instances, one program on each that jobs are on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import (
    BackendUnreachableError,
    CredentialError,
    PlatformError,
    ValidationError,
)
from tao_sdk.failures import Evidence
from tao_sdk.job_states import JobState
from tao_sdk.platforms.backend import (
    MISSING,
    Backend,
    JobIdentity,
    JobRef,
    LogChunk,
    LogSource,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.brev import cleanup
from tao_sdk.platforms.brev import plan as planning
from tao_sdk.platforms.brev.client import BrevClient
from tao_sdk.platforms.brev.errors import NotLoggedInError
from tao_sdk.platforms.brev.instances import Instances, Listener
from tao_sdk.platforms.brev.ledger import Ledger
from tao_sdk.platforms.brev.logs import chunk_of, parse_cursor
from tao_sdk.platforms.brev.machine import Machine, clear_leftovers
from tao_sdk.platforms.brev.offers import best_offer
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.parse import Instance
from tao_sdk.platforms.brev.status import Answer, End, judge, parse_answer
from tao_sdk.platforms.brev.submit import Launcher, by_instance
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.log_files import read_chunk
from tao_sdk.platforms.common.mounts import results_mount
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.remote.framing import Section, table
from tao_sdk.platforms.remote.result_listing import parse_names, parse_sizes
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import storage_for
from tao_sdk.result_record import ResultRecord

if TYPE_CHECKING:
    from tao_sdk.results import ResultSource

_PARALLEL = 8
# How long an instance may take to tell about its jobs.
_LOOK_SECONDS = 60.0
_LOOK_SECONDS_EACH = 0.1


class BrevBackend(Backend):
    """Runs jobs on instances."""

    platform = "brev"
    poll_seconds = 5.0
    transport: BrevClient

    def __init__(self, folder: Path, listener: Listener) -> None:
        """`folder` is for what is kept beside the store."""
        self.transport = BrevClient(folder)
        self.kept = OutcomeFiles(folder / "kept", End, outcome_name="end.json", log_name="log")
        self.instances = Instances(self.transport, Ledger(folder / "instances"), listener)
        self._outgoing = folder / "outgoing"
        self._launcher = Launcher(self.instances, self.machine)
        self._unknown: dict[str, ResultRecord | None] = {}

    # ------------------------------------------------------------------ submitting

    def plan(self, request: JobRequest, identity: JobIdentity) -> Plan:
        planning.refuse_impossible(request)
        try:
            self.transport.check()
            place = self._place(request, identity.job_id)
        except NotLoggedInError as error:
            raise CredentialError(str(error)) from error
        staged = planning.stage(request, identity)
        results_dir = planning.results_address(request, place, identity.job_id)
        mount = results_mount(request.options.mounts)
        offer = place.offer
        return Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=planning.artefacts(staged, request, place),
            intent={
                "instance": place.instance,
                "ephemeral": place.ephemeral,
                "results": mount.source if mount else "",
                "type": offer.type if offer else "",
                "price": offer.price if offer else None,
                "keep": bool(request.options.keep),
            },
            results_dir=results_dir,
            warnings=planning.notes(request, place, results_dir),
            payload=(staged, place),
        )

    def _place(self, request: JobRequest, job_id: str) -> planning.Place:
        options: BrevOptions = request.options
        if options.instance_id:
            return planning.Place(self.instances.find(options.instance_id).name)
        offer = best_offer(self.transport, options, request.gpu_count)
        return planning.Place(f"tao-{job_id[:8]}", offer)

    def submit(self, plan: Plan) -> Submission:
        return self._launcher.submit(plan)

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        return self._launcher.submit_together(plans)

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        return self._launcher.settle(jobs)

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        listed = self.instances.listed()
        self.instances.tend(listed)
        self._unknown = {}
        grouped = list(by_instance(jobs).items())

        def look(group: tuple[str, list[JobRef]]) -> dict[str, Observation]:
            name, mine = group
            return self._observe_on(name, mine, listed.get(name))

        if len(grouped) == 1:  # by ourselves: Ctrl-C is heard at once
            return look(grouped[0])
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="tao-brev") as pool:
            looks = pool.map(look, grouped)
            return {job_id: seen for found in looks for job_id, seen in found.items()}

    def _observe_on(
        self, name: str, jobs: Sequence[JobRef], instance: Instance | None
    ) -> dict[str, Observation]:
        kept = {job.job_id: end for job in jobs if (end := self.kept.outcome(job.job_id))}
        observed = {job_id: end.observation for job_id, end in kept.items()}
        rest = [job for job in jobs if job.job_id not in kept]
        answer = None
        if rest and instance is not None and instance.running:
            try:
                answer = self._look(name, rest)
            except BackendUnreachableError as error:
                return observed | _unreachable(rest, str(error))
            observed |= {job.job_id: judge(job.job_id, answer, name) for job in rest}
            self._unknown |= {job.job_id: answer.records.get(job.job_id) for job in rest}
        elif instance is not None and not instance.going:
            observed |= _unreachable(rest, _not_running(instance))
        else:
            gone = MISSING._replace(message=f"vanished: its instance {name} is gone, and its log")
            observed |= {job.job_id: gone for job in rest}
        return self._close(name, jobs, observed, instance, answer)

    def _close(
        self,
        name: str,
        jobs: Sequence[JobRef],
        observed: dict[str, Observation],
        instance: Instance | None,
        answer: Answer | None,
    ) -> dict[str, Observation]:
        """What must happen before the end of jobs is told: their instance may go with it."""
        ended = [job for job in jobs if (state := observed[job.job_id].state) and state.terminal]
        entry = self.instances.ledger.get(name)
        if entry is None or instance is None or not instance.running or not ended:
            return observed
        machine = self.machine(name)
        try:
            cleanup.save(self.kept, machine, ended)
            others = (answer or self._look(name, ())).others
        except (BackendUnreachableError, OSError) as error:  # a full disk here, say
            return observed | _unreachable(ended, f"it has ended; its log is not here yet: {error}")
        open_jobs = len(jobs) - len(ended)
        held = cleanup.held_results(ended, self.kept)
        told, may_be_told = cleanup.Release(self.instances, entry).decide(held, others + open_jobs)
        if not may_be_told:
            return observed | _unreachable(ended, f"it has ended; {told}")
        for job in ended:
            seen = observed[job.job_id]
            if told:
                observed[job.job_id] = seen._replace(message=f"{seen.message}; {told}")
        return observed

    def _look(self, name: str, jobs: Sequence[JobRef]) -> Answer:
        rows = "".join(f"{job.job_id}\t{job.native['results'] or '-'}\n" for job in jobs)
        seconds = _LOOK_SECONDS + len(jobs) * _LOOK_SECONDS_EACH
        return parse_answer(
            self.machine(name).run("observe", payload=rows.encode() or b"\n", seconds=seconds)
        )

    def cancel(self, job: JobRef) -> None:
        name = job.native["instance"]
        if self.kept.outcome(job.job_id) is not None or not self.is_running(name):
            return
        self.machine(name).run("cancel", {"job_id": job.job_id})

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        return [PolledLog(partial(self._read_log, job))]

    def _read_log(
        self, job: JobRef, *, cursor: str, tail: int | None, limit: int, flush: bool
    ) -> LogChunk:
        if self.kept.outcome(job.job_id) is not None:
            kept = self.kept.log(job.job_id)
            return read_chunk(kept, cursor=cursor, tail=tail, limit=limit, flush=flush)
        start = parse_cursor(cursor)
        name = job.native["instance"]
        if why := self.why_silent(name, "its log was not brought here"):
            raise BackendUnreachableError(why)
        told = {
            "job_id": job.job_id,
            "from": str(start or 0),
            "tail": "" if tail is None or start is not None else str(tail),
            "limit": str(limit),
        }
        return chunk_of(self.machine(name).run("logs", told), flush=flush)

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        found = {}
        asked = []
        for job in jobs:
            if end := self.kept.outcome(job.job_id):
                found[job.job_id] = RawEvidence(end.evidence)
            else:
                asked.append(job)
        if not asked:
            return found
        listed = self.instances.listed()
        for name, mine in by_instance(asked).items():
            instance = listed.get(name)
            if instance is None or instance.going:
                found.update({job.job_id: RawEvidence(Evidence()) for job in mine})
            elif instance.running:
                ends = cleanup.ends_of(self.machine(name), mine)
                for job in mine:
                    end = ends.get(job.job_id)
                    found[job.job_id] = RawEvidence(end.evidence if end else Evidence())
                self._clean(mine)
        return found

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        if job.job_id in self._unknown:
            # Asked for a job that `observe` has just missed: it need not be read again.
            record = self._unknown.pop(job.job_id)
        elif job.native["results"]:
            instance = self.instances.listed().get(job.native["instance"])
            if instance is None or instance.going:
                return []
            if not instance.running:
                raise BackendUnreachableError(_not_running(instance))
            record = self._look(instance.name, [job]).records.get(job.job_id)
        else:
            return []
        return [record] if record else []

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        name = job.native["instance"]
        if not job.native["results"] or not self.is_running(name):
            return {}
        path = f"{job.native['results']}/{job.job_id}"
        [answer] = self.machine(name).run("files", {"path": path})
        return parse_sizes(answer.data)

    def result_source(self, job: JobRef) -> ResultSource | None:
        if not job.native["results"]:
            return None
        from tao_sdk.platforms.brev.results import BrevResults

        return BrevResults(self, job)

    def replicas(self, job: JobRef) -> list[dict[str, Any]]:
        seen = self.observe([job])[job.job_id]
        return [
            {
                "id": job.identity.name,
                "rank": 0,
                "status": (seen.state or JobState.UNKNOWN).value,
                "node": job.native["instance"],
                "reason": seen.unreachable or seen.message,
            }
        ]

    def delete_artifacts(self, job: JobRef) -> bool:
        name, results = job.native["instance"], job.native["results"]
        instance = self.instances.listed().get(name)
        if instance is not None and not instance.going:
            if not instance.running:
                raise BackendUnreachableError(_not_running(instance))
            told = {"job_id": job.job_id, "results": f"{results}/{job.job_id}" if results else ""}
            if not any(part.name == "done" for part in self.machine(name).run("delete", told)):
                return False
            self.pulled(job)
        self.kept.remove(job.job_id)
        return True

    def check_path(self, path: str) -> bool:
        machine, asked = self._remote_path("check_path", path)
        if machine is None:
            return False
        [answer] = machine.run("paths", payload=f"{asked}\n".encode())
        _refuse_denied(answer, asked)
        return answer.name != "missing"

    def list_path(self, path: str) -> list[str]:
        machine, asked = self._remote_path("list_path", path)
        if machine is None:
            return []
        [answer] = machine.run("list", {"path": asked})
        _refuse_denied(answer, asked)
        return parse_names(answer, path)

    # ------------------------------------------------------------------ instances

    def tend(self, unwatched: Collection[str]) -> None:
        """Give up what nobody wants, wherever its clients have gone: instances, files."""
        clear_leftovers(self._outgoing)
        self.instances.tend(unwatched=unwatched)

    def pulled(self, job: JobRef) -> None:
        """A job's results are wherever they were wanted: its instance is not kept for them."""
        cleanup.no_longer_held(self.instances, job)

    def machine(self, name: str) -> Machine:
        return Machine(self.transport, name, self._outgoing)

    # ------------------------------------------------------------------ inner workings

    def is_running(self, name: str) -> bool:
        """Says the list, which may be some seconds old."""
        instance = self.instances.listed(fresh=False).get(name)
        return instance is not None and instance.running

    def why_silent(self, name: str, loss: str) -> str:
        """Why an instance cannot be asked; what that means if it is gone. "" for one that runs."""
        instance = self.instances.listed(fresh=False).get(name)
        if instance is None or instance.going:
            return f"instance {name} is gone: {loss}"
        return "" if instance.running else _not_running(instance)

    def _remote_path(self, where: str, path: str) -> tuple[Machine | None, str]:
        """`brev://instance/path` taken apart; no machine for an instance that is gone."""
        name, slash, rest = path.removeprefix("brev://").partition("/")
        if storage_for(path) or not path.startswith("brev://") or not name or not slash:
            raise ValidationError(
                f"{where}: {path!r} is a path of nobody knows which instance: give "
                "brev://instance/absolute/path, or s3://bucket/key"
            )
        if "\n" in rest or "\0" in rest:
            raise ValidationError(f"{where}: {path!r}: a path of one line, please")
        instance = self.instances.listed().get(name)
        if instance is None or instance.going:
            return None, f"/{rest}"
        if not instance.running:
            raise BackendUnreachableError(_not_running(instance))
        return self.machine(name), f"/{rest}"

    def _clean(self, jobs: Sequence[JobRef]) -> None:
        """Take away the credentials of jobs that have ended on instances that stay."""
        for name, mine in by_instance(jobs).items():
            self.machine(name).run("clean", payload=table((job.job_id,) for job in mine))


def _not_running(instance: Instance) -> str:
    todo = f"brev start {instance.name}" if instance.stopped else "wait, or look at it: brev ls"
    return f"instance {instance.name} is {instance.status.lower() or 'not running'}: {todo}"


def _unreachable(jobs: Sequence[JobRef], why: str) -> dict[str, Observation]:
    return {job.job_id: Observation(None, unreachable=why) for job in jobs}


def _refuse_denied(answer: Section, path: str) -> None:
    if answer.name == "denied":
        raise PlatformError(f"{path}: permission denied on the instance")
