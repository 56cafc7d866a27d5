"""Where results can lie: the seam, and folders of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Protocol

from tao_sdk.errors import UnsupportedError, ValidationError

PERMISSIONS = 0o777
"""The part of a mode that is kept: a copy runs with nobody else's rights."""


class Kind(str, Enum):
    """What an entry is, as far as fetching is concerned."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    UNFIT = "unfit"
    """Not copied, for a reason that lies in what it is: a pipe, a link to somewhere else."""
    UNREADABLE = "unreadable"
    """Should be copied and cannot be."""


@dataclass(frozen=True)
class Entry:
    """One name in the results, as it was when somebody looked."""

    path: str
    """Relative to the results, with "/"."""
    kind: Kind
    size: int = 0
    mtime_ns: int = 0
    mode: int = 0o600
    target: str = ""
    """Of a link: where it leads, relative to its own folder."""
    problem: str = ""
    """Why it cannot be copied."""


class ResultSource(Protocol):
    """A place that holds the results of one job."""

    @property
    def address(self) -> str:
        """The place, for people."""
        ...

    def entries(self) -> Iterator[Entry]:
        """Everything below, folders before what is in them."""
        ...

    def look(self, path: str) -> Entry | None:
        """One entry as it is now; None when it is gone."""
        ...

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """The bytes of a file; `FileNotFoundError` when it is gone."""
        ...

    def holds(self, folder: Path) -> bool:
        """Whether that folder of this machine lies in the results themselves."""
        ...


def open_results(results_dir: str, local_results_dir: str) -> ResultSource:
    """The results of a job by the two addresses that its record has."""
    place = local_results_dir or results_dir
    scheme, separator, rest = place.partition("://")
    if separator and scheme == "file":
        place = "/" + rest.lstrip("/")
    elif separator or (results_dir and not local_results_dir):
        raise UnsupportedError(
            f"the results are at {place}, and this version fetches results from folders of this "
            "machine only: copy them with the tools of that place"
        )
    if not place:
        raise ValidationError("nothing is known about where this job's results are")
    folder = Path(place)
    if not folder.is_dir():
        raise ValidationError(
            f"the results folder is not there: {folder} (was it removed, or is its disk not "
            "mounted?)"
        )
    return LocalResults(folder)


class LocalResults:
    """Results in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()

    @property
    def address(self) -> str:
        return str(self._root)

    def entries(self) -> Iterator[Entry]:
        waiting = [self._root]
        while waiting:
            folder = waiting.pop()
            try:
                paths = sorted(folder.iterdir())
            except FileNotFoundError:
                continue  # the job removed it meanwhile
            except OSError as error:
                yield self._unreadable(folder, error)
                continue
            found = [entry for path in paths if (entry := self._look(path)) is not None]
            yield from found
            folders = [entry.path for entry in found if entry.kind is Kind.FOLDER]
            waiting += (self._root / path for path in reversed(folders))

    def look(self, path: str) -> Entry | None:
        return self._look(self._root / path)

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        descriptor = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return os.fdopen(descriptor, "rb")

    def holds(self, folder: Path) -> bool:
        return folder.resolve().is_relative_to(self._root)

    def _look(self, path: Path) -> Entry | None:
        try:
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                return self._link(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._unreadable(path, error)
        kind = _kind(found.st_mode)
        return Entry(
            self._relative(path),
            kind,
            size=found.st_size if kind is Kind.FILE else 0,
            mtime_ns=found.st_mtime_ns,
            mode=stat.S_IMODE(found.st_mode) & PERMISSIONS,
            problem="neither a file nor a folder" if kind is Kind.UNFIT else "",
        )

    def _link(self, path: Path) -> Entry:
        target = path.readlink()
        leads_to = Path(os.path.realpath(path))  # Path.resolve raises for a loop
        if not leads_to.is_relative_to(self._root):
            return Entry(
                self._relative(path), Kind.UNFIT, problem=f"a link out of the results, to {target}"
            )
        # A link that leaves the results and comes back would lead from the copy to the original.
        if not _stays_below(target, len(path.parent.relative_to(self._root).parts)):
            target = Path(os.path.relpath(leads_to, path.parent))
        return Entry(self._relative(path), Kind.LINK, target=str(target))

    def _unreadable(self, path: Path, error: OSError) -> Entry:
        return Entry(self._relative(path), Kind.UNREADABLE, problem=error.strerror or str(error))

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def _stays_below(target: Path, depth: int) -> bool:
    """Whether the way from a folder `depth` below the root to `target` passes only below it."""
    if target.is_absolute():
        return False
    for part in target.parts:
        depth += -1 if part == os.pardir else 1
        if depth < 0:
            return False
    return True


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.FOLDER if stat.S_ISDIR(mode) else Kind.UNFIT
