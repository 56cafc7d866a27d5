"""Findings about the data of a launch, from what was seen of it: pure."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tao_sdk.preflight.checks import Check, failed, passed, skipped, warning
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.runner.uris import scheme_of

FILE, FOLDER, MISSING, DENIED = "file", "folder", "missing", "denied"
_JSON = (".json", ".jsonl", ".ndjson")


class Look(NamedTuple):
    """What was seen of a path."""

    state: str
    """file, folder, missing or denied."""
    records: Mapping[str, Any] | None = None
    """What `json_records` says about a file; None if it was not read."""


def wanted_fields(request: PreflightRequest, label: str) -> tuple[str, ...] | None:
    """The fields to look for in a file; None when its content does not matter."""
    if label in request.required_fields:
        return request.required_fields[label]
    return () if label in request.effective_batch else None


def is_annotation(label: str, path: str) -> bool:
    """Whether to report how many records a file has although no check asks for it."""
    name = posixpath.basename(path.rstrip("/")).lower()
    return name.endswith(_JSON) and "annotation" in f"{label.lower()} {name}"


def data_checks(
    request: PreflightRequest, label: str, look: Look, where: str, remedy: str = ""
) -> Iterator[Check]:
    """Findings about a path that was inspected; `where` is the place it was seen from."""
    path = request.paths[label]
    yield _presence(label, path, look, where, remedy)
    for check in (_fields, _batch):
        yield from check(request, label, look)


def unlooked(request: PreflightRequest, label: str, reason: str) -> Iterator[Check]:
    """Findings about a path that could not be inspected, for a reason reported elsewhere."""
    yield skipped(f"path:{label}", f"not looked at: {reason}")
    yield from unread(request, label, reason)


def unread(request: PreflightRequest, label: str, reason: str) -> Iterator[Check]:
    """Findings about the content of such a path."""
    if label in request.required_fields:
        yield skipped(f"fields:{label}", f"not looked at: {reason}")
    if label in request.effective_batch:
        yield skipped(f"batch:{label}", f"not looked at: {reason}")


def unknown_labels(request: PreflightRequest) -> Iterator[Check]:
    """Fields or batches of a path that was not given."""
    known = ", ".join(request.paths) or "none"
    for prefix, labels in (
        ("fields", request.required_fields),
        ("batch", request.effective_batch),
    ):
        for label in labels:
            if label not in request.paths:
                yield failed(
                    f"{prefix}:{label}",
                    f"there is no path with the label {label!r}; given: {known}",
                    f"Give it: {request.flags.path} {label}=PATH",
                )


def _presence(label: str, path: str, look: Look, where: str, remedy: str) -> Check:
    name = f"path:{label}"
    if look.state == MISSING:
        return failed(name, f"{path} is not there, seen from {where}", remedy or _mistyped(path))
    if look.state == DENIED:
        return failed(
            name,
            f"{path} may not be read, seen from {where}",
            "Let the user that jobs run as read it, and enter the folders above it.",
        )
    counted = (look.records or {}).get("records")
    count = "" if counted is None else f", records={counted}"
    return passed(name, f"{path}: a {look.state}{count}", state=look.state, records=counted)


def _mistyped(path: str) -> str:
    scheme = f"{scheme_of(path)}:// " if scheme_of(path) else ""
    return f"Check the {scheme}path {path}, or copy the data there."


def _fields(request: PreflightRequest, label: str, look: Look) -> Iterator[Check]:
    fields = request.required_fields.get(label)
    if not fields:
        return
    name, path = f"fields:{label}", request.paths[label]
    problem = _unusable(name, look)
    if problem is not None:
        yield problem
        return
    records: Mapping[str, Any] = look.records or {}
    if records["bad"]:
        shown = "; ".join(records["problems"])
        more = records["bad"] - len(records["problems"])
        yield failed(
            name,
            f"{records['bad']} of {records['looked']} records lack a field: {shown}"
            + (f"; and {more} more" if more > 0 else ""),
            f"Each record of {path} needs {', '.join(fields)}: add what is missing, or give the "
            "file that has it.",
            **records,
        )
    else:
        looked, total = records["looked"], records["records"]
        yield passed(name, f"{', '.join(fields)} in {looked} of {total} records", **records)


def _batch(request: PreflightRequest, label: str, look: Look) -> Iterator[Check]:
    if label not in request.effective_batch:
        return
    name = f"batch:{label}"
    batch, shards = request.effective_batch[label]
    problem = _unusable(name, look)
    if problem is not None:
        yield problem
        return
    records = int((look.records or {})["records"])
    each = records // shards
    told = f"{records} records in {shards} shards are {each} each, a batch is {batch}"
    if batch > records / shards:
        needed = math.ceil(batch * shards)
        yield failed(
            name,
            told,
            f"Lower the batch to {each} or less, use fewer shards, or bring at least {needed} "
            "records."
            if each
            else f"Use fewer shards, or bring at least {needed} records.",
        )
    else:
        yield passed(name, told)


def _unusable(name: str, look: Look) -> Check | None:
    """Why nothing can be said about the records of a file."""
    if look.state in (MISSING, DENIED):
        return skipped(name, "not looked at: the file is not there or may not be read")
    if look.state == FOLDER:
        return failed(name, "it is a folder", "Give the path of the annotation file itself.")
    records = look.records or {"error": "it could not be read"}
    if records.get("too_large"):
        return warning(name, "not looked at: the file is larger than 1 GiB")
    if "error" in records:
        return failed(name, records["error"], "Records are looked for in JSON and JSON Lines.")
    if not records["records"]:
        return failed(name, "the file has no records", "Give a file with records in it.")
    return None
