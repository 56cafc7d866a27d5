"""From a plan to a job on an instance, and what became of one whose client is gone."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue

from tao_sdk.errors import BackendUnreachableError, SubmissionRejectedError
from tao_sdk.platforms.backend import JobRef, Plan, Submission
from tao_sdk.platforms.brev import plan as planning
from tao_sdk.platforms.brev.instances import Instances
from tao_sdk.platforms.brev.ledger import ORDERED, Entry
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.offers import CREATE_FLAGS
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.remote.framing import table

_READY_FOR_SECONDS = 300.0
_ORDERS_AT_ONCE = 8
_RENEW_SECONDS = 60.0


class Submitter:
    """Brings jobs to instances.

    An instance for a new job is ordered and waited for before the job is written down (`provide`).
    Until then the ledger alone knows it, with the process that waits; that process is its owner.
    """

    def __init__(self, instances: Instances, machine: Callable[[str], Machine]) -> None:
        self._instances = instances
        self._machine = machine
        self._ready: dict[str, float] = {}
        self._refusals: dict[Plan, Exception] = {}
        self._provided: set[str] = set()
        """Instances that were ordered for plans which are not submitted yet."""

    # ------------------------------------------------------------------ before the row

    def provide(self, plans: Sequence[Plan]) -> None:
        """Have the instances of these plans made; `submit` reports those that cannot be had."""
        wanted = deque(plan for plan in plans if plan.intent["ephemeral"])
        stop = threading.Event()
        ended: SimpleQueue[None] = SimpleQueue()

        def work() -> None:
            try:
                while not stop.is_set():
                    self._provide(wanted.popleft(), stop)
            except IndexError:  # nothing is wanted any more
                return
            finally:
                ended.put(None)

        try:
            if len(wanted) < 2:
                work()  # in the caller's thread, where Ctrl-C is heard at once
                return
            threads = [
                threading.Thread(target=work, name=f"tao-brev-{number}", daemon=True)
                for number in range(min(_ORDERS_AT_ONCE, len(wanted)))
            ]
            for thread in threads:
                thread.start()
            for _ in threads:
                while not _ends_within(ended, _RENEW_SECONDS):
                    self._renew_all()
        except BaseException:
            stop.set()
            self.withdraw(plans)
            raise

    def _provide(self, plan: Plan, stop: threading.Event) -> None:
        options: BrevOptions = plan.request.options
        _, place = plan.payload
        name, offer = place.instance, place.offers[0]
        entry = Entry(
            name=name,
            job_id=plan.job_id,
            type=offer.type,
            price=offer.price,
            made_at=time.time(),
            keep=options.keep,
            max_hours=options.max_hours,
            idle_minutes=options.idle_minutes,
            state=ORDERED,
            organization=plan.intent["organization"],
        )
        flags = [
            word
            for option in CREATE_FLAGS
            if (value := getattr(options, option))
            for word in (f"--{option.replace('_', '-')}", value)
        ]
        self._refusals.pop(plan, None)  # of an earlier attempt
        self._provided.add(name)
        try:
            if not self._instances.ledger.order(entry):
                self._provided.discard(name)
                why = f"instance {name} was ordered for this plan before: make a new plan"
                self._refusals[plan] = SubmissionRejectedError(why)
                return
            self._instances.order(name, place.offers, flags)
            self._instances.wait_until_ready(name, new=True, stop=stop)
        except Exception as error:  # noqa: BLE001 - a full disk, say: `submit` raises it
            self._refusals[plan] = error
            self._provided.discard(name)
            why = f"its job could not be launched: {error}"
            self._instances.discard(name, why, only_ordered=True)

    def _renew_all(self) -> None:
        for name in tuple(self._provided):
            self._instances.ledger.change(name, renewed_at=time.time())

    def withdraw(self, plans: Sequence[Plan]) -> None:
        """Delete instances that were ordered for plans which are not submitted after all."""
        for plan in plans:
            name = plan.intent["instance"]
            if name in self._provided:
                self._provided.discard(name)
                self._instances.discard(name, "its job was not submitted", only_ordered=True)

    # ------------------------------------------------------------------ submitting

    def submit(self, plan: Plan) -> Submission:
        refusal = self._refusals.pop(plan, None)
        if refusal is not None:
            raise refusal
        name = plan.intent["instance"]
        if not plan.intent["ephemeral"]:
            self._check_ready(name)
        try:
            return self._send(name, [plan])[plan.job_id]
        except SubmissionRejectedError as error:
            if plan.intent["ephemeral"]:
                self._instances.discard(name, f"its job could not be launched: {error}")
            raise

    def submit_together(self, plans: Sequence[Plan]) -> Mapping[str, Submission]:
        """Jobs for one instance that is there go to it in one archive."""
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
        """If not, nothing is sent: the jobs are submitted singly, and each reports the reason."""
        try:
            self._check_ready(name)
        except (SubmissionRejectedError, BackendUnreachableError):
            return False
        return True

    def _check_ready(self, name: str) -> None:
        """Raise unless an instance that was there before runs and can take jobs."""
        # From the list: `brev exec` would start one that was stopped.
        instance = self._instances.listed(fresh=False).get(name)
        if instance is None:
            raise SubmissionRejectedError(f"there is no instance {name} any more")
        if instance.stopped:
            raise SubmissionRejectedError(
                f"instance {name} is {instance.status.lower()}: brev start {name}"
            )
        if time.monotonic() - self._ready.get(name, -_READY_FOR_SECONDS) >= _READY_FOR_SECONDS:
            self._instances.wait_until_ready(name, new=False, stop=threading.Event())
            self._ready[name] = time.monotonic()

    def _send(self, name: str, plans: Sequence[Plan]) -> dict[str, Submission]:
        """Bring jobs to an instance that is ready, and have them started there."""
        jobs = [plan.job_id for plan in plans]
        self._renew_all()
        self._provided.discard(name)
        self._instances.use(name, jobs)
        machine = self._machine(name)
        staged = planning.archive(plan.payload[0] for plan in plans)
        variables = {
            "archive": machine.upload(staged, plans[0].identity.token),
            "jobs": "".join(f"{plan.job_id} {plan.identity.token}\n" for plan in plans),
        }
        found = set()
        for section in machine.run("submit", variables, seconds=120.0):
            if section.name == "submitted":
                found.add(section.words)
            elif section.name == "withdrawn":
                self._instances.leave(name, [section.words])
                raise SubmissionRejectedError("another process declared this job never submitted")
            else:
                raise BackendUnreachableError(f"instance {name}: {section.words}")
        if found != set(jobs):
            raise BackendUnreachableError(f"instance {name} did not confirm its jobs")
        where = f"on instance {name}"
        return {plan.job_id: Submission(plan.identity.name, plan.intent, where) for plan in plans}

    # ------------------------------------------------------------------ after a doubt

    def settle(self, jobs: Sequence[JobRef]) -> Mapping[str, Submission | None]:
        listed = self._instances.listed()
        settled: dict[str, Submission | None] = {}
        for name, mine in by_instance(jobs).items():
            instance = listed.get(name)
            if instance is None or instance.failed or instance.going:
                found: dict[str, Submission | None] = dict.fromkeys(job.job_id for job in mine)
            elif instance.running:
                found = self._settle_on(name, mine)
            else:
                continue  # one that is stopped, or being started, cannot be asked
            self._instances.leave(name, [job_id for job_id in found if found[job_id] is None])
            settled |= found
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
            adopted = Submission(job.identity.name, job.native, f"adopted, on instance {name}")
            settled[job.job_id] = adopted if section.name == "adopted" else None
        return settled


def _ends_within(ended: SimpleQueue[None], seconds: float) -> bool:
    try:
        ended.get(timeout=seconds)
    except Empty:
        return False
    return True


def by_instance(jobs: Sequence[JobRef]) -> dict[str, list[JobRef]]:
    """Jobs by the name of the instance that they are on."""
    found: dict[str, list[JobRef]] = {}
    for job in jobs:
        found.setdefault(str(job.native["instance"]), []).append(job)
    return found
