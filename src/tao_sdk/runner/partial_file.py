"""A file on its way: under a hidden name until it is whole, and resumable when it is large.

`.<name>.<digits>.tao-part` holds the bytes. Of a small file the digits are random. Of a large one
they stand for the exact version of the content, so that the next attempt finds what there is, and
what another version left is never continued. Beside it, `....pieces` lists the pieces that have
arrived. After a crash of the machine the list may have reached the disk and the content not. So
what is gone on with is compared with its checksum in the end; where there is none, the list has the
CRC-32 of each piece, and a piece that has another one does not count.

Whoever writes one holds a lock on it: what is not locked was left by a process that is gone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import random
import re
import time
from collections.abc import Iterable

from .checksums import Crc32, blocks_of

_CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFT_OVER = re.compile(r"\..*\.[0-9a-f]{8}\.tao-part")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


class PartialFile:
    """The temporary beside `target`; with a `version`, one that can be gone on with."""

    def __init__(self, target: str, version: str = "") -> None:
        folder, _, name = target.rpartition("/")
        # A part of the name suffices to recognise it, and names can be 255 bytes long.
        self._folder, self._label = folder, f".{name[:40]}."
        self._target = target
        self._list = self.descriptor = -1
        self.has_unproved = False
        """There are pieces of an earlier attempt that only the checksum of the whole can prove."""
        self._is_resumable = False
        if version:
            digits = hashlib.sha256(os.fsencode(f"{name}\0{version}")).hexdigest()[:16]
            self._is_resumable = self._open_resumable(digits)
        if not self._is_resumable:
            self._path = self._path_for(f"{random.getrandbits(32):08x}")
            self.descriptor = os.open(self._path, _CREATE | os.O_EXCL, 0o666)
            _lock(self.descriptor)  # against those who sweep

    def _path_for(self, digits: str) -> str:
        return f"{self._folder}/{self._label}{digits}.tao-part"

    def _open_resumable(self, digits: str) -> bool:
        """False where another process is downloading the same."""
        self._path = self._path_for(digits)
        self._remove_other_versions()
        while True:
            descriptor = os.open(self._path, _CREATE, 0o666)
            if not _lock(descriptor):
                os.close(descriptor)
                return False
            if _is_at(descriptor, self._path):
                self.descriptor = descriptor
                return True
            os.close(descriptor)  # it got its final name between the two calls

    def _remove_other_versions(self) -> None:
        other = re.compile(re.escape(self._label) + r"[0-9a-f]{16}\.tao-part")
        for name in os.listdir(self._folder):
            path = os.path.join(self._folder, name)
            if other.fullmatch(name) and path != self._path and _remove_if_left(path):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + ".pieces")

    def restart(self, size: int) -> None:
        """Forget what is there; make room for `size` bytes."""
        self._forget_list()
        # Only where there is something: at its closing ext4 writes out what was cut to nothing.
        if os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, 0)
        os.ftruncate(self.descriptor, size)

    def resume(self, size: int, piece: int, is_checked_later: bool) -> set[int]:
        """The pieces that are there from an earlier attempt. Begins anew where there are none."""
        whole: set[int] = set()
        if self._is_resumable and os.fstat(self.descriptor).st_size == size:
            for index, crc in self._listed():
                start = index * piece
                if start >= size:
                    continue
                if crc == "-" and is_checked_later:
                    self.has_unproved = True
                elif crc != self._crc(start, min(piece, size - start)):
                    continue
                whole.add(index)
        if not whole:
            self.restart(size)
        return whole

    def _listed(self) -> list[tuple[int, str]]:
        try:
            with open(self._path + ".pieces", encoding="ascii", errors="replace") as file:
                lines = [line.split() for line in file]
        except FileNotFoundError:
            return []
        # A line that was cut short by a crash lacks its last word.
        return [(int(line[0]), line[1]) for line in lines if len(line) == 3 and line[0].isdigit()]

    def _crc(self, start: int, length: int) -> str:
        crc = Crc32()
        for block in blocks_of(self.descriptor, start, length):
            crc.update(block)
        return crc.hexdigest()

    def note(self, index: int, crc: str) -> None:
        """A piece is written."""
        if self._is_resumable:
            if self._list < 0:
                self._list = os.open(self._path + ".pieces", _CREATE | os.O_APPEND, 0o666)
            os.write(self._list, f"{index} {crc} whole\n".encode())

    def write(self, block: memoryview, offset: int) -> None:
        written = os.pwrite(self.descriptor, block, offset)
        while written < len(block):
            written += os.pwrite(self.descriptor, block[written:], offset + written)

    def commit(self) -> None:
        """It is whole: give it its name."""
        os.rename(self._path, self._target)
        self._forget_list()
        self.close()

    def discard(self) -> None:
        """Leave nothing."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._forget_list()
        self.close()

    def close(self) -> None:
        """Leave what is there for a later attempt."""
        for descriptor in (self.descriptor, self._list):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptor = self._list = -1

    def _forget_list(self) -> None:
        if self._is_resumable:
            if self._list >= 0:
                os.close(self._list)
                self._list = -1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path + ".pieces")


def sweep(folder: str, names: Iterable[str], older_than: float = 60.0) -> None:
    """Remove what a killed process left of small files.

    Others may use the folder, where locks do not reach from host to host: what is that many
    seconds old is nobody's.
    """
    for name in names:
        if _LEFT_OVER.fullmatch(name):
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_mtime <= time.time() - older_than:
                    _remove_if_left(path)


def _remove_if_left(path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _lock(descriptor):
                os.unlink(path)
                return True
        finally:
            os.close(descriptor)
    return False


def _is_at(descriptor: int, path: str) -> bool:
    """Does the path still mean this file?"""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def _lock(descriptor: int) -> bool:
    """Whether it is ours now. Without locks on the file system it is taken to be."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
