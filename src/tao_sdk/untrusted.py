"""Reading what a job, a neighbour or a broken disk wrote: within bounds of size and value."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["number", "open_regular", "read_regular", "whole_number"]

# There is no file; or it is a link, a folder below a file, or a pipe that nothing reads.
_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)


def open_regular(path: Path) -> BinaryIO | None:
    """Open a regular file for reading; None for anything else, such as a link or a pipe.

    Never blocks on a pipe. Raises `OSError` for a file that exists and cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_SUCH_FILE:
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    return None


def read_regular(path: Path, limit: int) -> bytes | None:
    """The first `limit` bytes of a regular file; None for anything else."""
    file = open_regular(path)
    if file is None:
        return None
    with file:
        return file.read(limit)


def whole_number(value: Any, low: int, high: int) -> int:
    """`value` if it is a whole number between `low` and `high`; raises `ValueError` otherwise."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"not a whole number between {low} and {high}")
    return value


def number(text: str, most: int = 2**63 - 1) -> int | None:
    """The number that a text of ASCII digits is, up to `most`; None for any other text."""
    # `isdigit` alone accepts "²", and `int` refuses thousands of digits.
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    return value if (value := int(text)) <= most else None
