"""What is in a tar or zip archive, one member after the other, read once from start to end."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import IO, Any, NamedTuple

from .errors import RunnerError
from .site_packages import importable

COPY_BYTES = 1 << 20
LONGEST_LINK = 4096
# Of one member of a tar: names, links, attributes, a map of holes. They are kept in memory.
_LARGEST_HEADER = 1 << 20
_PAX_TYPES = (b"x", b"g", b"X")
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,6}) [^=\n]*=")
_MANY_DIGITS = re.compile(rb"[0-9]{300}")
# `zipfile` decompresses all that it has read of these at once: 4 KiB of zeros may become 4 GiB.
_UNBOUNDED_METHODS = {12: "bzip2", 14: "LZMA"}


class Member(NamedTuple):
    """Something to unpack. It can be opened until the next one is read."""

    name: str
    kind: str
    """file, folder, symlink, hard link; anything else is not unpacked."""
    mode: int
    mtime: float
    size: int
    target: str
    open: Callable[[], IO[bytes] | None]


class _Forward:
    """A stream as tarfile reads it: never backwards, and headers only within bounds."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._at = 0
        self.begin_header()

    def begin_header(self) -> None:
        """What is read from here on is the header of a member."""
        self.kind = b""
        self.left = _LARGEST_HEADER

    def begin_content(self) -> None:
        self.left = sys.maxsize

    def tell(self) -> int:
        return self._at

    def seek(self, to: int) -> None:
        while self._at < to and self._take(min(COPY_BYTES, to - self._at)):
            pass
        if self._at > to:
            raise ValueError("a member begins before the end of another")

    def read(self, size: int) -> bytes:
        self.left -= size
        if size < 0 or self.left < 0:
            raise ValueError(f"a header has more than {_LARGEST_HEADER} bytes")
        data = self._take(size)
        if self.kind in _PAX_TYPES and not _is_sound(data):
            raise ValueError("a pax header is not a list of records")
        self.kind = b""
        return data

    def _take(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        self._at += len(data)
        return data


def _is_sound(records: bytes) -> bool:
    """Whether tarfile reads these records of a pax header in time and memory of their size.

    Before Python 3.12.6 both grow with the square of it, for records that overlap or have many
    digits.
    """
    at = 0
    while at < len(records) and records[at]:
        record = _PAX_RECORD.match(records, at)
        end = at + int(record[1]) if record else 0
        if not record or record.end() >= end or records[end - 1 : end] != b"\n":
            return False
        at = end
    return not _MANY_DIGITS.search(records)


def tar_members(file: IO[bytes], path: str) -> Iterator[Member]:
    import tarfile

    class StrictHeader(tarfile.TarInfo):
        """Where tarfile would take a header it cannot read for the end of the archive."""

        @classmethod
        def frombuf(cls, *args: Any) -> StrictHeader:  # tarfile gives no keywords
            info = super().frombuf(*args)
            forward.kind = info.type
            return info

        @classmethod
        def fromtarfile(cls, tarfile_: tarfile.TarFile) -> StrictHeader:
            try:
                return super().fromtarfile(tarfile_)
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # not in the stubs
                raise
            except tarfile.HeaderError as error:
                raise tarfile.ReadError(str(error)) from None

    tar: Any
    with _decompressed(file, path) as stream:
        forward = _Forward(stream)
        options: Any = {"mode": "r:", "fileobj": forward, "tarinfo": StrictHeader}
        with tarfile.open(**options) as tar:
            info = tar.next()
            while info:
                tar.members = []  # or all stay in memory
                if sum(map(len, chain(*tar.pax_headers.items()))) > _LARGEST_HEADER:
                    raise ValueError(f"its global headers have more than {_LARGEST_HEADER} bytes")
                forward.begin_content()
                yield Member(
                    info.name,
                    _tar_kind(info),
                    info.mode,
                    info.mtime,
                    info.size,
                    info.linkname,
                    partial(tar.extractfile, info) if info.isreg() else _nothing,
                )
                forward.begin_header()
                info = tar.next()
        while stream.read(COPY_BYTES):
            pass  # the checksum of the compressed data comes at its end


def _nothing() -> None:
    """The content of a link. It does not keep tarfile's large object of the member alive."""


def _tar_kind(info: Any) -> str:
    if info.isreg():
        return "file"
    if info.isdir():
        return "folder"
    if info.issym():
        return "symlink"
    if info.islnk():
        return "hard link"
    return "device or pipe"


@contextmanager
def _decompressed(file: IO[bytes], path: str) -> Iterator[Any]:
    # tarfile could do this itself, but does not look at gzip's checksum when it reads a stream.
    head = file.read(6)
    file.seek(0)
    if head.startswith(b"\x1f\x8b"):
        import gzip

        with gzip.open(file) as stream:
            yield stream
    elif head.startswith(b"BZh"):
        import bz2

        with bz2.open(file) as stream:
            yield stream
    elif head == b"\xfd7zXZ\0":
        import lzma

        with lzma.open(file) as stream:
            yield stream
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        with _unzstd(path) as stream:
            yield stream
    else:
        yield file


@contextmanager
def _unzstd(path: str) -> Iterator[IO[bytes]]:
    """By Python itself (since 3.14), else by the program, else by the package."""
    program = shutil.which("zstd")
    module = importable("compression.zstd") or (None if program else importable("zstandard"))
    if module:
        try:
            with open(path, "rb") as file:
                if hasattr(module, "ZstdFile"):
                    yield module.ZstdFile(file)
                else:
                    yield module.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        except module.ZstdError as error:
            raise EOFError(str(error)) from error
    elif program:
        import subprocess

        command = [program, "-dcq", "--long=31", "--", path]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout  # noqa: S101 (for the type checker: it is a pipe)
            try:
                yield process.stdout
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise EOFError(f"zstd ended with code {process.returncode}")
    else:
        raise RunnerError(
            f"archive {path} cannot be unpacked here: add the program zstd or the Python package "
            "zstandard to the image, or pack it with gzip"
        )


def zip_members(file: IO[bytes], path: str) -> Iterator[Member]:
    import zipfile

    with zipfile.ZipFile(file) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
            if info.flag_bits & 1:
                raise RunnerError(f"archive {path} is encrypted; upload it without a password")
            if info.compress_type in _UNBOUNDED_METHODS:
                method = _UNBOUNDED_METHODS[info.compress_type]
                raise RunnerError(
                    f"archive {path} is a zip with {method}, which cannot be unpacked in bounded "
                    "memory; pack it with deflate, or as tar.bz2 or tar.xz"
                )
            name = _zip_name(info)
            mode = info.external_attr >> 16
            kind, target = _zip_kind(name, mode), ""
            if kind == "symlink":
                with archive.open(info) as content:
                    target = os.fsdecode(content.read(LONGEST_LINK + 1))
            yield Member(
                name,
                kind,
                mode & 0o777 or (0o755 if kind == "folder" else 0o644),
                _zip_time(info),
                info.file_size,
                target,
                partial(archive.open, info),
            )


def _zip_name(info: Any) -> str:
    name = str(info.filename)
    if info.create_system == 3 and not info.flag_bits & 0x800:
        # Packed on Unix: the bytes of the name as they were there, not code page 437.
        with suppress(UnicodeEncodeError):
            name = os.fsdecode(name.encode("cp437"))
    # Some programs for Windows write backslashes.
    return name.replace("\\", "/")


def _zip_kind(name: str, mode: int) -> str:
    if name.endswith("/"):
        return "folder"
    kinds = {0: "file", stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFDIR: "folder"}
    return kinds.get(stat.S_IFMT(mode), "device or pipe")


def _zip_time(info: Any) -> float:
    """From the extra field with the time in UTC, else the local time that every member has."""
    import struct
    import time

    extra = info.extra
    while len(extra) >= 4:
        kind, length = struct.unpack("<HH", extra[:4])
        if kind == 0x5455 and length >= 5 and len(extra) >= 9 and extra[4] & 1:
            return float(struct.unpack("<i", extra[5:9])[0])
        extra = extra[4 + length :]
    return time.mktime((*info.date_time, 0, 0, -1))
