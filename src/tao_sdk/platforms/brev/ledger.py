"""The instances that this store has ordered: one private file each, written before the order.

An entry goes only when Brev's list no longer has its instance. So after a client was killed, the
next one knows what may be running, and what it costs. Every change is one step under a lock, and an
instance that was given up never becomes wanted again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.atomic_files import write_private_json
from tao_sdk.errors import DamagedRowError
from tao_sdk.job_store.network_lock import locked_file
from tao_sdk.platforms.brev.parse import cost
from tao_sdk.platforms.common.dataclass_json import from_json
from tao_sdk.process_identity import ProcessIdentity, is_abandoned

ORDERED = "ordered"
"""The process that ordered it waits for it, or is about to send its job."""
IN_USE = "in use"
KEPT = "kept"
UNWANTED = "unwanted"
DELETED = "deleted"
"""Brev has accepted the deletion; the list has not confirmed it yet."""

# An order may take this long to appear in the list after its client was killed.
LATE_SECONDS = 900.0
# A process of another machine renews the entries of its instances more often than this.
_SILENT_SECONDS = 1800.0


def ledger_of(store: str | Path) -> Ledger:
    """The instances that were ordered for jobs of a store."""
    return Ledger(Path(store).with_name(f"{Path(store).stem}.brev") / "instances")


def organization_differs(known: str, active: str) -> bool:
    """Whether these are two organisations, as far as both are known."""
    return bool(known and active and known != active)


@dataclass(frozen=True)
class Entry:
    """One instance that was ordered."""

    name: str
    job_id: str
    type: str
    price: float | None
    made_at: float
    keep: bool = False
    max_hours: float | None = None
    idle_minutes: float | None = None
    state: str = IN_USE
    why: str = ""
    since: float = 0.0
    """When it came to that state."""
    seen: bool = False
    """It was in the list at least once."""
    holds: tuple[str, ...] = ()
    """Jobs whose results are on it and nowhere else."""
    jobs: tuple[str, ...] = ()
    """Jobs of this store that are on it, or on their way there."""
    owner: str = ""
    """The process that ordered it."""
    renewed_at: float = 0.0
    """When its owner last noted that it still waits for the instance."""
    organization: str = ""
    """The id of the organisation that it was ordered in, if the program tells it."""

    def is_elsewhere(self, organization: str) -> bool:
        """Whether it is in another organisation than this one, whose list lacks it."""
        return organization_differs(self.organization, organization)

    @property
    def age_hours(self) -> float:
        return (time.time() - self.made_at) / 3600

    @property
    def state_hours(self) -> float:
        """How long it has been in that state."""
        return (time.time() - (self.since or self.made_at)) / 3600

    @property
    def cost(self) -> str:
        """The price, and what it has come to so far, as text."""
        if self.price is None:
            return cost(None)
        return f"{cost(self.price)}, about ${self.price * self.age_hours:.2f} so far"

    @property
    def fate(self) -> str:
        """That it is kept and why, as text; "" if it is not kept."""
        kept = f"instance {self.name} is kept ({self.cost}): {self.why}"
        return kept if self.state == KEPT else ""

    @property
    def given_up(self) -> bool:
        return self.state in (UNWANTED, DELETED)

    @property
    def overdue(self) -> str:
        """Why it is to be deleted now, whatever its jobs do; "" if it is not."""
        if self.max_hours is not None and self.age_hours > self.max_hours:
            return f"older than max_hours={self.max_hours:g}"
        minutes = self.idle_minutes
        if self.state == KEPT and minutes is not None and self.state_hours * 60 > minutes:
            return f"idle for more than {minutes:g} minutes"
        lease = max(_SILENT_SECONDS, settings.get_seconds("TAO_SDK_SUBMIT_LEASE_SECONDS"))
        silence = time.time() - self.renewed_at
        if self.state == ORDERED and is_abandoned(self.owner, silence, lease):
            return "its client was gone before it had a job"
        return ""

    @property
    def needs_attention(self) -> bool:
        return self.given_up or bool(self.overdue)

    def without(self, ended: Collection[str], held: Mapping[str, str], others: int) -> Entry:
        """The entry once these jobs have ended: in use, kept, or unwanted.

        `held` are jobs whose results are only there, with the reason. `others` is the number of
        jobs of other stores.
        """
        jobs = tuple(job for job in self.jobs if job not in ended)
        entry = replace(self, jobs=jobs, holds=tuple(sorted({*self.holds, *held})))
        if jobs or self.given_up:
            return entry
        if others:
            return replace(entry, state=KEPT, why=f"{others} other jobs are on it")
        if self.keep:
            return replace(entry, state=KEPT, why="keep=True")
        if entry.holds:
            return replace(entry, state=KEPT, why=next(iter(held.values()), self.why))
        return replace(entry, state=UNWANTED, why="its job has ended")


class Ledger:
    """The folder of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self) -> list[Entry]:
        return [entry for path in sorted(self._folder.glob("*.json")) if (entry := _read(path))]

    def get(self, name: str) -> Entry | None:
        return _read(self._path(name))

    def order(self, entry: Entry) -> bool:
        """Record an order before it is sent; False if there is an entry of that name already."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            if self._path(entry.name).exists():
                return False
            now = time.time()
            self._write(replace(entry, owner=str(ProcessIdentity.current()), renewed_at=now))
            return True

    def update(self, name: str, change: Callable[[Entry], Entry]) -> Entry | None:
        """Change an entry in one step; the entry afterwards, or None if there is none."""
        if not self._path(name).exists():
            return None
        with self._locked():
            entry = self.get(name)
            if entry is None:
                return None
            changed = change(entry)
            if entry.given_up and not changed.given_up:
                return entry  # a deletion may be on its way
            if changed.state != entry.state:
                changed = replace(changed, since=time.time())
            if changed != entry:
                self._write(changed)
            return changed

    def change(self, name: str, **values: Any) -> Entry | None:
        """Like `update`, with new values of fields."""
        return self.update(name, lambda entry: replace(entry, **values))

    def forget(self, name: str) -> None:
        """The instance is gone for certain."""
        self._path(name).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked_file(self._folder / "lock"):
            yield

    def _write(self, entry: Entry) -> None:
        write_private_json(self._path(entry.name), asdict(entry))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _read(path: Path) -> Entry | None:
    try:
        text, written_at = path.read_text("utf-8", errors="replace"), path.stat().st_mtime
    except FileNotFoundError:
        return None
    try:
        return from_json(Entry, text, path)
    except DamagedRowError as error:
        # Its instance may still cost money, and may have results: only the user can tell.
        return Entry(path.stem, "", "", None, written_at, keep=True, state=KEPT, why=str(error))
