"""Data in object stores and registries, asked with the code that stages it in the job."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tao_sdk import storage
from tao_sdk.errors import CredentialError, StorageError
from tao_sdk.planning.uris import STAGED_SCHEMES
from tao_sdk.preflight import json_records
from tao_sdk.preflight.checks import Check, Task, failed, passed
from tao_sdk.preflight.credentials import is_set
from tao_sdk.preflight.data import (
    FILE,
    FOLDER,
    MISSING,
    Look,
    data_checks,
    unlooked,
    unread,
    wanted_fields,
)
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.runner.uris import scheme_of

_KEYS = ("ACCESS_KEY", "SECRET_KEY")


def store_tasks(request: PreflightRequest) -> list[Task]:
    """The looks at everything that must be fetched before a job can read it."""
    labels = [label for label, uri in request.paths.items() if scheme_of(uri) in STAGED_SCHEMES]
    in_s3 = [label for label in labels if scheme_of(request.paths[label]) == "s3"]
    tasks = [Task("s3.credentials", _s3_credentials)] if in_s3 else []
    for label in labels:
        tasks.append(Task(f"path:{label}", partial(_look, request, label)))
    return tasks


def _s3_credentials() -> Iterator[Check]:
    missing = [name for name in _KEYS if not is_set(name)]
    if missing:
        yield failed(
            "s3.credentials",
            f"data is at s3://, and not set: {', '.join(missing)}",
            "export ACCESS_KEY=… SECRET_KEY=…   # and S3_ENDPOINT_URL where the store is not AWS",
            missing=missing,
        )
    else:
        yield passed("s3.credentials", "set: ACCESS_KEY, SECRET_KEY")


def _look(request: PreflightRequest, label: str) -> Iterator[Check]:
    uri = request.paths[label]
    scheme = scheme_of(uri)
    if scheme == "s3" and not all(map(is_set, _KEYS)):
        yield from unlooked(request, label, "the store's credentials are not set")
        return
    if request.skip_platform_access:
        yield from unlooked(request, label, "platform access is skipped")
        return
    try:
        look = _look_into_s3(request, label) if scheme == "s3" else _look_into_registry(uri)
    except (StorageError, CredentialError) as error:
        yield failed(f"path:{label}", str(error), _remedy(scheme, error))
        yield from unread(request, label, "the store could not be asked")
        return
    yield from data_checks(request, label, look, "here")


def _look_into_s3(request: PreflightRequest, label: str) -> Look:
    uri = request.paths[label]
    found = storage.look(uri)
    if found is None:
        return Look(MISSING)
    fields = wanted_fields(request, label)
    if found.is_folder or fields is None:
        return Look(FOLDER if found.is_folder else FILE)
    if found.size > json_records.LARGEST:
        return Look(FILE, {"too_large": True})
    data = storage.read_file(uri, json_records.LARGEST)
    if data is None:
        return Look(MISSING)
    return Look(FILE, json_records.examine_text(data, fields, request.sample_limit))


def _look_into_registry(uri: str) -> Look:
    return Look(FOLDER if storage.exists(uri, quick=True) else MISSING)


def _remedy(scheme: str, error: Exception) -> str:
    if scheme == "s3":
        return (
            "Check ACCESS_KEY, SECRET_KEY, S3_ENDPOINT_URL and CLOUD_REGION, and that these keys "
            "may list the bucket and read the objects."
        )
    name = "NGC_KEY" if scheme == "ngc" else "HF_TOKEN"
    hint = "is it valid, and may it read this?" if isinstance(error, CredentialError) else ""
    return f"Check the address, the network, and {name}: {hint}".rstrip(": ") + "."
