"""Results on a volume, fetched through the storage interface of the workspace.

`GET /storage/<volume>/<path>` lists a folder or sends a file. A list has names and kinds; size and
time of a file are those of its headers. A file that broke off is continued where the server
sends parts of files, and sent again where it does not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tao_sdk.errors import (
    BackendUnreachableError,
    PlatformError,
    TaoError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.rest import RefusedError, Stream
from tao_sdk.results.batches import batches
from tao_sdk.results.comparing import same_version
from tao_sdk.results.outcomes import Outcome, State, changed, failed, gone
from tao_sdk.results.parts import Parts
from tao_sdk.results.sources import Advance, Copies, Entry, Fetched, Kind

_REQUESTS_AT_ONCE = 6
_BATCH_FILES = 128
_BATCH_BYTES = 512 * 1024 * 1024
_SILENCE_SECONDS = 60.0
# Links are followed by the server, and look like folders: some lead back.
_MAX_FOLDERS = 10_000


class VolumeResults:
    """The results of a job in a folder of a volume."""

    def __init__(self, client: LeptonClient, address: str, volume: str, folder: str) -> None:
        self.address = address
        self._client = client
        self._volume = volume
        self._folder = folder

    def all_fetched(self) -> None:
        """Nothing to do: the results stay where they are."""

    def holds(self, folder: Path) -> bool:  # noqa: ARG002 - a volume is no folder of this machine
        return False

    def same_content(self, copies: Copies) -> set[str]:  # noqa: ARG002 - there are no checksums
        """None of them: to be sure of its content, a file is fetched again."""
        return set()

    # ------------------------------------------------------------------ looking

    def entries(self) -> Iterator[Entry]:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "tao-lepton-results") as pool:
            yield from sorted(self._walk(pool), key=lambda entry: entry.path.split("/"))

    def _walk(self, pool: ThreadPoolExecutor) -> Iterator[Entry]:
        folders, count = [""], 0
        while folders and count < _MAX_FOLDERS:
            count += len(folders)
            found = [entry for listed in pool.map(self._list, folders) for entry in listed]
            yield from pool.map(self._measured, found)
            folders = [entry.path for entry in found if entry.kind is Kind.FOLDER]
        for path in folders:
            problem = f"more than {_MAX_FOLDERS:,} folders: does a link lead back?"
            yield Entry(path, Kind.UNREADABLE, problem=problem)

    def _list(self, folder: str) -> list[Entry]:
        """What is in a folder of the results."""
        try:
            listed = self._client.get_list(self._path_of(folder))
        except RefusedError as error:
            if not folder:
                raise self._no_results(error) from error
            if error.missing:  # it was removed
                return []
            return [Entry(folder, Kind.UNREADABLE, problem=error.message)]
        return [_entry(folder, found) for found in listed]

    def _no_results(self, error: RefusedError) -> TaoError:
        """Why the folder of the results cannot be listed."""
        served = self._served_volumes()
        if self._volume not in served:
            return UnsupportedError(
                f"{self.address}: the workspace does not serve files of volume {self._volume}, "
                f"only of: {', '.join(served) or 'none'}. A job that mounts the volume can copy "
                "them, or deliver them to a bucket (outputs=)"
            )
        if error.missing:
            return ValidationError(
                f"the results folder is not there: {self.address} (has the job not begun yet, or "
                "was the folder removed?)"
            )
        return PlatformError(f"{self.address} cannot be read: {error.message}")

    def _served_volumes(self) -> list[str]:
        try:
            return [naming.id_of(volume) for volume in self._client.get_list(naming.STORAGE)]
        except RefusedError:
            return []

    def _measured(self, entry: Entry) -> Entry:
        """A file with its present size and time; other entries as they are."""
        if entry.kind is not Kind.FILE:
            return entry
        try:
            headers = self._headers_of(self._path_of(entry.path))
        except RefusedError as error:
            return Entry(entry.path, Kind.UNREADABLE, problem=error.message)
        size = _number(headers, "Content-Length")
        if size is None:
            return Entry(entry.path, Kind.UNREADABLE, problem="Lepton does not tell its size")
        # Without a time, a file is never taken for one that was fetched before.
        changed_at = _time(headers) or entry.mtime_ns or time.time_ns()
        return Entry(entry.path, Kind.FILE, size, changed_at)

    def _headers_of(self, path: str) -> Mapping[str, str]:
        headers = self._client.headers_of(path)
        if _number(headers, "Content-Length"):
            return headers
        # A server may answer HEAD without a look at the file.
        with self._client.stream(path, silence=_SILENCE_SECONDS) as stream:
            return stream.headers

    def _path_of(self, path: str) -> str:
        steps = filter(None, f"{self._folder}/{path}".split("/"))
        return naming.below(naming.STORAGE, self._volume, *steps)

    # ------------------------------------------------------------------ fetching

    def fetch(
        self,
        entries: Sequence[Entry],
        folder: Path,
        advance: Advance,
        *,
        digests: bool,  # noqa: ARG002 - there are no checksums to compare with
    ) -> Iterator[Fetched]:
        parts, lock = Parts(folder / "parts", self.address), threading.Lock()

        def count(nbytes: int) -> None:
            with lock:
                advance(nbytes)

        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "tao-lepton-results") as pool:
            for batch in batches(entries, files=_BATCH_FILES, nbytes=_BATCH_BYTES):
                yield from pool.map(lambda entry: self._fetch(entry, parts, count), batch)

    def _fetch(self, entry: Entry, parts: Parts, count: Advance) -> Fetched:
        count(parts.size_of(entry))
        for is_last in (False, False, True):
            try:
                self._bring(entry, parts, count)
            except BackendUnreachableError:
                if is_last:
                    raise  # the next pull goes on with what has come
                continue
            except OSError as error:  # on this machine
                return Fetched(entry, None, problem=failed(entry.path, entry.size, error))
            except RefusedError as error:
                return Fetched(entry, None, problem=_refused(entry, error))
            now = self._measured(entry)
            if now.kind is not Kind.FILE:
                return Fetched(entry, None, problem=gone(entry.path))
            if not same_version(entry, now):
                count(-parts.drop(entry))
                entry = now
            elif parts.is_whole(entry):
                return Fetched(entry, parts.path_of(entry))
        return Fetched(entry, None, problem=changed(entry.path, entry.size))

    def _bring(self, entry: Entry, parts: Parts, count: Advance) -> None:
        """Fetch what has not come yet."""
        if parts.is_whole(entry):
            return
        start = parts.size_of(entry)
        path = self._path_of(entry.path)
        with self._client.stream(path, silence=_SILENCE_SECONDS, start=start) as stream:
            if not _begins_at(start, stream):
                count(-parts.drop(entry))
            left = entry.size - parts.size_of(entry)
            with parts.path_of(entry).open("ab") as part:
                for piece in stream:
                    part.write(piece)
                    count(len(piece))
                    left -= len(piece)
                    if left < 0:
                        break  # it has grown since, or never ends: not the file that was listed
        if parts.size_of(entry) > entry.size:
            count(-parts.drop(entry))


def _entry(folder: str, found: Mapping[str, Any]) -> Entry:
    """One line of a list."""
    name = str(found.get("name") or "")
    path = f"{folder}/{name}".lstrip("/")
    if not name or "/" in name or name in (".", "..") or "\0" in name:
        return Entry(path, Kind.UNFIT, problem=f"{name!r} cannot be the name of a file")
    kinds = {"dir": Kind.FOLDER, "file": Kind.FILE}
    kind = kinds.get(str(found.get("type")), Kind.UNFIT)
    return Entry(path, kind, problem="" if kind is not Kind.UNFIT else "not a file")


def _begins_at(start: int, stream: Stream) -> bool:
    """Whether the server sends the rest of a file, as it was asked to."""
    content = stream.headers.get("Content-Range", "")
    return stream.status == HTTPStatus.PARTIAL_CONTENT and content.startswith(f"bytes {start}-")


def _refused(entry: Entry, error: RefusedError) -> Outcome:
    if error.missing:
        return gone(entry.path)
    return Outcome(entry.path, State.FAILED, entry.size, error.message)


def _number(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name, "")
    return int(text) if text.isdecimal() else None


def _time(headers: Mapping[str, str]) -> int:
    """When a file was changed, in nanoseconds; 0 if the server does not say."""
    try:
        return int(parsedate_to_datetime(headers["Last-Modified"]).timestamp()) * 10**9
    except (KeyError, TypeError, ValueError):
        return 0
