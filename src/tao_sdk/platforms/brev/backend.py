"""The Brev platform: one list of instances, one program on each that has jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    Backend,
    JobIdentity,
    JobRef,
    LogSource,
    Observation,
    Plan,
    Submission,
)
from tao_sdk.platforms.brev import plan as planning
from tao_sdk.platforms.brev.advance import Advancer, ends_of
from tao_sdk.platforms.brev.client import BrevClient, NotLoggedInError
from tao_sdk.platforms.brev.instances import Instances, Listener
from tao_sdk.platforms.brev.ledger import Ledger, organization_differs
from tao_sdk.platforms.brev.logs import log_source
from tao_sdk.platforms.brev.machine import Machine, clear_leftovers
from tao_sdk.platforms.brev.observe import Observer, not_running
from tao_sdk.platforms.brev.offers import fitting_offers
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.parse import Instance
from tao_sdk.platforms.brev.status import End
from tao_sdk.platforms.brev.submit import Submitter, by_instance
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.mounts import results_mount
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.remote.result_listing import parse_names, parse_sizes
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import storage_for
from tao_sdk.result_record import ResultRecord

if TYPE_CHECKING:
    from tao_sdk.results import ResultSource


class BrevBackend(Backend):
    """Runs jobs on instances."""

    platform = "brev"
    poll_seconds = 5.0
    transport: BrevClient

    def __init__(self, folder: Path, listener: Listener) -> None:
        """`folder` is for files beside the store."""
        self.transport = BrevClient(folder)
        self.kept = OutcomeFiles(folder / "kept", End, outcome_name="end.json", log_name="log")
        self._outgoing = folder / "outgoing"
        ledger = Ledger(folder / "instances")
        self.instances = Instances(self.transport, ledger, self.machine, listener)
        self._submitter = Submitter(self.instances, self.machine)
        self._observer = Observer(self.instances, self.machine, self.kept)
        self._advancer = Advancer(self.instances, self.machine, self.kept, self._observer)

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
        return Plan(
            identity=identity,
            platform=self.platform,
            request=request,
            artefacts=planning.artefacts(staged, request, place),
            intent={
                "instance": place.instance,
                "ephemeral": place.ephemeral,
                "organization": self.instances.organization(fresh=False),
                "results": mount.source if mount else "",
            },
            results_dir=results_dir,
            warnings=planning.notes(request, place, results_dir),
            payload=(staged, place),
        )

    def _place(self, request: JobRequest, job_id: str) -> planning.Place:
        options: BrevOptions = request.options
        if options.instance_id:
            return planning.Place(self.instances.find(options.instance_id).name)
        offers = fitting_offers(self.transport, options, request.gpu_count)
        return planning.Place(f"tao-{job_id[:8]}", offers)

    def provide(self, plans: Sequence[Plan]) -> None:
        self._submitter.provide(plans)

    def withdraw(self, plans: Sequence[Plan]) -> None:
        self._submitter.withdraw(plans)

    def submit(self, plan: Plan) -> Submission:
        return self._submitter.submit(plan)

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        return self._submitter.submit_together(plans)

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        return self._submitter.settle(jobs)

    # ------------------------------------------------------------------ watching

    def observe(self, jobs: Sequence[JobRef]) -> Mapping[str, Observation]:
        return self._observer.observe(jobs)

    def elsewhere(self, jobs: Sequence[JobRef]) -> Mapping[str, str]:
        active = self.instances.organization()
        return {
            job.job_id: (
                f"the job was given to another organisation ({known}) than the active one "
                f"({active}): choose it with `brev set`"
            )
            for job in jobs
            if organization_differs(known := job.native.get("organization", ""), active)
        }

    def advance(self, jobs: Sequence[JobRef]) -> Collection[str]:
        return self._advancer.advance(jobs)

    def cancel(self, job: JobRef) -> None:
        name = job.native["instance"]
        if self.kept.outcome(job.job_id) is None and self._is_running(name):
            self.machine(name).run("cancel", {"job_id": job.job_id})

    def log_sources(self, job: JobRef) -> Sequence[LogSource]:
        return [log_source(job, self.kept, self.machine, self.why_silent)]

    def evidence(self, jobs: Sequence[JobRef]) -> Mapping[str, RawEvidence]:
        ends = {job.job_id: end for job in jobs if (end := self.kept.outcome(job.job_id))}
        asked = [job for job in jobs if job.job_id not in ends]
        listed = self.instances.listed() if asked else {}
        silent = set()
        for name, mine in by_instance(asked).items():
            instance = listed.get(name)
            if instance is not None and instance.running:
                ends |= ends_of(self.machine(name), mine)
            elif instance is not None and not instance.lost:
                silent |= {job.job_id for job in mine}  # it may be started again
        return {
            job.job_id: RawEvidence(ends[job.job_id].evidence if job.job_id in ends else Evidence())
            for job in jobs
            if job.job_id not in silent
        }

    def result_records(self, job: JobRef) -> list[ResultRecord]:
        if job.job_id in self._observer.records:
            record = self._observer.records.pop(job.job_id)
        else:
            instance = self._reachable(job.native["instance"]) if job.native["results"] else None
            if instance is None:
                return []
            record = self._observer.look(instance.name, [job]).records.get(job.job_id)
        return [record] if record else []

    def result_files(self, job: JobRef) -> Mapping[str, int]:
        name = job.native["instance"]
        if not job.native["results"] or not self._is_running(name):
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
        instance, results = self._reachable(job.native["instance"]), job.native["results"]
        if instance is not None:
            variables = {
                "job_id": job.job_id,
                "results": f"{results}/{job.job_id}" if results else "",
            }
            answer = self.machine(instance.name).run("delete", variables)
            if not any(section.name == "done" for section in answer):
                return False
            self.results_fetched(job)
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
        """Give up what killed clients left: instances, and files that may hold secrets."""
        clear_leftovers(self._outgoing)
        self.instances.tend(unwatched=unwatched)

    def results_fetched(self, job: JobRef) -> None:
        """A job's results are where they were wanted: its instance is not kept for them."""
        self.instances.no_longer_holds(str(job.native["instance"]), job.job_id)

    def machine(self, name: str) -> Machine:
        return Machine(self.transport, name, self._outgoing)

    def why_silent(self, name: str, loss: str) -> str:
        """Why an instance cannot be asked, and if it is gone the loss; "" for one that runs."""
        instance = self.instances.listed(fresh=False).get(name)
        if instance is None or instance.going:
            return f"instance {name} is gone: {loss}"
        return "" if instance.running else not_running(instance)

    def _is_running(self, name: str) -> bool:
        """Whether an instance runs, by a list that may be some seconds old."""
        instance = self.instances.listed(fresh=False).get(name)
        return instance is not None and instance.running

    def _reachable(self, name: str) -> Instance | None:
        """An instance that runs; None if it is lost. Raises if it may run again."""
        instance = self.instances.listed().get(name)
        if instance is None or instance.lost:
            return None
        if not instance.running:
            raise BackendUnreachableError(not_running(instance))
        return instance

    def _remote_path(self, where: str, path: str) -> tuple[Machine | None, str]:
        """`brev://instance/path` taken apart; no machine for an instance that is gone."""
        name, slash, rest = path.removeprefix("brev://").partition("/")
        if storage_for(path) or not path.startswith("brev://") or not name or not slash:
            raise ValidationError(
                f"{where}: {path!r} names no instance: give brev://instance/absolute/path, or "
                "s3://bucket/key"
            )
        if "\n" in rest or "\0" in rest:
            raise ValidationError(f"{where}: {path!r} must be one line")
        instance = self._reachable(name)
        return (None if instance is None else self.machine(name)), f"/{rest}"


def _refuse_denied(answer: Section, path: str) -> None:
    if answer.name == "denied":
        raise PlatformError(f"{path}: permission denied on the instance")
