"""Links in results: where they lead, and what the copy of one says."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from tao_sdk.results.sources import Entry, Kind

_MOST_LINKS = 40


def link_entry(path: str, target: str, leads_to: str | None) -> Entry:
    """A link of the results that in the end leads to a path in them, or out of them (None)."""
    if leads_to is None:
        return Entry(path, Kind.UNFIT, problem=f"a link out of the results, to {target}")
    way, folder = PurePosixPath(target), PurePosixPath(path).parent
    # A link that leaves the results and comes back would lead from the copy to the original.
    if not _stays_below(way, len(folder.parts)):
        way = PurePosixPath(os.path.relpath(f"/{leads_to}", f"/{folder}"))
    return Entry(path, Kind.LINK, target=str(way))


def follow(path: str, links: Mapping[str, str], roots: Sequence[str]) -> str | None:
    """Where a path of a tree leads by the links of that tree: to a path in it, or out (None).

    `roots` are the names of the tree itself, its real one first. Links outside of it are not
    known: a way through there counts as the words say.
    """
    here, ahead = PurePosixPath(roots[0]), deque(PurePosixPath(path).parts)
    passed = 0
    while ahead:
        step = ahead.popleft()
        here = here.parent if step == os.pardir else here / step
        target = links.get(_below(here, roots[0]) or "")
        if target is None:
            continue
        passed += 1
        if passed > _MOST_LINKS:
            return path  # a loop: it leads nowhere, and not out
        here, way = _set_out(here.parent, PurePosixPath(target), roots)
        ahead.extendleft(reversed(way))
    return _below(here, roots[0])


def _set_out(
    folder: PurePosixPath, target: PurePosixPath, roots: Sequence[str]
) -> tuple[PurePosixPath, Sequence[str]]:
    """Where the way that a link in a folder tells of begins, and its steps."""
    if not target.is_absolute():
        return folder, target.parts
    for name in roots:
        if (within := _below(target, name)) is not None:
            return PurePosixPath(roots[0]), PurePosixPath(within).parts
    return PurePosixPath("/"), target.parts[1:]


def _below(path: PurePosixPath, root: str) -> str | None:
    return str(path.relative_to(root)) if path.is_relative_to(root) else None


def _stays_below(target: PurePosixPath, depth: int) -> bool:
    """Whether the way from a folder `depth` below the root to `target` passes only below it."""
    if target.is_absolute():
        return False
    for part in target.parts:
        depth += -1 if part == os.pardir else 1
        if depth < 0:
            return False
    return True
