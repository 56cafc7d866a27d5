"""Uploads: many files at once, large ones in parts, no object replaced by half a file.

Each body is hashed before it is sent. Its MD5 goes along, for the store to compare, and is
compared with the tag that the store answers: a byte that changed on the way, or in the file
between hashing and sending, does not go unnoticed.
"""

from __future__ import annotations

import base64
import calendar
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..checksums import blocks_of, new_hash, uses_keys
from ..errors import RunnerError, TransferError
from ..http import FilePart, Sent
from ..parallel import run_all
from .addresses import Place, parse_uri
from .listing import is_md5
from .signing import UNSIGNED
from .store import Store

if TYPE_CHECKING:
    from ..parallel import Progress, Rest, Task

_BLOCK = 1024 * 1024
_SMALL = _BLOCK // 4
"""Bytes of a file that is in memory until the store has answered."""
_PART = 8 * _BLOCK
_MOST_PARTS = 10_000
_TRIES = 3
_ARRIVED_WRONG = ("BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch")


class _Content(NamedTuple):
    """What is sent, and what it is known by."""

    body: bytes | FilePart
    md5: str
    sha256: str
    """As the signature wants it: not of the body where TLS protects it."""
    sent: Sent | None = None
    """The request, if it is on its way."""


def upload_all(
    store: Store, pairs: Sequence[tuple[str, str]], progress: Progress, threads: int
) -> list[tuple[str, str]]:
    """Bring local files to URIs. Returns (path, reason) for each that could not be brought."""
    failures: list[tuple[str, str]] = []

    def tasks() -> Iterator[Task]:
        for path, uri in pairs:
            outgoing = _Outgoing(store, path, parse_uri(uri), progress, failures)
            if outgoing.is_small:
                yield outgoing.begin
            else:
                yield from (partial(outgoing.work, index) for index in range(outgoing.parts))

    run_all(tasks(), threads, threading.Event())
    return failures


def give_up(store: Store) -> None:
    """No part is begun any more; what was stored of unfinished objects is removed."""
    store.gives_up = True
    for upload_id, place in list(store.unfinished.items()):
        store.ask("DELETE", place, {"uploadId": upload_id})


def put_bytes(store: Store, place: Place, data: bytes) -> None:
    """A small object."""
    content = _content(store, data, iter((data,)))
    for _ in range(_TRIES):
        if _put(store, place, {}, content):
            return
    raise TransferError(f"{place.uri}: the store read other bytes than were sent, repeatedly")


def _content(
    store: Store, body: bytes | FilePart, blocks: Iterator[bytes | memoryview]
) -> _Content:
    md5 = new_hash("md5")
    sha256 = None if store.is_encrypted else new_hash("sha256")
    for block in blocks:
        md5.update(block)
        if sha256:
            sha256.update(block)
    return _Content(body, md5.hexdigest(), sha256.hexdigest() if sha256 else UNSIGNED)


def _headers(store: Store, query: Mapping[str, str], content: _Content) -> dict[str, str]:
    """The MD5, where the store shall compare it.

    A whole object takes the place of another at once, so the store must compare it before. What
    arrived of a part we compare ourselves, by its tag, before the parts become an object: that
    saves the store from hashing twice. Unless its tags turn out to say nothing.
    """
    if query and store.tags_are_md5:
        return {}
    return {"Content-MD5": base64.b64encode(bytes.fromhex(content.md5)).decode("ascii")}


def _put(store: Store, place: Place, query: Mapping[str, str], content: _Content) -> str:
    """The tag of what the store has now; "" when it is to be sent again."""
    headers = _headers(store, query, content)
    answer = store.ask("PUT", place, query, headers, content.body, content.sha256, content.sent)
    if answer.code in _ARRIVED_WRONG:
        return ""
    if answer.status >= 300 or answer.code:
        raise answer.error(place.uri)
    etag = answer.headers.get("etag", "").strip('"')
    if not etag:
        raise TransferError(f"{place.uri}: the store accepted it without giving an ETag")
    if is_md5(etag) and not uses_keys(answer.headers):
        return etag if etag == content.md5 else ""
    store.tags_are_md5 = False
    return etag if headers else ""


