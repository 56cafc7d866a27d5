"""From a plan to a job on an instance, and what became of one whose client is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.platforms.backend import JobRef, Plan, Submission
from tao_sdk.platforms.brev import plan as planning
from tao_sdk.platforms.brev.instances import Instances, refuse_unfit
from tao_sdk.platforms.brev.ledger import Entry
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.offers import FOR_A_CLOUD
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.remote.framing import table

_READY_FOR_SECONDS = 300.0


class Launcher:
    """Brings jobs to instances."""

    def __init__(self, instances: Instances, machine: Callable[[str], Machine]) -> None:
        self._instances = instances
        self._machine = machine
        self._ready: dict[str, float] = {}

    def submit(self, plan: Plan) -> Submission:
        _, place = plan.payload
        if place.offer is None:
            self._check_running(place.instance)
            self._be_ready(place.instance, new=False)
            return self._send(place.instance, [plan])[plan.job_id]
        self._order(plan, place)
        try:
            self._be_ready(place.instance, new=True)
            return self._send(place.instance, [plan])[plan.job_id]
        except (SubmissionRejectedError, CapacityError) as error:
            self._instances.discard(place.instance, f"its job could not be launched: {error}")
            raise

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        """Those for one instance that is there go to it in one archive."""
        grouped: dict[str, list[Plan]] = {}
        for plan in plans:
            if not plan.intent["ephemeral"]:
                grouped.setdefault(plan.intent["instance"], []).append(plan)
        found: dict[str, Submission] = {}
        for instance, mine in grouped.items():
            if len(mine) > 1 and self._can_take_jobs(instance):
                found.update(self._send(instance, mine))
        return found

    def _can_take_jobs(self, name: str) -> bool:
        """If not, nothing was sent: each job is told by itself what is wrong."""
        try:
            self._check_running(name)
            self._be_ready(name, new=False)
        except (SubmissionRejectedError, BackendUnreachableError):
            return False
        return True

    def _order(self, plan: Plan, place: planning.Place) -> None:
        options: BrevOptions = plan.request.options
        offer = place.offer
        assert offer is not None, "somebody asked for a new one"  # noqa: S101 - our own mistake
        extra = []
        for name in FOR_A_CLOUD:
            if value := getattr(options, name):
                extra += [f"--{name.replace('_', '-')}", value]
        entry = Entry(
            name=place.instance,
            job_id=plan.job_id,
            type=offer.type,
            price=offer.price,
            made_at=time.time(),
            keep=bool(options.keep),
            max_hours=options.max_hours,
            idle_minutes=options.idle_minutes,
        )
        try:
            self._instances.order(entry, extra)
        except (SubmissionRejectedError, CapacityError) as error:
            self._instances.discard(place.instance, str(error))
            raise

    def _check_running(self, name: str) -> None:
        """Not by asking the instance: `brev exec` would start one that was stopped."""
        instance = self._instances.listed(fresh=False).get(name)
        if instance is None:
            raise SubmissionRejectedError(f"there is no instance {name} any more")
        if instance.stopped:
            raise SubmissionRejectedError(
                f"instance {name} is {instance.status.lower()}: brev start {name}"
            )

    def _be_ready(self, name: str, *, new: bool) -> None:
        if time.monotonic() - self._ready.get(name, -_READY_FOR_SECONDS) < _READY_FOR_SECONDS:
            return
        answer = self._instances.wait_until_ready(
            self._machine(name),
            self._instances.ready_seconds(new=new),
            lambda machine: machine.run("probe", seconds=30.0),
        )
        refuse_unfit(answer)
        self._ready[name] = time.monotonic()

    def _send(self, name: str, plans: Sequence[Plan]) -> dict[str, Submission]:
        """Bring jobs to an instance that is ready, and have them started there."""
        self._instances.use(name)
        machine = self._machine(name)
        staged = planning.archive(plan.payload[0] for plan in plans)
        told = {
            "archive": machine.upload(staged, plans[0].identity.token),
            "jobs": "".join(f"{plan.job_id} {plan.identity.token}\n" for plan in plans),
        }
        answer = machine.run("submit", told, seconds=120.0)
        found = {}
        for section in answer:
            if section.name == "submitted":
                found[section.words] = section
            elif section.name == "withdrawn":
                raise SubmissionRejectedError("another process declared this job never submitted")
            else:
                raise BackendUnreachableError(f"instance {name}: {section.words}")
        if set(found) != {plan.job_id for plan in plans}:
            raise BackendUnreachableError(f"instance {name} gave no answer that makes sense")
        where = f"on instance {name}"
        return {plan.job_id: Submission(plan.identity.name, plan.intent, where) for plan in plans}

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        listed = self._instances.listed()
        settled: dict[str, Submission | None] = {}
        for name, mine in by_instance(jobs).items():
            instance = listed.get(name)
            if instance is None or (mine[0].native["ephemeral"] and not instance.running):
                # Nothing can have begun on it, and nothing will: the one who would is gone.
                settled.update(dict.fromkeys((job.job_id for job in mine), None))
            elif instance.running:
                settled.update(self._settle_on(name, mine))
            # One that is stopped, or being started, cannot say.
        for job in jobs:
            if job.native["ephemeral"] and settled.get(job.job_id, job) is None:
                self._instances.discard(job.native["instance"], "its job was never submitted")
        return settled

    def _settle_on(self, name: str, jobs: Sequence[JobRef]) -> dict[str, Submission | None]:
        rows = table((job.job_id, job.identity.token) for job in jobs)
        try:
            answer = self._machine(name).run("settle", payload=rows)
        except BackendUnreachableError:
            return {}
        by_id = {job.job_id: job for job in jobs}
        settled: dict[str, Submission | None] = {}
        for section in answer:
            job = by_id[section.words]
            taken = Submission(job.identity.name, job.native, f"adopted, on instance {name}")
            settled[job.job_id] = taken if section.name == "adopted" else None
        return settled


def by_instance(jobs: Sequence[JobRef]) -> dict[str, list[JobRef]]:
    """Jobs by the name of the instance that they are on."""
    found: dict[str, list[JobRef]] = {}
    for job in jobs:
        found.setdefault(str(job.native["instance"]), []).append(job)
    return found
