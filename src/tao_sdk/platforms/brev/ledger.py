"""The instances that this store has ordered: one private file each, written before the order.

An entry goes when its instance is gone for certain. So whatever kills a client, the next one knows
what may be running, and what it costs.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tao_sdk.atomic_files import write_private_json
from tao_sdk.platforms.brev.parse import cost

IN_USE = "in use"
KEPT = "kept"
UNWANTED = "unwanted"
DELETED = "deleted"
"""Brev has accepted that; the list has not confirmed it yet."""

# How long an order may take to show up in the list, after whoever gave it was killed.
LATE_SECONDS = 900.0


def ledger_of(store: str | Path) -> Ledger:
    """The instances that were ordered for jobs of a store."""
    return Ledger(Path(store).with_name(f"{Path(store).stem}.brev") / "instances")


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
    holds: tuple[str, ...] = field(default=())
    """Jobs whose results are on it and nowhere else."""

    @property
    def age_hours(self) -> float:
        return (time.time() - self.made_at) / 3600

    @property
    def state_hours(self) -> float:
        """How long it has been in that state."""
        return (time.time() - (self.since or self.made_at)) / 3600

    @property
    def cost(self) -> str:
        """For people: what it costs, and has cost."""
        if self.price is None:
            return cost(None)
        return f"{cost(self.price)}, about ${self.price * self.age_hours:.2f} so far"

    @property
    def too_old(self) -> bool:
        return self.max_hours is not None and self.age_hours > self.max_hours

    @property
    def idle_too_long(self) -> bool:
        minutes = self.state_hours * 60
        return self.state == KEPT and self.idle_minutes is not None and minutes > self.idle_minutes

    @property
    def needs_attention(self) -> bool:
        """Is there something to be done about it, whoever looks?"""
        return self.state in (UNWANTED, DELETED) or self.too_old or self.idle_too_long


class Ledger:
    """The folder of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self) -> list[Entry]:
        return list(self._read())

    def get(self, name: str) -> Entry | None:
        return self._load(self._path(name))

    def order(self, entry: Entry) -> None:
        """Note an order that is about to be given."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write(entry)

    def change(self, name: str, **values: Any) -> Entry | None:
        """Note what has changed about an instance; None if it is none of ours."""
        entry = self.get(name)
        if entry is None:
            return None
        if values.get("state", entry.state) != entry.state:
            values["since"] = time.time()
        changed = replace(entry, **values)
        if changed != entry:
            self._write(changed)
        return changed

    def forget(self, name: str) -> None:
        """It is gone for certain."""
        self._path(name).unlink(missing_ok=True)

    def _write(self, entry: Entry) -> None:
        write_private_json(self._path(entry.name), asdict(entry))

    def _read(self) -> Iterator[Entry]:
        for path in sorted(self._folder.glob("*.json")):
            if entry := self._load(path):
                yield entry

    def _load(self, path: Path) -> Entry | None:
        with contextlib.suppress(FileNotFoundError):
            data = json.loads(path.read_text(encoding="utf-8"))
            known = {each.name for each in fields(Entry)}  # a newer version may say more
            values = {name: value for name, value in data.items() if name in known}
            return Entry(**{**values, "holds": tuple(values["holds"])})
        return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
