"""Listings of results, parsed into entries. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import PurePosixPath

from tao_sdk.errors import PlatformError
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.results.sources import PERMISSIONS, Entry, Kind

RECORD = r"\0%m\0%s\0%T@\0%p\0%l\0"
"""The fields of an entry after the letter of its type, for `find -printf`."""

_FIELDS = 6
# find's letters; "x" is ours, for entries without read permission.
_KINDS = {b"f": Kind.FILE, b"d": Kind.FOLDER, b"l": Kind.LINK, b"x": Kind.UNREADABLE}
_PROBLEMS = {
    Kind.UNREADABLE: "Permission denied there",
    Kind.UNFIT: "neither a file nor a folder",
}


def names_of(paths: Iterable[str]) -> bytes:
    """Paths of the results for a program's input, in a form that is never read as an option."""
    return b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)


def path_of(name: bytes) -> str:
    return os.fsdecode(name.removeprefix(b"./"))


def parse_entries(data: bytes) -> list[Entry]:
    """All entries of a listing; link targets are unchanged."""
    fields = data.split(b"\0")
    starts = range(0, len(fields) - _FIELDS + 1, _FIELDS)
    try:
        return [_entry(*fields[start : start + _FIELDS]) for start in starts]
    except (ValueError, ArithmeticError) as error:
        raise PlatformError(f"the listing of the results makes no sense: {error}") from error


def parse_sizes(data: bytes) -> dict[str, int]:
    """The answer of the program `files`: sizes by path."""
    entries = (entry.decode("utf-8", "replace") for entry in data.split(b"\0")[:-1])
    return {path: int(size) for size, _, path in (entry.partition(" ") for entry in entries)}


def parse_names(answer: Section, path: str) -> list[str]:
    """The answer of the program `list`: names in a folder, or that of the file itself."""
    if answer.name == "missing":
        return []
    if answer.name == "file":
        return [path.rstrip("/").rpartition("/")[2]]
    return sorted(name.decode("utf-8", "replace") for name in answer.data.split(b"\0")[:-1])


def still_there(path: str, now: Mapping[str, Entry]) -> Entry | None:
    """A file as it is now, or the folder above it that is locked; None when it is gone.

    What is found behind a link that took the place of a folder is not that file.
    """
    for folder in reversed(PurePosixPath(path).parents):
        above = now.get(str(folder))
        if above is not None and above.kind is Kind.UNREADABLE:
            return above
        if above is None or above.kind is not Kind.FOLDER:
            return None
    return now.get(path)


def _entry(
    letter: bytes, mode: bytes, size: bytes, time: bytes, name: bytes, target: bytes
) -> Entry:
    path, kind = path_of(name), _KINDS.get(letter, Kind.UNFIT)
    if path.startswith("/") or ".." in path.split("/"):
        return Entry(path, Kind.UNFIT, problem="its name leads out of the results")
    return Entry(
        path,
        kind,
        size=int(size) if kind is Kind.FILE else 0,
        mtime_ns=int(Decimal(time.decode()) * 10**9),
        mode=int(mode, 8) & PERMISSIONS,
        target=os.fsdecode(target),
        problem=_PROBLEMS.get(kind, ""),
    )
