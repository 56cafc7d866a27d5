"""Results that a job delivered to a bucket: its records there, and their removal.

No platform is needed for them, so they count whatever the platform knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tao_sdk.errors import BackendUnreachableError, CredentialError, StorageError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.staged_data import storage_for
from tao_sdk.result_record import MAX_RECORD_BYTES, ResultRecord, record_name


def records_in_bucket(job: JobRef, ranks: int = 1) -> list[ResultRecord]:
    """The records that the job left beside its results; [] when they are in no bucket."""
    storage = storage_for(job.results_dir)
    if storage is None:
        return []
    found = []
    for rank in range(ranks):
        with _errors_as_unreachable():
            data = storage.read_file(f"{job.results_dir}/{record_name(rank)}", MAX_RECORD_BYTES)
        record = ResultRecord.parse((data or b"").decode("utf-8", "replace"), job.job_id)
        if record is not None:
            found.append(record)
    return found


def remove_from_bucket(job: JobRef) -> None:
    """Remove the folder of the job's results, if it is in a bucket."""
    if storage := storage_for(job.results_dir):
        with _errors_as_unreachable():
            storage.remove_folder(job.results_dir)


@contextmanager
def _errors_as_unreachable() -> Iterator[None]:
    """A bucket that cannot be asked is a platform that cannot be asked."""
    try:
        yield
    except (StorageError, CredentialError) as error:
        raise BackendUnreachableError(str(error)) from error
