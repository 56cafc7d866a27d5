"""Files while they arrive: in one stream, or in pieces by several connections.

What arrives is compared with what the store said about it before it gets its name. What a killed
attempt has fetched of a large file is not fetched again.

The MD5 of a file in pieces is not computed where it is also the object's tag and TLS, or never
leaving the machine, protects the pieces: one processor would take longer for it than the network
for the file. The tag, `Content-Range` and the length of every answer tie the pieces to one version.
It is computed over plain HTTP from elsewhere, where pieces lay on the disk from an earlier attempt,
because no connection protected them there, and with TAO_VERIFY=full. Other checksums always are.
"""

from __future__ import annotations

import binascii
import errno
import os
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .checksums import Crc32, NoHash, agrees, blocks_of, hasher_for, uses_keys
from .errors import TransferError
from .http import Client, PassingError, Reply, Sent
from .partial_file import PartialFile, sweep
from .remote import RemoteFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from .checksums import Hasher
    from .parallel import Progress, Rest

    T = TypeVar("T")

PIECE = 16 * 1024 * 1024
_LONGEST_LAG = 16
"""Pieces."""
_CHANGED = (412, 416)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_PROTECTED = ("https:", "http://127.")
"""By TLS, or because nothing leaves the machine."""
_S3_CHECKSUMS = ("sha256", "crc32", "sha1")


class _StoppedError(Exception):
    """Another file has failed: this one need not go on."""


class _NoPiecesError(Exception):
    """The server sends something else than the piece of the version that it is asked for."""


class Shared(NamedTuple):
    """What all files of a download have in common."""

    client: Client
    progress: Progress
    ending: threading.Event
    folders: dict[str, set[str]]
    """What is in those that were made, or found, so far."""
    proof: str
    """Which large files are hashed: "full" (all), "pieces" (as few as possible); "" decides."""


