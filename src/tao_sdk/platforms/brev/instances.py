"""Instances: ordered, waited for, used, given back.

An instance costs money. Every order is in the ledger before it is sent; what is no longer needed is
marked there first, and then deleted again and again until Brev's list does not have it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, CapacityError, SubmissionRejectedError
from tao_sdk.platforms.brev.client import BrevClient, RefusedError
from tao_sdk.platforms.brev.ledger import (
    DELETED,
    IN_USE,
    KEPT,
    LATE_SECONDS,
    ORDERED,
    UNWANTED,
    Entry,
    Ledger,
)
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.parse import (
    Instance,
    Offer,
    says_name_taken,
    says_no_capacity,
    says_no_such_instance,
)
from tao_sdk.platforms.common.ttl_cache import TtlCache

_log = logging.getLogger("tao_sdk.brev")
# The delay between two looks at an instance that is being made grows from the one to the other.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
# A stage that lasts is reported again after this time.
REPORT_AGAIN_SECONDS = 30.0
# A list costs two programs and a network; some callers may use one of this age.
_FRESH_SECONDS = 10.0
_DELETE_PAUSES = (0.2, 0.5)
UNSEEN = "its job is over, and it is not known how it ended"


class InstanceProgress(NamedTuple):
    """How far an instance is that a job waits for."""

    instance: str
    stage: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.instance}: {self.stage} ({self.seconds:.0f} s)"


Listener = Callable[[InstanceProgress], None]


class Instances:
    """The instances of an account, and those among them that this store has ordered."""

    def __init__(
        self,
        cli: BrevClient,
        ledger: Ledger,
        machine: Callable[[str], Machine],
        listener: Listener,
    ) -> None:
        self._cli = cli
        self.ledger = ledger
        self._machine = machine
        self._listener = listener
        self._listed: TtlCache[list[Instance]] = TtlCache(_FRESH_SECONDS)
        self._organization: TtlCache[str] = TtlCache(_FRESH_SECONDS)

    def listed(self, *, fresh: bool = True) -> dict[str, Instance]:
        """All instances of the account by name; with `fresh` as they are now."""
        if fresh:
            self._listed.forget("all")
        listed = self._listed.get("all", self._cli.instances)
        return {instance.name: instance for instance in listed}

    def organization(self, *, fresh: bool = True) -> str:
        """The organisation whose instances are listed; "" if the program does not say."""
        if fresh:
            self._organization.forget("active")
        return self._organization.get("active", self._cli.organization)

    def find(self, asked: str, *, fresh: bool = False) -> Instance:
        """The instance of that name or id."""
        found = self.listed(fresh=fresh)
        for instance in found.values():
            if asked in (instance.name, instance.id):
                return instance
        names = ", ".join(sorted(found)) or "none"
        raise SubmissionRejectedError(f"instance_id: no instance {asked!r}; there are: {names}")

    # ------------------------------------------------------------------ ordering

    def order(self, name: str, offers: Sequence[Offer], flags: Sequence[str]) -> None:
        """Order the first of these offers that can be had; each order is in the ledger first."""
        for offer, following in zip(offers, (*offers[1:], None), strict=True):
            self.renew(name, type=offer.type, price=offer.price)
            try:
                self._cli.create(name, offer.type, flags)
            except RefusedError as error:
                message = str(error)
                if says_name_taken(message):
                    return  # by us: the name is made of the job's id
                if not says_no_capacity(message):
                    raise SubmissionRejectedError(f"Brev makes no instance: {error}") from error
                if following is None:
                    nor = "".join(f", nor {other.type}" for other in offers[1:])
                    why = f"Brev has no {offers[0].type} to give{nor}: {error}"
                    raise CapacityError(why) from error
                stage = f"Brev has no {offer.type} to give; ordering {following}"
                self._listener(InstanceProgress(name, stage, 0.0))
            else:
                return

    def renew(self, name: str, **values: object) -> None:
        """Note that we still wait for an instance. Raises if another process gave it up."""
        entry = self.ledger.change(name, renewed_at=time.time(), **values)
        if entry is None or entry.given_up:
            why = entry.why if entry else "it was gone"
            raise SubmissionRejectedError(f"instance {name} was given up meanwhile: {why}")

    def wait_until_ready(self, name: str, *, new: bool, stop: threading.Event) -> None:
        """Wait until an instance runs, programs run on it, and Docker answers."""
        limit = settings.get_seconds("BREV_READY_SECONDS" if new else "BREV_REUSE_SECONDS")
        began = time.monotonic()
        pause, stage, reported = _FIRST_PAUSE, "", 0.0
        while now := self._stage(name):
            spent = time.monotonic() - began
            if now != stage or spent - reported >= REPORT_AGAIN_SECONDS:
                self._listener(InstanceProgress(name, now, spent))
                stage, reported = now, spent
            if new:
                self.renew(name)
            if spent + pause > limit:
                raise SubmissionRejectedError(
                    f"instance {name} was not ready within {limit:g} s: {now}"
                )
            if stop.wait(pause):
                raise SubmissionRejectedError("interrupted")
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _stage(self, name: str) -> str:
        """What is missing until an instance is ready; "" when it is."""
        try:
            instance = self.listed().get(name)
            if instance is None:
                return "not in the list yet"
            self.ledger.change(name, seen=True)
            if instance.failed or instance.going:
                raise SubmissionRejectedError(
                    f"instance {name} is of no use: Brev says {instance.status}"
                )
            if not instance.running:
                return instance.status.lower() or "being made"
            answer = self._machine(name).run("probe", seconds=30.0)
        except (BackendUnreachableError, RefusedError) as error:
            return f"cannot be reached yet: {error}"
        for section in answer:
            if section.name == "unwritable":
                raise SubmissionRejectedError(f"the instance cannot be used: {section.words}")
            if section.name == "silent":
                return f"Docker does not answer: {section.words}"
            if section.name == "missing":
                return f"no {section.words} there"
        return ""

    # ------------------------------------------------------------------ using, giving back

    def use(self, name: str, jobs: Collection[str]) -> None:
        """Note that jobs go to an instance, so that no other process deletes it."""
        entry = self.ledger.update(
            name, lambda old: replace(old, state=IN_USE, why="", jobs=(*old.jobs, *jobs))
        )
        if entry is not None and entry.given_up:
            raise SubmissionRejectedError(f"instance {name} is being deleted: {entry.why}")

    def leave(self, name: str, jobs: Collection[str]) -> None:
        """Note that jobs did not get to an instance."""
        self.ledger.update(
            name, lambda old: replace(old, jobs=tuple(job for job in old.jobs if job not in jobs))
        )

    def release(
        self, name: str, jobs: Collection[str], held: Mapping[str, str], others: int
    ) -> bool:
        """Keep an instance after the end of jobs, or delete it: see `Entry.without`.

        False if it should be gone and cannot be deleted yet.
        """
        before = self.ledger.get(name)
        entry = self.ledger.update(name, lambda old: old.without(jobs, held, others))
        if before is None or entry is None:
            return True
        if entry.state == KEPT != before.state:
            _log.warning("%s", entry.fate)
        return not entry.given_up or self.discard(name, entry.why)

    def no_longer_holds(self, name: str, job_id: str) -> None:
        """The results of a job need its instance no more; nor does the store, if it was kept."""

        def let_go(old: Entry) -> Entry:
            holds = tuple(held for held in old.holds if held != job_id)
            is_over = old.state == KEPT and job_id in old.holds and not (holds or old.keep)
            state, why = (UNWANTED, "the results were fetched") if is_over else (old.state, old.why)
            return replace(old, holds=holds, state=state, why=why)

        entry = self.ledger.update(name, let_go)
        if entry is not None and entry.given_up:
            self.discard(name, entry.why)

    def discard(
        self, name: str, why: str, *, level: int = logging.INFO, only_ordered: bool = False
    ) -> bool:
        """Delete an instance of ours; True once Brev has accepted that, or has none.

        If it fails, every process that attends tries again.
        """

        def give_up(old: Entry) -> Entry:
            spared = old.given_up or (only_ordered and old.state != ORDERED)
            return old if spared else replace(old, state=UNWANTED, why=why)

        entry = self.ledger.update(name, give_up)
        if entry is None or not entry.given_up:
            return True
        for pause in (*_DELETE_PAUSES, None):
            try:
                self.delete(name)
            except (BackendUnreachableError, RefusedError) as error:
                if pause is None:
                    message = "instance %s could not be deleted and costs money: %s"
                    _log.warning(message, name, error)
                    return False
                time.sleep(pause)
            else:
                break
        self.ledger.change(name, state=DELETED)
        if entry.state == UNWANTED:
            _log.log(level, "instance %s is deleted: %s", name, entry.why)
        return True

    def delete(self, name: str) -> None:
        """Delete an instance; one that is not there counts as deleted."""
        try:
            self._cli.change("delete", name)
        except RefusedError as error:
            if not says_no_such_instance(str(error)):
                raise

    def tend(self, *, unwatched: Collection[str] = ()) -> None:
        """Delete, keep or forget what is due among the instances that this store has ordered.

        The jobs of those in `unwatched` are over, but no process has seen how. Asks Brev only if
        something may be due; one that was kept may have been deleted by hand.
        """
        entries = [
            entry
            for entry in self.ledger.entries()
            if entry.needs_attention or entry.state == KEPT or entry.name in unwatched
        ]
        if not entries:
            return
        # After the entries were read: one that was seen before this list and is not in it is gone.
        there = self.listed()
        organization = self.organization()
        for entry in entries:
            if entry.is_elsewhere(organization):
                continue  # that this list lacks it says nothing
            instance = there.get(entry.name)
            if instance is not None:
                self.ledger.change(entry.name, seen=True)
            elif entry.seen or time.time() - entry.made_at > LATE_SECONDS:
                self.ledger.forget(entry.name)
                continue
            if entry.given_up if instance is None else instance.going:
                continue
            if why := entry.overdue:
                spare = entry.state == ORDERED  # its owner may have gone on meanwhile
                self.discard(entry.name, why, level=logging.WARNING, only_ordered=spare)
            elif entry.given_up:
                self.discard(entry.name, entry.why)
            elif entry.state != KEPT and instance is not None:
                self.release(entry.name, entry.jobs, {entry.job_id: UNSEEN}, 0)
