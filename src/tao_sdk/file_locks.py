"""Locks on open files (`flock`), which end with their process; not every file system has them."""

from __future__ import annotations

import errno
import fcntl

from tao_sdk.errors import StoreError

# Lustre mounted without `-o flock`, some FUSE file systems, NFS without its lock service.
_REFUSED = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


class NoFileLocksError(StoreError):
    """The file system refuses file locks."""


def lock(descriptor: int, *, wait: bool) -> bool:
    """Take the exclusive lock. False if another holds it and we do not wait."""
    try:
        _flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _REFUSED:
            raise NoFileLocksError(
                f"this file system refuses file locks ({error.strerror})"
            ) from error
        raise
    return True


def unlock(descriptor: int) -> None:
    _flock(descriptor, fcntl.LOCK_UN)


def _flock(descriptor: int, operation: int) -> None:
    fcntl.flock(descriptor, operation)