class _Outgoing:
    """One file while it is sent, whole or in parts."""

    def __init__(
        self,
        store: Store,
        path: str,
        place: Place,
        progress: Progress,
        failures: list[tuple[str, str]],
    ) -> None:
        self._store, self._path, self._place = store, path, place
        self._progress, self._failures = progress, failures
        self._lock = threading.Lock()
        self._failure = self._upload_id = ""
        self._began = 0.0
        self._content: _Content | None = None
        self.parts = self._left = 0
        self.is_small = False
        try:
            # Not to wait for a writer where it is a pipe.
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            failures.append((path, f"cannot be read: {error.strerror}"))
            return
        self._seen = os.fstat(self._file)
        if not stat.S_ISREG(self._seen.st_mode):
            failures.append((path, "not a regular file"))
            os.close(self._file)
            return
        self._size = self._seen.st_size
        self._part = max(_PART, -(-self._size // _MOST_PARTS // _BLOCK + 1) * _BLOCK)
        self.parts = -(-self._size // self._part) if self._size > 2 * _PART else 1
        self._left = self.parts
        self.is_small = self._size <= _SMALL
        self._tags = [""] * self.parts

    def begin(self) -> Rest:
        """Send a small file. What is returned reads the answer."""
        try:
            content = self._content = self._read(0, self._size)
            headers = _headers(self._store, {}, content)
            request = self._store.request("PUT", self._place, {}, headers, b"", content.sha256)
            sent = self._store.client.send_ahead(request, content.body)
            self._content = content._replace(sent=sent)
        except (RunnerError, OSError) as error:
            self._failure = str(error)
        return partial(self.work, 0)

    def work(self, index: int) -> None:
        """Send one part; after the last one the object is complete, or given up."""
        if not self._failure and not self._store.gives_up:
            try:
                self._send(index)
            except (RunnerError, OSError) as error:
                self._failure = str(error)
        with self._lock:
            self._left -= 1
            if self._left:
                return
        try:
            if self._upload_id:
                self._end_parts()
        except RunnerError as error:
            self._failure = str(error)
        os.close(self._file)
        if self._failure:
            self._failures.append((self._path, self._failure))
        else:
            self._progress.file_done()

    def _send(self, index: int) -> None:
        query: dict[str, str] = {}
        if self.parts > 1:
            with self._lock:
                self._upload_id = self._upload_id or self._begin_parts()
            query = {"partNumber": str(index + 1), "uploadId": self._upload_id}
        start = index * self._part
        length = min(self._part, self._size - start) if self.parts > 1 else self._size
        for _ in range(_TRIES):
            content = self._content or self._read(start, length)
            self._content = None
            self._tags[index] = _put(self._store, self._place, query, content)
            if self._tags[index]:
                self._progress.add(length)
                return
            self._check_unchanged()
        raise TransferError(f"{self._place.uri}: the store read other bytes than were sent")

    def _read(self, start: int, length: int) -> _Content:
        if length <= _SMALL:
            body = os.pread(self._file, length, start)
            content = _content(self._store, body, iter((body,)))
        else:
            part = FilePart(self._file, start, length)
            content = _content(self._store, part, blocks_of(self._file, start, length))
        self._check_unchanged()
        return content

    def _check_unchanged(self) -> None:
        now = os.fstat(self._file)
        if (now.st_size, now.st_mtime_ns) != (self._size, self._seen.st_mtime_ns):
            raise TransferError(f"{self._path}: changed while it was uploaded")

    def _begin_parts(self) -> str:
        answer = self._store.call("POST", self._place, {"uploads": ""})
        self._began = _moment(answer.headers.get("date", "")) or time.time()
        upload_id = answer.element("UploadId")
        if not upload_id:
            raise TransferError(f"{self._place.uri}: the store began no upload in parts")
        self._store.unfinished[upload_id] = self._place
        return upload_id

    def _end_parts(self) -> None:
        query = {"uploadId": self._upload_id}
        try:
            if self._failure:
                raise TransferError(self._failure)
            self._check_unchanged()
            self._complete(query)
            del self._store.unfinished[self._upload_id]
        except RunnerError:
            # Parts that belong to nothing are stored, and paid for, until somebody removes them.
            self._store.ask("DELETE", self._place, query)
            del self._store.unfinished[self._upload_id]
            raise

    def _complete(self, query: dict[str, str]) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{tag}&quot;</ETag></Part>"
            for number, tag in enumerate(self._tags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer = self._store.ask("POST", self._place, query, {}, body)
        if answer.status == 200 and not answer.code:
            return
        # An answer that was lost made us ask again, after the upload was complete.
        if answer.code == "NoSuchUpload" and self._is_complete():
            return
        raise answer.error(self._place.uri)

    def _is_complete(self) -> bool:
        """Whether the object is made of our parts, or at least as long and newer than they."""
        answer = self._store.ask("HEAD", self._place)
        etag = answer.headers.get("etag", "").strip('"')
        if answer.status == 200 and "-" in etag:
            whole = new_hash("md5")
            for tag in self._tags:
                whole.update(bytes.fromhex(tag) if is_md5(tag) else tag.encode())
            return etag == f"{whole.hexdigest()}-{self.parts}"
        length = answer.headers.get("content-length", "")
        changed = _moment(answer.headers.get("last-modified", ""))
        return answer.status == 200 and length == str(self._size) and changed >= self._began


def _moment(text: str) -> float:
    """An HTTP date in seconds; what is none is long ago."""
    try:
        return calendar.timegm(time.strptime(text, "%a, %d %b %Y %H:%M:%S GMT"))
    except ValueError:
        return 0
