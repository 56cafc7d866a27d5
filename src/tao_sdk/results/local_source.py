"""Results in a folder of this machine."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from tao_sdk.results.comparing import digest_of, same_version
from tao_sdk.results.links import link_entry
from tao_sdk.results.outcomes import changed, failed, gone
from tao_sdk.results.sources import PERMISSIONS, Advance, Copies, Entry, Fetched, Kind

_BLOCK = 1024 * 1024
_ATTEMPTS = 3


class LocalResults:
    """Results in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()

    @property
    def address(self) -> str:
        return str(self._root)

    def entries(self) -> Iterator[Entry]:
        waiting = [self._root]
        while waiting:
            folder = waiting.pop()
            try:
                paths = sorted(folder.iterdir())
            except FileNotFoundError:
                continue  # the job removed it meanwhile
            except OSError as error:
                yield self._unreadable(folder, error)
                continue
            found = [entry for path in paths if (entry := self._look(path)) is not None]
            yield from found
            folders = [entry.path for entry in found if entry.kind is Kind.FOLDER]
            waiting += (self._root / path for path in reversed(folders))

    def look(self, path: str) -> Entry | None:
        """One entry as it is now; None when it is gone."""
        return self._look(self._root / path)

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """The bytes of a file; `FileNotFoundError` when it is gone."""
        descriptor = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return os.fdopen(descriptor, "rb")

    def fetch(
        self, entries: Sequence[Entry], folder: Path, advance: Advance, *, digests: bool
    ) -> Iterator[Fetched]:
        part = folder / "part"
        try:
            for entry in entries:
                yield self._fetch(entry, part, advance, digests)
        finally:
            with suppress(OSError):  # the folder itself may be gone
                part.unlink()

    def same_content(self, copies: Copies) -> set[str]:
        return {entry.path for entry, copy in copies if self._is_same(entry, copy)}

    def _is_same(self, entry: Entry, copy: Path) -> bool:
        try:
            with self.open(entry.path) as theirs, copy.open("rb") as ours:
                return digest_of(theirs) == digest_of(ours)
        except OSError:
            return False  # whatever it is, copying meets it again and can report it

    def _fetch(self, entry: Entry, part: Path, advance: Advance, digests: bool) -> Fetched:
        try:
            for _ in range(_ATTEMPTS):
                written, digest = self._copy(entry, part, advance, digests)
                now = self.look(entry.path)
                if now is None:
                    raise FileNotFoundError(entry.path)
                if same_version(entry, now) and written == entry.size:
                    return Fetched(entry, part, digest)
                advance(-written)
                entry = replace(now, path=entry.path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.look(entry.path) is None:
                return Fetched(entry, None, problem=gone(entry.path))
            return Fetched(entry, None, problem=failed(entry.path, entry.size, error))
        return Fetched(entry, None, problem=changed(entry.path, entry.size))

    def _copy(self, entry: Entry, part: Path, advance: Advance, digests: bool) -> tuple[int, str]:
        digest, written = hashlib.sha256(), 0
        with self.open(entry.path) as source, _new_file(part) as target:
            while block := source.read(_BLOCK):
                target.write(block)
                if digests:
                    digest.update(block)
                written += len(block)
                advance(len(block))
        return written, digest.hexdigest() if digests else ""

    def all_fetched(self) -> None:
        """It stays where it is."""

    def holds(self, folder: Path) -> bool:
        return folder.resolve().is_relative_to(self._root)

    def _look(self, path: Path) -> Entry | None:
        try:
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                return self._link(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._unreadable(path, error)
        kind = _kind(found.st_mode)
        return Entry(
            self._relative(path),
            kind,
            size=found.st_size if kind is Kind.FILE else 0,
            mtime_ns=found.st_mtime_ns,
            mode=stat.S_IMODE(found.st_mode) & PERMISSIONS,
            problem="neither a file nor a folder" if kind is Kind.UNFIT else "",
        )

    def _link(self, path: Path) -> Entry:
        leads_to = Path(os.path.realpath(path))  # Path.resolve raises for a loop
        inside = self._relative(leads_to) if leads_to.is_relative_to(self._root) else None
        return link_entry(self._relative(path), str(path.readlink()), inside)

    def _unreadable(self, path: Path, error: OSError) -> Entry:
        return Entry(self._relative(path), Kind.UNREADABLE, problem=error.strerror or str(error))

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.FOLDER if stat.S_ISDIR(mode) else Kind.UNFIT


def _new_file(path: Path) -> AbstractContextManager[BinaryIO]:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
