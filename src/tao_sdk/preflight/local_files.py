"""Paths of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tao_sdk.preflight import json_records
from tao_sdk.preflight.checks import Check
from tao_sdk.preflight.data import (
    DENIED,
    FILE,
    FOLDER,
    MISSING,
    Look,
    data_checks,
    is_annotation,
    wanted_fields,
)
from tao_sdk.preflight.paths import file_path, not_a_path
from tao_sdk.preflight.request import PreflightRequest


def local_checks(request: PreflightRequest, label: str) -> Iterator[Check]:
    """Findings about one path of this machine."""
    path = file_path(request.paths[label])
    if not path:
        yield from not_a_path(request, label)
        return
    yield from data_checks(request, label, look(request, label, path), "this machine")


def look(request: PreflightRequest, label: str, path: str) -> Look:
    """What is there."""
    fields = wanted_fields(request, label)
    try:
        if Path(path).is_dir():
            readable = os.access(path, os.R_OK | os.X_OK)
            return Look(FOLDER if readable else DENIED)
        if not Path(path).exists():
            return Look(MISSING)
        if fields is None and not is_annotation(label, path):
            return Look(FILE if os.access(path, os.R_OK) else DENIED)
        with open(path, "rb") as file:
            return Look(FILE, json_records.examine(file, fields or (), request.sample_limit))
    except PermissionError:
        return Look(DENIED)
