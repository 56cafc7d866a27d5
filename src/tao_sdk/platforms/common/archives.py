"""Tar archives of small files, made in memory. Pure."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from typing import NamedTuple


class Member(NamedTuple):
    """A file, or a folder when `text` is None. Private unless `mode` says otherwise."""

    name: str
    text: str | None = None
    mode: int = 0

    @property
    def permissions(self) -> int:
        return self.mode or (0o700 if self.text is None else 0o600)


def pack(members: Iterable[Member]) -> bytes:
    """An archive with explicit permissions, which hold under any umask when it is unpacked."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member in members:
            header = tarfile.TarInfo(member.name)
            header.mode = member.permissions
            if member.text is None:
                header.type = tarfile.DIRTYPE
                archive.addfile(header)
            else:
                data = member.text.encode()
                header.size = len(data)
                archive.addfile(header, io.BytesIO(data))
    return buffer.getvalue()