class Incoming:
    """A file on its way to its target."""

    def __init__(self, file: RemoteFile, target: str, shared: Shared) -> None:
        self._file, self._target, self._size = file, target, file.size
        self._client, self._progress, self._stop, self._folders, self._proof = shared
        self._checksum = file.checksum
        self._partial: PartialFile | None = None
        self._sent: Sent | None = None
        self._tag = self._right_tag = ""

    def begin(self) -> Rest | None:
        """Send the request, unless the file is here. What is returned does the rest."""
        return self._tell_failures(self._begin)

    def fetch(self) -> None:
        """Do all of it."""
        rest = self.begin()
        if rest:
            rest()

    def _begin(self) -> Rest | None:
        if self._is_here():
            return None
        self._sent = self._client.send_ahead(self._file.request())
        return lambda: self._tell_failures(self._finish)

    def _tell_failures(self, step: Callable[[], T]) -> T | None:
        try:
            return step()
        except BaseException as error:
            if self._partial:
                self._partial.discard()
            if isinstance(error, _StoppedError):
                return None
            if isinstance(error, OSError):
                raise self._local_failure(error) from error
            raise

    def _local_failure(self, error: OSError) -> TransferError:
        folder = os.path.dirname(self._target)
        if error.errno in _NO_SPACE:
            free = os.statvfs(folder)
            return TransferError(
                f"{self._file.uri}: no space left in {folder} for {self._size} bytes "
                f"({free.f_bavail * free.f_frsize} are free): set TAO_RESULTS_ROOT or "
                "TAO_WORK_ROOT to a larger disk"
            )
        return TransferError(f"{self._file.uri}: cannot write {self._target}: {error.strerror}")

    def _is_here(self) -> bool:
        """Whether the target has the right content already; then it is counted."""
        folder, _, name = self._target.rpartition("/")
        if folder not in self._folders:
            os.makedirs(folder, exist_ok=True)
            names = set(os.listdir(folder))
            sweep(folder, names)
            self._folders[folder] = names
        if name not in self._folders[folder] or not self._is_right():
            return False
        self._progress.add(self._size)
        self._progress.file_done()
        return True

    def _is_right(self) -> bool:
        if not self._checksum or self._size < 0:
            return False
        try:
            if os.stat(self._target).st_size != self._size:
                return False
            hasher = hasher_for(self._checksum, self._size)
            with open(self._target, "rb") as file:
                for block in blocks_of(file.fileno(), 0, self._size):
                    hasher.update(block)
        except FileNotFoundError:
            return False
        return agrees(hasher, self._checksum)

    @property
    def _opened(self) -> PartialFile:
        """The file that is written; made when the first byte of it is there."""
        if not self._partial:
            self._partial = PartialFile(self._target)
        return self._partial

    def _finish(self) -> None:
        self._fetch_in_one_stream()
        self._commit()

    def _commit(self) -> None:
        self._opened.commit()
        self._partial = None
        self._progress.file_done()

    def _fetch_in_one_stream(self) -> None:
        for is_last in (False, True):
            hasher = self._receive(0, self._size)
            if not self._checksum or agrees(hasher, self._checksum):
                return
            if is_last:
                self._opened.restart(0)
                raise TransferError(
                    f"{self._file.uri}: what arrives is not what the store has: its checksum is "
                    f"{hasher.hexdigest()}, the store's {self._checksum}"
                )
            self._progress.add(-os.fstat(self._opened.descriptor).st_size)
            self._opened.restart(0)

    def _receive(self, start: int, end: int) -> Hasher:
        """Write the bytes from start to end (-1: all there are); their hash, or CRC of a piece.

        After a failure it goes on where it was, unless the server or the size do not allow it.
        """
        at = start
        is_whole = start == 0 and end in (-1, self._size)
        hasher: Hasher = NoHash()

        def attempt() -> None:
            nonlocal at, hasher
            if end < 0:
                at = self._again_from(0, at)
            is_part = at > 0 or not is_whole
            with self._reply(f"bytes={at}-{end - 1}" if is_part else "") as reply:
                self._check_status(reply)
                # The header decides: there are servers that send a part with status 200.
                if "content-range" in reply.headers:
                    self._check_range(reply, at)
                elif is_part:
                    if not is_whole:
                        raise _NoPiecesError
                    at = self._again_from(0, at)
                self._check_version(reply, end - at if end >= 0 else -1, is_whole)
                if is_whole and at == 0:
                    self._adopt_checksum(reply)
                    hasher = hasher_for(self._checksum or "crc32:", self._size)
                elif at == start and not self._checksum:
                    hasher = Crc32()  # where the whole has a checksum its pieces need none
                if end < 0 and not self._checksum and not reply.has_known_end:
                    raise TransferError(
                        f"{self._file.uri}: the server tells neither its size nor a checksum: "
                        "nobody could know whether it is whole"
                    )
                for block in reply.blocks():
                    if self._stop.is_set():
                        raise _StoppedError
                    if 0 <= end < at + len(block):
                        raise PassingError("more arrived than was asked for")
                    self._opened.write(block, at)
                    hasher.update(block)
                    at += len(block)
                    self._progress.add(len(block))
            if 0 <= end != at:
                raise PassingError(f"it ended at byte {at} of {end}")

        self._client.persist(attempt, self._file.uri, self._stop, lambda: at)
        return hasher

    def _reply(self, part: str) -> Reply:
        sent, self._sent = self._sent, None
        if not sent:
            request = self._file.request()
            if part:
                request = request._replace(headers={**request.headers, "Range": part})
            sent = self._client.begin(request)
        return self._client.reply(sent)

    def _again_from(self, start: int, at: int) -> int:
        if at != start:
            self._progress.add(start - at)
        return start

    def _check_status(self, reply: Reply) -> None:
        if reply.status not in (200, 206):
            answer = reply.answer()
            if answer.status in _CHANGED:
                raise self._changed()
            if answer.is_passing:
                raise PassingError(answer.says(), answer.retry_after)
            raise answer.error(self._file.uri)

    def _check_range(self, reply: Reply, at: int) -> None:
        """`bytes 0-499/1234` must begin where we are and be of what was listed."""
        part, _, total = reply.headers["content-range"].partition("/")
        if part.partition("-")[0] != f"bytes {at}":
            raise PassingError("the server sent another part than it was asked for")
        if total.isdecimal() and int(total) != self._size:
            raise self._changed()

    def _check_version(self, reply: Reply, expected: int, is_whole: bool) -> None:
        """Pieces of two versions must not come together."""
        if expected >= 0 and 0 <= reply.length != expected:
            raise self._changed()
        tag = reply.headers.get("etag", "").strip('"')
        if not is_whole and self._right_tag not in ("", tag):
            raise _NoPiecesError  # there are stores that ignore If-Match
        if self._tag and tag and tag != self._tag and not self._checksum:
            raise self._changed()
        self._tag = self._tag or tag
        if self._checksum.startswith("md5:") and uses_keys(reply.headers):
            self._checksum = ""

    def _changed(self) -> TransferError:
        return TransferError(
            f"{self._file.uri}: changed while it was downloaded: run the job again when nobody "
            "writes to it"
        )

    def _adopt_checksum(self, reply: Reply) -> None:
        """S3 may know a checksum that its listing does not tell."""
        for kind in () if self._checksum else _S3_CHECKSUMS:
            value = reply.headers.get("x-amz-checksum-" + kind, "")
            if value and "-" not in value:  # that would be a checksum of checksums
                try:
                    self._checksum = f"{kind}:{binascii.a2b_base64(value).hex()}"
                except ValueError:
                    raise PassingError(f"x-amz-checksum-{kind} is not base64") from None


