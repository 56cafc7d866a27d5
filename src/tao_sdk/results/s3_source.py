"""Results in an S3 store.

Names of objects are just text. What they say about a place below the destination is taken; what
leads out of it, or cannot be in a tree of files beside the others, is told and left alone.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from tao_sdk.errors import ValidationError
from tao_sdk.results.batches import batches
from tao_sdk.results.comparing import digest_of
from tao_sdk.results.outcomes import changed, failed, gone
from tao_sdk.results.sources import Advance, Copies, Entry, Fetched, Kind
from tao_sdk.storage.s3_folder import S3Folder, StoredObject

_ATTEMPTS = 3
# So much is fetched at once before it is put in its place and told about.
_BATCH_FILES = 128
_BATCH_BYTES = 512 * 1024 * 1024


class S3Results:
    """The objects below a URI, as files and folders."""

    def __init__(self, uri: str) -> None:
        self._folder = S3Folder(uri)
        self._objects: dict[str, StoredObject] = {}
        """The objects of the files that were listed, by their paths."""

    @property
    def address(self) -> str:
        return self._folder.uri

    def entries(self) -> Iterator[Entry]:
        found = self._folder.objects()
        if not found:
            raise ValidationError(
                f"there is nothing at {self.address} (has the job delivered anything yet, or was "
                "it removed?)"
            )
        self._objects = {}
        unfit, folders = [], set()
        # Of several names for one file the proper one counts.
        for each in sorted(found, key=lambda each: each.key != _path_of(each.key)):
            path = _path_of(each.key)
            problem = self._problem_of(each, path)
            if problem:
                unfit.append(Entry(each.key, Kind.UNFIT, problem=problem))
            elif each.key.endswith("/") or not path:
                folders.add(path)
            else:
                self._objects[path] = each
        parents = {parent for path in (*self._objects, *folders) for parent in _parents(path)}
        for path in parents.intersection(self._objects):
            size = self._objects.pop(path).size
            if size:  # without content it only marks the folder
                problem = "an object that also has objects below it, which no disk can hold"
                unfit.append(Entry(path, Kind.UNFIT, problem=problem))
        yield from (Entry(path, Kind.FOLDER) for path in sorted((parents | folders) - {""}))
        yield from (_entry(path, each) for path, each in sorted(self._objects.items()))
        yield from unfit

    def fetch(
        self,
        entries: Sequence[Entry],
        folder: Path,
        advance: Advance,
        *,
        digests: bool,  # noqa: ARG002 - what arrives is compared with the store's own checksums
    ) -> Iterator[Fetched]:
        parts = folder / "parts"
        parts.mkdir(exist_ok=True)
        progress = _Progress(advance)
        for batch in batches(entries, files=_BATCH_FILES, nbytes=_BATCH_BYTES):
            yield from self._fetch(batch, parts, progress)

    def _fetch(self, batch: Sequence[Entry], parts: Path, progress: _Progress) -> Iterator[Fetched]:
        waiting = {entry.path: entry for entry in batch}
        for _ in range(_ATTEMPTS):
            wanted = {
                path: (self._objects[path], parts / _name_of(self._objects[path]))
                for path in waiting
            }
            try:
                others = self._folder.download(list(wanted.values()), progress)
            except OSError as error:
                for path, entry in waiting.items():
                    yield Fetched(entry, None, problem=failed(path, entry.size, error))
                return
            for path, (each, part) in wanted.items():
                if each not in others:
                    yield Fetched(waiting.pop(path), part)
            for path in list(waiting):
                now = self._folder.look(self._objects[path].key)
                if now is None:
                    yield Fetched(waiting.pop(path), None, problem=gone(path))
                else:
                    self._objects[path], waiting[path] = now, _entry(path, now)
        for path, entry in waiting.items():
            yield Fetched(entry, None, problem=changed(path, entry.size))

    def same_content(self, copies: Copies) -> set[str]:
        """Not those without an MD5, which objects that came in parts do not have."""
        return {entry.path for entry, copy in copies if self._is_same(entry, copy)}

    def _is_same(self, entry: Entry, copy: Path) -> bool:
        expected = self._objects[entry.path].md5
        try:
            with copy.open("rb") as file:
                return bool(expected) and digest_of(file, "md5") == expected
        except OSError:
            return False  # whatever it is, copying meets it again and can report it

    def all_fetched(self) -> None:
        """It stays where it is."""

    def holds(self, folder: Path) -> bool:  # noqa: ARG002 - a store is no folder
        return False

    def _problem_of(self, each: StoredObject, path: str) -> str:
        if ".." in each.key.split("/") or "\0" in each.key:
            return "its name leads out of the results"
        if path in self._objects:
            return f"the same file on a disk as {self._objects[path].key}"
        if each.size and (each.key.endswith("/") or not path):
            return "has content but the name of a folder"
        return ""


class _Progress:
    """Hands on what many threads tell, one at a time."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._lock = threading.Lock()

    def add(self, nbytes: int, /) -> None:
        with self._lock:
            self._advance(nbytes)

    def file_done(self) -> None:
        """Files are told about when they have their names."""


def _path_of(key: str) -> str:
    """The place below the destination; empty and `.` steps lead nowhere."""
    return "/".join(step for step in key.split("/") if step not in ("", "."))


def _parents(path: str) -> Iterable[str]:
    return (str(folder) for folder in PurePosixPath(path).parents if folder.parts)


def _entry(path: str, each: StoredObject) -> Entry:
    return Entry(path, Kind.FILE, each.size, each.mtime_ns)


def _name_of(each: StoredObject) -> str:
    """Of its part: the same for the same version, so that the next pull can go on with it."""
    return hashlib.sha256(repr(each).encode("utf-8", "surrogatepass")).hexdigest()[:32]
