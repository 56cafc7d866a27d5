"""Which files of a folder an annotation file refers to.

Formats: `json` (a list of records, a mapping of records, or COCO's mapping of lists), `jsonl`,
`csv` and, where pyarrow is installed, `parquet`. A key is a field of the records, dots leading
into nested ones; its value is a path or a list of paths, relative to the folder. Records without
the field, or with an empty one, refer to nothing.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import NotFoundError, RunnerError
from .place_names import render
from .places import value_at
from .site_packages import importable
from .uris import local_path, scheme_of

if TYPE_CHECKING:
    from .places import SpecPath
    from .tasks import StagingTask


def parse_references(path: str, fmt: str = "", keys: Sequence[str] = ()) -> list[str]:
    """The paths that an annotation file refers to, each once, in the order of the file.

    Without a format the file's extension says which one it is.
    """
    name = (fmt or posixpath.splitext(path)[1][1:] or "json").lower()
    if name == "parquet":
        documents = _read_parquet(path, keys)
    elif name in _READERS:
        documents = _READERS[name](path)
    else:
        raise RunnerError(f"{path}: the format {name!r} is none of json, jsonl, csv, parquet")
    found: dict[str, None] = {}
    try:
        for document in documents:
            for key in keys:
                for value in _values(document, key):
                    if value not in (None, ""):
                        found[_confined(value, path, key)] = None
    except UnicodeDecodeError as error:
        raise RunnerError(f"{path} is not UTF-8 text: {error}") from error
    except RecursionError:
        raise RunnerError(f"{path}: its data is nested too deep") from None
    if not found:
        raise RunnerError(f"{path}: no record has a file name under {', '.join(keys)}")
    return list(found)


def match_references(
    references: Iterable[str], names: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Of the files below a folder those that are referred to, and the references without any.

    A reference is a file, or a folder with all that is below it. Never just a base name: the
    command would look in the place that the annotation says, and not find it.
    """
    by_folder: dict[str, list[str]] = {}
    files = list(names)
    for name in files:
        place = name
        while place:
            by_folder.setdefault(place, []).append(name)
            place = posixpath.dirname(place)
    wanted = list(references)
    chosen = {name for reference in wanted for name in by_folder.get(reference, ())}
    missing = [reference for reference in wanted if reference not in by_folder]
    return [name for name in files if name in chosen], missing


def _confined(value: Any, path: str, key: str) -> str:
    """A reference as a plain relative path; whatever leads out of the folder is refused."""
    plain = posixpath.normpath(value) if isinstance(value, str) else ""
    if (
        plain in ("", ".", "..")
        or plain.startswith(("/", "../"))
        or "://" in value
        or "\0" in value
    ):
        raise RunnerError(
            f"{path}: {key}: {value!r} is not a path below the folder of the annotated files: "
            "use relative paths without .."
        )
    return plain


def _values(document: Any, key: str) -> Iterator[Any]:
    found = list(_descend(document, key))
    if not found and isinstance(document, dict):
        # COCO's lists of images and annotations, or a mapping of names to records.
        for group in document.values():
            if isinstance(group, (dict, list)):
                yield from _descend(group, key)
    yield from found


def _descend(node: Any, key: str) -> Iterator[Any]:
    if isinstance(node, list):
        for item in node:
            yield from _descend(item, key)
    elif not key:
        yield node
    elif isinstance(node, dict):
        first, _, rest = key.partition(".")
        if key in node:
            yield from _descend(node[key], "")
        elif first in node:
            yield from _descend(node[first], rest)


def _read_json(path: str) -> Iterator[Any]:
    with open(path, encoding="utf-8-sig") as file:
        try:
            yield json.load(file)
        except ValueError as error:
            raise RunnerError(f"{path} is not valid JSON: {error}") from error


def _read_jsonl(path: str) -> Iterator[Any]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise RunnerError(f"{path}, line {number}: not valid JSON: {error}") from error


def _read_csv(path: str) -> Iterator[Any]:
    import csv

    with open(path, encoding="utf-8-sig", newline="") as file:
        try:
            yield from csv.DictReader(file)
        except csv.Error as error:
            raise RunnerError(f"{path} is not valid CSV: {error}") from error


def _read_parquet(path: str, keys: Sequence[str]) -> Iterator[Any]:
    parquet = importable("pyarrow.parquet")
    if not parquet:
        raise RunnerError(
            f"{path}: reading parquet needs pyarrow in the image: install it, or use json, jsonl "
            "or csv"
        )
    wanted = {*keys, *(key.partition(".")[0] for key in keys)}
    with parquet.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in wanted]
        for batch in file.iter_batches(columns=columns):
            yield from batch.to_pylist()


_READERS = {"json": _read_json, "jsonl": _read_jsonl, "csv": _read_csv}


def referenced_names(
    task: StagingTask,
    names: Sequence[str],
    staged: Sequence[tuple[StagingTask, str | None]],
    values: Mapping[str, Any],
) -> set[str]:
    """Which of a folder's files the annotation files of its task refer to."""
    chosen: set[str] = set()
    for selection in task.selective:
        annotation = _local_path(selection.annotation, staged, values)
        if os.path.isdir(annotation):
            raise RunnerError(f"{render(selection.annotation)}: {annotation} is a folder")
        references = parse_references(annotation, selection.format, selection.keys)
        found, missing = match_references(references, names)
        if missing:
            raise NotFoundError(
                f"{task.uri} has no {missing[0]} ({len(missing):,} of {len(references):,} "
                f"files that {annotation} refers to are missing)"
            )
        chosen.update(found)
    return chosen


def _local_path(
    place: SpecPath,
    staged: Sequence[tuple[StagingTask, str | None]],
    values: Mapping[str, Any],
) -> str:
    """The local path that a place of the spec stands for."""
    for task, path in staged:
        if place in task.keys and path is not None:
            return path
    value = value_at(values, place)
    if not isinstance(value, str):
        raise RunnerError(f"{render(place)}: {value!r} is not an annotation file")
    return local_path(value) if scheme_of(value) else value