def piece_count(size: int) -> int:
    return -(-size // PIECE)


class InPieces(Incoming):
    """A file of several pieces, each of which is somebody's work."""

    def __init__(self, file: RemoteFile, target: str, shared: Shared) -> None:
        super().__init__(file, target, shared)
        self.pieces = self._left = piece_count(file.size)
        self._lock, self._hashing = threading.Lock(), threading.Lock()
        self._workers = self._hashed = 0
        self._is_present = self._needs_one_stream = self._is_hashed = False
        self._have: set[int] = set()
        self._hasher: Hasher | None = None

    def work(self, index: int) -> None:
        """Fetch one piece; with the last one the file is finished."""
        with self._lock:
            if self._stop.is_set():
                return
            self._workers += 1
        try:
            self._work(index)
        except _StoppedError:
            pass
        except BaseException as error:
            self._stop.set()
            if isinstance(error, OSError):
                raise self._local_failure(error) from error
            raise
        finally:
            with self._lock:
                self._workers -= 1
                if self._stop.is_set() and not self._workers and self._partial:
                    self._partial.close()  # the next attempt goes on with it

    def _work(self, index: int) -> None:
        with self._lock:
            if not self._partial and not self._is_present:
                self._is_present = self._is_here()
                if not self._is_present:
                    self._open()
        if self._is_present:
            return
        self._fetch_piece(index)
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._finish()

    def _open(self) -> None:
        tag = self._file.fingerprint
        partial = PartialFile(self._target, tag and f"{tag} {self._size} {PIECE}")
        self._partial = partial
        self._have = partial.resume(self._size, PIECE, bool(self._checksum))
        is_doubtful = partial.has_unproved or self._checksum != f"md5:{tag}"
        if is_doubtful or self._proof == "full" or not (self._proof or self._is_protected()):
            self._is_hashed = bool(self._checksum)
        else:
            self._right_tag = tag
        self._progress.add(self._arrived())

    def _is_protected(self) -> bool:
        return self._file.request().url.startswith(_PROTECTED)

    def _arrived(self) -> int:
        return sum(map(self._length_of, self._have))

    def _length_of(self, index: int) -> int:
        return min(PIECE, self._size - index * PIECE)

    def _fetch_piece(self, index: int) -> None:
        if self._needs_one_stream:
            return
        if index not in self._have:
            start = index * PIECE
            try:
                hasher = self._receive(start, start + self._length_of(index))
            except _NoPiecesError:
                self._needs_one_stream = True
                return
            with self._lock:
                self._opened.note(index, hasher.hexdigest())
                self._have.add(index)
        # Hashing may be slower than the network: fetching on would only take its processor time.
        self._hash_on(blocking=len(self._have) - self._hashed > _LONGEST_LAG)

    def _hash_on(self, blocking: bool) -> None:
        """Hash, in order, the pieces that are there. Whoever finds nobody doing it does it."""
        checksum = self._checksum if self._is_hashed else ""
        if not checksum or not self._hashing.acquire(blocking):
            return
        try:
            self._hasher = self._hasher or hasher_for(checksum, self._size)
            while self._hashed in self._have and not self._stop.is_set():
                start = self._hashed * PIECE
                length = self._length_of(self._hashed)
                for block in blocks_of(self._opened.descriptor, start, length):
                    self._hasher.update(block)
                self._hashed += 1
        finally:
            self._hashing.release()

    def _finish(self) -> None:
        if self._needs_one_stream or not self._pieces_agree():
            self._progress.add(-self._arrived())
            self._opened.restart(0)
            self._fetch_in_one_stream()
        self._commit()
        self._is_present = True

    def _pieces_agree(self) -> bool:
        self._hash_on(blocking=True)
        if self._stop.is_set():
            raise _StoppedError
        if not self._is_hashed:
            return True
        if not self._checksum or not self._hasher:
            # What was left without CRCs counted on the checksum, which turned out to be none.
            return not self._opened.has_unproved
        return agrees(self._hasher, self._checksum)
