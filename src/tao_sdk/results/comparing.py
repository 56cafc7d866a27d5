"""Whether two files are the same."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from tao_sdk.results.sources import Entry

_BLOCK = 1024 * 1024
_MICROSECOND = 1000


def same_version(left: Entry, right: Entry) -> bool:
    """Whether a file has (very likely) the same content: as far as size and time tell.

    Not every file system keeps nanoseconds.
    """
    return (
        left.kind is right.kind
        and left.size == right.size
        and left.mtime_ns // _MICROSECOND == right.mtime_ns // _MICROSECOND
        and left.target == right.target
    )


def digest_of(file: BinaryIO, algorithm: str = "sha256") -> str:
    """A fingerprint of what is left to read."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
