"""Let a training go on from the newest whole checkpoint that an earlier attempt left.

How far a checkpoint is along is read from its name. Times only decide where names cannot: they
change when files are copied, and the newest file is the likeliest to have been cut short.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .checkpoint_files import (
    DEPLOYMENT_EXTENSIONS,
    WEIGHT_EXTENSIONS,
    checkpoint_epoch,
    checkpoint_step,
    checkpoints_among,
    file_stats,
    has_checkpoint_extension,
    is_best,
    is_half_of_a_pair,
    is_latest,
)
from .checkpoint_integrity import is_whole

RESUME_KEY = "resume_training_checkpoint_path"


class StoredFile(NamedTuple):
    """A file of an earlier attempt, wherever it is kept."""

    path: str
    """Relative to the folder that was searched, with forward slashes."""
    size: int
    mtime: float = 0.0
    """0 where it is not known."""


class Candidate(NamedTuple):
    """A file or folder to resume from, should it prove whole."""

    path: str
    is_dir: bool
    files: tuple[str, ...]
    """What it consists of: what to fetch."""
    epoch: int | None
    step: int | None
    mtime: float


def wants_checkpoint(spec: Any, env: Mapping[str, str]) -> bool:
    """Whether there is an empty place for a checkpoint, and resuming is not switched off."""
    off = env.get("TAO_AUTO_RESUME", "").strip().lower() in ("0", "false", "no")
    return not off and any(True for _ in _empty_places(spec, ""))


def fill_checkpoint(spec: Any, checkpoint: str) -> list[str]:
    """Write the checkpoint into every empty place; returns their paths. Other values stay."""
    places = list(_empty_places(spec, ""))
    for holder, _ in places:
        holder[RESUME_KEY] = checkpoint
    return [path for _, path in places]


def find_resume_checkpoint(
    folders: Iterable[str],
    *,
    exclude: Iterable[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> str | None:
    """The newest whole checkpoint below these folders but not at or below an excluded path."""

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            say(f"no checkpoint is looked for in {error.filename}: {error.strerror}")

    excluded = tuple(path.rstrip("/") + "/" for path in exclude)
    found: dict[str, Candidate] = {}
    for folder in folders:
        stored = [
            StoredFile(path, stat.st_size, stat.st_mtime)
            for path, stat in file_stats(folder, unreadable)
            if not f"{os.path.join(folder, path)}/".startswith(excluded)
        ]
        for candidate in _candidates(stored):
            path = os.path.join(folder, candidate.path).rstrip("/")
            found.setdefault(path, candidate._replace(path=path))
    for candidate in _newest_first(found.values()):
        if is_whole(candidate.path):
            return candidate.path
        say(f"not resumed from {candidate.path}: it is not whole")
    return None


def choose_remote(files: Iterable[StoredFile]) -> list[Candidate]:
    """The checkpoints among stored files, newest first; each to be fetched and proved whole."""
    return _newest_first(_candidates(list(files)))


def _empty_places(value: Any, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            place = f"{path}.{key}" if path else str(key)
            if key == RESUME_KEY and not item:
                yield value, place
            else:
                yield from _empty_places(item, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _empty_places(item, f"{path}[{index}]")


def _candidates(files: Sequence[StoredFile]) -> list[Candidate]:
    stored = {file.path: file for file in files}
    paths = sorted(stored)
    found = []
    for path, is_dir in checkpoints_among({file.path: file.size for file in files}):
        if path.lower().endswith(DEPLOYMENT_EXTENSIONS):
            continue
        parts = _below(paths, path) if is_dir else [path]
        found.append(
            Candidate(
                path,
                is_dir,
                tuple(parts),
                checkpoint_epoch(path),
                checkpoint_step(path),
                max(stored[part].mtime for part in parts),
            )
        )
    parts_of_others = set()
    for folder in found:
        if folder.is_dir:
            parts_of_others |= _folder_or_content(folder, found)
    return [candidate for candidate in found if candidate.path not in parts_of_others]


def _below(paths: list[str], folder: str) -> list[str]:
    """The sorted paths that lie below a folder; of the outermost one, only those right in it."""
    if not folder:
        return [path for path in paths if "/" not in path]
    # "0" follows "/"
    return paths[bisect_left(paths, folder + "/") : bisect_left(paths, folder + "0")]


def _folder_or_content(folder: Candidate, found: Iterable[Candidate]) -> set[str]:
    """A folder and the files in it may be one checkpoint: which of the paths not to offer.

    `epoch_4/model.pth` by itself is what a trainer loads; but bare weights, or several files, are
    loaded by the name of their folder.
    """
    inside = set(folder.files)
    if folder.epoch is None and folder.step is None:
        own = {path for path in inside if path.rpartition("/")[0] == folder.path}
        return {path for path in own if path.lower().endswith(WEIGHT_EXTENSIONS)}
    same = {
        other.path
        for other in found
        if other.path in inside and (other.epoch, other.step) == (folder.epoch, folder.step)
    }
    models = {path for path in inside if has_checkpoint_extension(path)}
    alone = len(models) == 1 and same == models
    if alone and not min(same).lower().endswith(WEIGHT_EXTENSIONS):
        return {folder.path}
    return same


def _newest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """By position within each way of counting, and by time across them.

    A "latest" one may be newer than any that is named for its position (often only the best are
    kept), so it takes part by its time. What says nothing about itself comes last.
    """
    by_epoch: list[Candidate] = []
    by_step: list[Candidate] = []
    latest: list[Candidate] = []
    others: list[Candidate] = []
    for candidate in sorted(candidates, key=_age):
        if is_half_of_a_pair(candidate.path):
            others.append(candidate)
        elif candidate.epoch is not None:
            by_epoch.append(candidate)
        elif candidate.step is not None:
            by_step.append(candidate)
        else:
            (latest if is_latest(candidate.path) else others).append(candidate)
    ordered = []
    while by_epoch or by_step or latest:
        series = [each for each in (by_epoch, by_step, latest) if each]
        newest = max(series, key=lambda each: (each[-1].mtime, not is_best(each[-1].path)))
        ordered.append(newest.pop())
    return ordered + others[::-1]


def _age(candidate: Candidate) -> tuple[int, int, float, str]:
    epoch = -1 if candidate.epoch is None else candidate.epoch
    step = -1 if candidate.step is None else candidate.step
    return epoch, step, candidate.mtime, candidate.path
