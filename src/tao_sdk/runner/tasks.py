"""What is to be fetched and what is to be delivered, as the client planned it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .places import remove, set_value

if TYPE_CHECKING:
    from .places import SpecPath


class Selective(NamedTuple):
    """Of a folder, only what an annotation file refers to."""

    annotation: SpecPath
    """Where the spec names the annotation file: staged before, or local."""
    format: str
    """json, jsonl, csv, parquet; "" means: by the file's extension."""
    keys: tuple[str, ...]


class StagingTask(NamedTuple):
    """One thing to be fetched."""

    uri: str
    target: str
    """The folder of its content. A single file goes into it under its own name."""
    keys: tuple[SpecPath, ...] = ()
    """The places of the spec, or the arguments, that get the local path."""
    want: str = ""
    """file or folder, should the URI be both; "" has no preference."""
    exact: bool = False
    """`target` is the very path of a single file, too."""
    optional: bool = False
    extract: bool = False
    extract_to_parent: bool = False
    selective: tuple[Selective, ...] = ()
    """What any of them refers to is fetched; none: everything."""
    pattern: str = ""
    """Only files below the URI whose path matches, as `fnmatch` has it."""
    pretrained: bool = False
    links: tuple[str, ...] = ()
    """Where symbolic links to the result are wanted."""


class OutputTask(NamedTuple):
    """One place that the command writes to."""

    local: str
    uri: str
    """Where it is uploaded to; "" where it stays."""
    want: str
    """file or folder; "" where only the command knows."""
    keys: tuple[SpecPath, ...] = ()
    """The places of the spec, or the arguments, that name it."""


def local_result(task: StagingTask, is_folder: bool, name: str) -> str:
    """The path for the command once a folder, or a file of that name, is there."""
    if task.pattern:
        return posixpath.join(task.target, task.pattern)
    return task.target if is_folder or task.exact else posixpath.join(task.target, name)


def write_paths(
    values: dict[str, Any],
    inputs: Iterable[tuple[StagingTask, str | None]],
    outputs: Iterable[OutputTask],
) -> None:
    """Put local paths into a spec or arguments; None is an optional input that was not found."""
    missing: list[SpecPath] = []
    for task, path in inputs:
        for place in task.keys:
            if path is None:
                missing.append(place)
            else:
                set_value(values, place, path)
    for output in outputs:
        for place in output.keys:
            set_value(values, place, output.local)
    # Last, and from the end, because removing an item moves the later ones.
    for place in sorted(missing, reverse=True):
        remove(values, place)
