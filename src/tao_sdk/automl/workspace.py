"""The folder of a search: `<workspace>/run_<time>/` with its identity and its journal.

`run.json` is written once, before the first trial, and says what the search is: seed, objectives,
space. So a search that goes on later needs nothing but the folder, and one that would go on with
another space or metric is refused with the difference.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tao_sdk.atomic_files import write_private_json
from tao_sdk.automl.settings import Settings
from tao_sdk.automl.space import Space
from tao_sdk.errors import StoreError, ValidationError
from tao_sdk.file_locks import NoFileLocksError, lock
from tao_sdk.process_identity import ProcessIdentity

__all__ = ["Identity", "Workspace", "WorkspaceError", "find_run"]

IDENTITY = "run.json"
JOURNAL = "journal.log"
CONTROLLER = "controller.lock"
_VERSION = 1


class WorkspaceError(StoreError):
    """The folder of a search cannot be used."""


@dataclass(frozen=True)
class Identity:
    """What a search is."""

    id: str
    network: str
    action: str
    algorithm: str
    seed: int
    objectives: tuple[tuple[str, str], ...]
    """Metrics and their directions."""
    space: Mapping[str, str]
    """The range of each parameter, for people and for the comparison."""
    created_at: str

    def differences(self, other: Identity) -> list[str]:
        """What keeps a search from going on as the other one."""
        found = []
        for name in ("network", "action", "algorithm", "objectives"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                found.append(f"{name}: {_words(mine)} before, {_words(theirs)} now")
        for path in sorted({*self.space, *other.space}):
            before, now = (
                self.space.get(path, "not searched"),
                other.space.get(path, "not searched"),
            )
            if before != now:
                found.append(f"{path}: {before} before, {now} now")
        return found


class Workspace:
    """One run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / JOURNAL

    @classmethod
    def create(
        cls, base: Path, *, network: str, action: str, settings: Settings, space: Space
    ) -> Workspace:
        """A new run folder below `base`, with its identity written."""
        now = datetime.now(timezone.utc)
        folder = _new_folder(base, f"run_{now:%Y%m%d_%H%M%S}")
        workspace = cls(folder)
        identity = _identity(network, action, settings, space, now)
        write_private_json(folder / IDENTITY, _as_json(identity))
        return workspace

    def identity(self) -> Identity:
        path = self.folder / IDENTITY
        try:
            return _from_json(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise WorkspaceError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(
                f"{path} is damaged ({error}); nothing was changed. Its trials are in {JOURNAL}"
            ) from error

    @contextlib.contextmanager
    def controlled(self) -> Iterator[bool]:
        """Be the one process that runs trials of this search, while the body runs.

        False where the file system has no file locks, so that nothing is known. A killed process
        controls nothing any more.
        """
        path = self.folder / CONTROLLER
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise WorkspaceError(f"cannot write {path}: {error.strerror}") from error
        try:
            try:
                mine = lock(descriptor, wait=False)
            except NoFileLocksError:
                yield False
                return
            if not mine:
                owner = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "a process"
                raise WorkspaceError(f"{self.folder} is being tuned already, by {owner}")
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(ProcessIdentity.current()).encode(), 0)
            yield True
        finally:
            os.close(descriptor)

    def require_same(
        self, *, network: str, action: str, settings: Settings, space: Space
    ) -> Identity:
        """The identity, if the search can go on as this one."""
        stored = self.identity()
        now = _identity(network, action, settings, space, datetime.now(timezone.utc))
        if differences := stored.differences(now):
            listed = "".join(f"\n  {one}" for one in differences)
            raise ValidationError(
                f"{self.folder} belongs to another search; begin a new one, or undo:{listed}"
            )
        return stored


def find_run(path: Path) -> Workspace:
    """The run that a path means: the run folder itself, or the newest one below it."""
    if (path / IDENTITY).exists():
        return Workspace(path)
    runs = sorted(one.parent for one in path.glob(f"run_*/{IDENTITY}"))
    if not runs:
        raise WorkspaceError(f"{path} has no run of a search (run_<time>/{IDENTITY})")
    return Workspace(runs[-1])


def _new_folder(base: Path, name: str) -> Path:
    for attempt in range(1000):
        folder = base / (name if not attempt else f"{name}_{attempt}")
        try:
            folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise WorkspaceError(f"cannot make {folder}: {error.strerror}") from error
        return folder
    raise WorkspaceError(f"{base} has a thousand runs of this second")


def _identity(
    network: str, action: str, settings: Settings, space: Space, now: datetime
) -> Identity:
    return Identity(
        id=secrets.token_hex(8),
        network=network,
        action=action,
        algorithm=settings.algorithm,
        seed=settings.seed if settings.seed is not None else secrets.randbelow(2**31),
        objectives=tuple((one.metric, one.direction) for one in settings.objectives),
        space={parameter.path: parameter.describe() for parameter in space.parameters},
        created_at=now.isoformat(timespec="seconds"),
    )


def _as_json(identity: Identity) -> dict[str, Any]:
    return {"version": _VERSION, **vars(identity)}


def _from_json(content: dict[str, Any]) -> Identity:
    if content["version"] > _VERSION:
        raise ValueError(f"written by a newer version of the SDK ({content['version']})")
    return Identity(
        id=str(content["id"]),
        network=str(content["network"]),
        action=str(content["action"]),
        algorithm=str(content["algorithm"]),
        seed=int(content["seed"]),
        objectives=tuple((str(metric), str(way)) for metric, way in content["objectives"]),
        space=dict(content["space"]),
        created_at=str(content["created_at"]),
    )


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(" ".join(one) for one in value)
    return str(value)
