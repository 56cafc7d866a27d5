"""Instances: ordered, waited for, given back. What costs money is looked after here.

Every order is in the ledger before it is given. What nobody wants any more is marked there first
and then deleted, again and again until the list does not have it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import (
    BackendUnreachableError,
    CapacityError,
    SubmissionRejectedError,
)
from tao_sdk.platforms.brev.client import BrevClient
from tao_sdk.platforms.brev.errors import (
    RefusedError,
    says_name_taken,
    says_no_capacity,
    says_no_such_instance,
)
from tao_sdk.platforms.brev.ledger import (
    DELETED,
    IN_USE,
    KEPT,
    LATE_SECONDS,
    UNWANTED,
    Entry,
    Ledger,
)
from tao_sdk.platforms.brev.machine import Machine
from tao_sdk.platforms.brev.parse import Instance
from tao_sdk.platforms.common.ttl_cache import TtlCache
from tao_sdk.platforms.remote.framing import Section

_log = logging.getLogger("tao_sdk.brev")
# Between two looks at an instance that is being made: short at first, then as the contract has it.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
# Until whoever waits is told again of a state that lasts.
SAY_AGAIN_SECONDS = 30.0
# Every look goes through two programs and a network; a second one may do without.
_FRESH_SECONDS = 10.0


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

    def __init__(self, cli: BrevClient, ledger: Ledger, listener: Listener) -> None:
        self._cli = cli
        self.ledger = ledger
        self._listener = listener
        self._listed: TtlCache[list[Instance]] = TtlCache(_FRESH_SECONDS)

    # ------------------------------------------------------------------ looking

    def listed(self, *, fresh: bool = True) -> dict[str, Instance]:
        """All of them by name; with `fresh` as they are now."""
        if fresh:
            self._listed.forget("all")
        listed = self._listed.get("all", self._cli.instances)
        return {instance.name: instance for instance in listed}

    def find(self, asked: str, *, fresh: bool = False) -> Instance:
        """One that is there, by name or id."""
        found = self.listed(fresh=fresh)
        for instance in found.values():
            if asked in (instance.name, instance.id):
                return instance
        names = ", ".join(sorted(found)) or "none"
        raise SubmissionRejectedError(f"instance_id: no instance {asked!r}; there are: {names}")

    # ------------------------------------------------------------------ ordering

    def order(self, entry: Entry, extra: Sequence[str]) -> None:
        """Have an instance made. `SubmissionRejectedError` where none is."""
        self.ledger.order(entry)
        try:
            self._cli.create(entry.name, entry.type, extra)
        except RefusedError as error:
            told = str(error)
            if says_name_taken(told):
                return  # by us: the name is made of the job's id
            if says_no_capacity(told):
                raise CapacityError(f"Brev has no {entry.type} to give: {error}") from error
            raise SubmissionRejectedError(f"Brev makes no instance: {error}") from error

    def wait_until_ready(
        self, machine: Machine, seconds: float, probe: Callable[[Machine], list[Section]]
    ) -> list[Section]:
        """Wait until an instance is running, programs run on it, and Docker answers."""
        began = time.monotonic()
        pause, stage, said = _FIRST_PAUSE, "", 0.0
        while True:
            told, answer = self._look(machine, probe)
            if answer is not None:
                return answer
            spent = time.monotonic() - began
            if told != stage or spent - said >= SAY_AGAIN_SECONDS:
                self._listener(InstanceProgress(machine.name, told, spent))
                stage, said = told, spent
            if spent + pause > seconds:
                raise SubmissionRejectedError(
                    f"instance {machine.name} was not ready within {seconds:g} s: {told}"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _look(
        self, machine: Machine, probe: Callable[[Machine], list[Section]]
    ) -> tuple[str, list[Section] | None]:
        """What an instance is at, and its answer if it is ready."""
        try:
            instance = self.listed().get(machine.name)
            if instance is None:
                return "not in the list yet", None
            self.ledger.change(machine.name, seen=True)
            if instance.failed or instance.going:
                raise SubmissionRejectedError(
                    f"instance {machine.name} is of no use: Brev says {instance.status}"
                )
            if not instance.running:
                return instance.status.lower() or "being made", None
            answer = probe(machine)
        except (BackendUnreachableError, RefusedError) as error:
            return f"cannot be reached yet: {error}", None
        for section in answer:
            if section.name in ("silent", "missing"):
                what = f"Docker does not answer: {section.words}"
                return (what if section.name == "silent" else f"no {section.words} there"), None
        return "ready", answer

    # ------------------------------------------------------------------ giving back

    def discard(self, name: str, why: str, *, level: int = logging.INFO) -> bool:
        """Delete an instance of ours; True once Brev has accepted that, or has none.

        Should it not work now, it is tried again by whoever comes next.
        """
        self.ledger.change(name, state=UNWANTED, why=why)
        try:
            self.delete(name)
        except (BackendUnreachableError, RefusedError) as error:
            _log.warning("instance %s could not be deleted and costs money: %s", name, error)
            return False
        self.ledger.change(name, state=DELETED)
        _log.log(level, "instance %s is deleted: %s", name, why)
        return True

    def delete(self, name: str) -> None:
        """Delete an instance; one that is not there is as good as deleted."""
        try:
            self._cli.change("delete", name)
        except RefusedError as error:
            if not says_no_such_instance(str(error)):
                raise
        self._listed.forget("all")

    def keep(self, name: str, why: str) -> Entry | None:
        """Leave an instance of ours running, and say so."""
        before = self.ledger.get(name)
        entry = self.ledger.change(name, state=KEPT, why=why)
        if entry is not None and before is not None and before.state != KEPT:
            _log.warning("instance %s is kept (%s): %s", name, entry.cost, why)
        return entry

    def use(self, name: str) -> None:
        """A job goes to an instance, which may be one of ours that was kept."""
        entry = self.ledger.get(name)
        if entry is not None and entry.state == KEPT:
            self.ledger.change(name, state=IN_USE, why="")

    def tend(
        self, listed: Mapping[str, Instance] | None = None, *, unwatched: Collection[str] = ()
    ) -> None:
        """Do what is due about instances that this store has ordered.

        Nobody has seen the jobs of those that are `unwatched` end. Asks Brev only where something
        may be due; those that were kept may have been deleted by hand.
        """
        entries = [
            entry
            for entry in self.ledger.entries()
            if entry.needs_attention or entry.state == KEPT or entry.name in unwatched
        ]
        if not entries:
            return
        there = self.listed() if listed is None else listed
        for entry in entries:
            instance = there.get(entry.name)
            if instance is None or instance.going:
                if _is_gone(entry, instance):
                    self.ledger.forget(entry.name)
                continue
            self.ledger.change(entry.name, seen=True)
            if entry.state in (UNWANTED, DELETED):
                self.discard(entry.name, entry.why)
            elif entry.needs_attention:
                self.discard(entry.name, _reason(entry), level=logging.WARNING)
            elif entry.state != KEPT:
                self.keep(entry.name, "its job has ended, and nobody has seen how")

    def ready_seconds(self, *, new: bool) -> float:
        return settings.get_seconds("BREV_READY_SECONDS" if new else "BREV_REUSE_SECONDS")


def refuse_unfit(answer: Iterable[Section]) -> None:
    """Raise where an instance that answers is not fit for jobs."""
    for section in answer:
        if section.name == "unwritable":
            raise SubmissionRejectedError(f"the instance cannot be used: {section.words}")


def _reason(entry: Entry) -> str:
    """Which lifetime is over."""
    if entry.too_old:
        return f"older than max_hours={entry.max_hours:g}"
    return f"idle for more than {entry.idle_minutes:g} minutes"


def _is_gone(entry: Entry, instance: Instance | None) -> bool:
    """Deleted; or never made, unless the order is still on its way."""
    if instance is not None:
        return False
    return entry.seen or time.time() - entry.made_at > LATE_SECONDS
