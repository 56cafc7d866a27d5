"""Checksums of content: `<kind>:<hexadecimal digest>`, as `RemoteFile.checksum` has them."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from .errors import RunnerError

_BLOCK = 256 * 1024
_HASHES = ("md5", "sha1", "sha256")


class Hasher(Protocol):
    """What is fed with content and knows its digest."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


class Crc32:
    """CRC-32 with the interface of a hash."""

    def __init__(self) -> None:
        self.value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self.value = zlib.crc32(data, self.value)

    def hexdigest(self) -> str:
        return f"{self.value:08x}"


class NoHash:
    """What does not look at the content."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Nothing is remembered."""

    def hexdigest(self) -> str:
        return "-"


def new_hash(name: str) -> Hasher:
    """A hash against accidents. Machines in FIPS mode allow MD5 for nothing else."""
    return hashlib.new(name, usedforsecurity=False)


def hasher_for(checksum: str, size: int) -> Hasher:
    """What computes the kind of checksum that this one is."""
    kind = checksum.partition(":")[0]
    if kind == "crc32":
        return Crc32()
    if kind == "git-sha1":  # what Git calls a blob: its length is part of it
        hasher = new_hash("sha1")
        hasher.update(b"blob %d\0" % size)
        return hasher
    if kind not in _HASHES:
        raise RunnerError(f"{checksum!r}: not a kind of checksum that is known here")
    return new_hash(kind)


def blocks_of(descriptor: int, start: int, length: int) -> Iterator[memoryview]:
    """What a file has there: views of one buffer. Less of them where it is shorter."""
    buffer = memoryview(bytearray(min(_BLOCK, length)))
    while length:
        count = os.preadv(descriptor, [buffer[:length]], start)
        if not count:
            return
        yield buffer[:count]
        start += count
        length -= count


def uses_keys(headers: Mapping[str, str]) -> bool:
    """Whether S3 encrypts an object with keys: its tag looks like an MD5 then, but is none."""
    name = "x-amz-server-side-encryption"
    return headers.get(name, "").startswith("aws:kms") or name + "-customer-algorithm" in headers


def agrees(hasher: Hasher, checksum: str) -> bool:
    """Whether what was hashed is what the checksum is of."""
    return hasher.hexdigest() == checksum.partition(":")[2].lower()
