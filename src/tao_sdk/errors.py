"""The one error tree of the SDK.

::

    TaoError                        everything the SDK raises on purpose
    ├── CredentialError             a credential is missing or refused; names the variable
    ├── ValidationError             the request cannot be right; raised before any side effect
    │   ├── UnknownOptionError      an unknown keyword (also a TypeError)
    │   └── SecretExposureError     a secret would have become visible
    ├── UnsupportedError            right in itself, but not on this platform
    ├── StoreError                  the job store cannot be used
    │   ├── ForeignStoreError       the file is not ours, is damaged, or is newer than we are
    │   │   └── NewerStoreError written by a newer version of the SDK
    │   ├── StoreBusyError          other processes held the store for too long
    │   ├── DamagedRowError     what the store has about one job is damaged
    │   ├── JobExistsError          a job of that id is in the store already
    │   └── UnknownParentError      parent_job_id names no job of the store
    ├── JobNotFoundError            no such job (also a KeyError)
    │   └── AmbiguousJobError       a shortened id fits several jobs
    ├── PlatformError               the platform said no, or nothing
    │   ├── BackendUnreachableError we could not ask; nothing is known to have changed
    │   ├── CapacityError           not enough GPUs, now or ever
    │   ├── SubmissionRejectedError the platform refused the job; nothing runs
    │   └── SubmissionUncertainError we do not know yet whether the job was accepted
    ├── StorageError                a store of data could not be asked, or has no such thing
    └── WaitTimeoutError            `wait(timeout=)` ran out (also a TimeoutError)

Every message says what was wrong, where, and what to do.
"""

from __future__ import annotations


class TaoError(Exception):
    """Base of everything the SDK raises on purpose."""

    def __str__(self) -> str:
        # KeyError would print its argument quoted; a message is a sentence, not a key.
        return str(self.args[0]) if self.args else ""


class CredentialError(TaoError):
    """A credential is missing or was refused. The message names the variable, never a value."""


class ValidationError(TaoError, ValueError):
    """The request cannot be right. Raised before anything exists."""


class UnknownOptionError(ValidationError, TypeError):
    """A keyword argument that neither the SDK nor the platform knows."""


class SecretExposureError(ValidationError):
    """A secret would have become visible in a command line, a plan or the store."""


class UnsupportedError(TaoError, NotImplementedError):
    """The request is right in itself, but this platform or version cannot do it."""


class StoreError(TaoError):
    """The job store cannot be used."""


class ForeignStoreError(StoreError):
    """The file is not a job store of ours, is damaged, or comes from a newer version."""


class NewerStoreError(ForeignStoreError):
    """The file was written by a newer version of the SDK."""


class StoreBusyError(StoreError):
    """Other processes held the store for longer than we were willing to wait."""


class DamagedRowError(StoreError):
    """What the store has about one job is damaged."""


class JobExistsError(StoreError):
    """A job of that id is in the store already."""


class UnknownParentError(StoreError):
    """`parent_job_id` names a job that is not in the store."""


class JobNotFoundError(TaoError, KeyError):
    """No such job in the store."""


class AmbiguousJobError(JobNotFoundError):
    """A shortened id that fits more than one job."""


class PlatformError(TaoError):
    """The platform said no, or nothing."""


class BackendUnreachableError(PlatformError):
    """The platform could not be asked. Nothing is known to have changed."""


class CapacityError(PlatformError):
    """Not enough GPUs: now (`when_busy="refuse"`) or ever (more than the platform has)."""


class SubmissionRejectedError(PlatformError):
    """The platform refused the job. Nothing of it runs."""


class SubmissionUncertainError(PlatformError):
    """We do not know yet whether the platform accepted the job.

    The job is in the store and is settled (adopted, or marked as never submitted) on the next
    contact with the platform: do not submit it again.
    """

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class StorageError(TaoError):
    """A store of data (S3, Hugging Face, NGC) could not be asked, or has no such thing."""


class WaitTimeoutError(TaoError, TimeoutError):
    """`wait(timeout=)` ran out before every job had ended."""
