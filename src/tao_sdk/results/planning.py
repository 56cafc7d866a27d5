"""Which files a pull has to copy. Looks at both sides and changes nothing."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from tao_sdk.errors import ValidationError
from tao_sdk.results.comparing import same_version
from tao_sdk.results.sources import Entry, Kind, ResultSource

WORKSPACE = ".tao-pull"
"""Folder in the destination that holds what is being written; removed at the end."""


@dataclass(frozen=True)
class Selection:
    """Which entries are wanted.

    A pattern such as `*.pth` is compared with the whole path, with the name, and with every
    folder above, so that `train` means all that is in it. `*` also stands for "/".
    """

    include: tuple[str, ...] = ()
    """What is wanted; without any, everything."""
    exclude: tuple[str, ...] = ()
    """What is not, even if it is in `include`."""

    def wants(self, path: str) -> bool:
        wanted = not self.include or _fits(_names(path), self.include)
        return wanted and not self.refuses(path)

    def refuses(self, path: str) -> bool:
        """Whether it, and with a folder everything in it, is not wanted."""
        return _fits(_names(path), self.exclude)


@dataclass(frozen=True)
class PullPlan:
    """What a pull is about to do."""

    destination: Path
    to_copy: tuple[Entry, ...]
    """Files and links."""
    present: tuple[Entry, ...]
    """Those that are there already."""
    folders: tuple[Entry, ...]
    """To be made, each before those in it."""
    unfit: tuple[Entry, ...]
    unreadable: tuple[Entry, ...]
    verify: bool = False
    whole: bool = False
    """Nothing was left out by choice."""

    @property
    def bytes_to_copy(self) -> int:
        return sum(entry.size for entry in self.to_copy)


def plan_pull(
    source: ResultSource,
    destination: Path,
    selection: Selection | None = None,
    *,
    verify: bool = False,
) -> PullPlan:
    """What is missing at the destination, or is not the same there.

    The same is what has the same size and time of change; with `verify`, the same content.
    """
    destination = destination.absolute()
    if source.holds(destination):
        raise ValidationError(
            f"{destination} lies in the results themselves: choose a destination elsewhere"
        )
    if destination.exists() and not destination.is_dir():
        raise ValidationError(f"{destination} is not a folder: choose another destination")
    wanted = selection or Selection()
    found = [entry for entry in source.entries() if entry.path.partition("/")[0] != WORKSPACE]
    chosen = [entry for entry in found if wanted.wants(entry.path)]
    copies = [entry for entry in chosen if entry.kind in (Kind.FILE, Kind.LINK)]
    alike = [entry for entry in copies if _is_alike(entry, destination, verify)]
    present = _of_same_content(source, alike, destination) if verify else alike
    there = {entry.path for entry in present}
    return PullPlan(
        destination,
        to_copy=tuple(entry for entry in copies if entry.path not in there),
        present=tuple(present),
        folders=_folders(found, copies, wanted),
        unfit=_of_kind(chosen, Kind.UNFIT),
        # A folder that cannot be read could hold anything, also what is wanted.
        unreadable=tuple(
            entry for entry in _of_kind(found, Kind.UNREADABLE) if not wanted.refuses(entry.path)
        ),
        verify=verify,
        whole=wanted == Selection(),
    )


def _names(path: str) -> list[str]:
    whole = PurePosixPath(path)
    above = [str(folder) for folder in whole.parents if folder.parts]
    return [path, whole.name, *above, *(PurePosixPath(folder).name for folder in above)]


def _fits(names: Iterable[str], patterns: Iterable[str]) -> bool:
    wanted = [pattern.rstrip("/") for pattern in patterns]
    return any(fnmatchcase(name, pattern) for name in names for pattern in wanted)


def _folders(
    found: Iterable[Entry], copies: Iterable[Entry], wanted: Selection
) -> tuple[Entry, ...]:
    """Those that something is copied into; without a choice of files the empty ones as well."""
    needed = {str(folder) for entry in copies for folder in PurePosixPath(entry.path).parents}
    return tuple(
        entry
        for entry in _of_kind(found, Kind.FOLDER)
        if entry.path in needed or (not wanted.include and wanted.wants(entry.path))
    )


def _of_kind(entries: Iterable[Entry], kind: Kind) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry.kind is kind)


def _is_alike(entry: Entry, destination: Path, verify: bool) -> bool:
    """Whether there is a copy by the looks of it; with `verify`, one whose content could be."""
    copy = destination / entry.path
    try:
        found = copy.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if entry.kind is Kind.LINK:
        return stat.S_ISLNK(found.st_mode) and str(copy.readlink()) == entry.target
    if not stat.S_ISREG(found.st_mode) or found.st_size != entry.size:
        return False
    return verify or same_version(
        entry, Entry(entry.path, Kind.FILE, found.st_size, mtime_ns=found.st_mtime_ns)
    )


def _of_same_content(source: ResultSource, alike: list[Entry], destination: Path) -> list[Entry]:
    """All the links, and the files that are the same."""
    files = [(entry, destination / entry.path) for entry in alike if entry.kind is Kind.FILE]
    same = source.same_content(files)
    return [entry for entry in alike if entry.kind is Kind.LINK or entry.path in same]
