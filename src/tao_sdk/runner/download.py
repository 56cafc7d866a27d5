"""Downloads: many files at once, large ones in pieces, nothing under its name before it is whole.

A file is written under a hidden name beside its target, compared with the size and the checksum
that its store gave, and renamed. Small files are one request each. Large ones are fetched in
pieces by several connections, and what a killed attempt has fetched of them is not fetched again.

The MD5 of a file that comes in pieces is not computed where it is also the object's tag: one
processor would take longer for it than the network for the file. The tag, `Content-Range` and
the length of every answer tie the pieces to one version. It is computed where pieces lay on the
disk from an earlier attempt, because no connection protected them there, and with
TAO_VERIFY=full. Other checksums always are.
"""

from __future__ import annotations

import binascii
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from .checksums import Crc32, Hasher, NoHash, agrees, blocks_of, hasher_for, uses_keys
from .errors import RunnerError, TransferError
from .http import Client, PassingError, Patience, Reply
from .parallel import Progress, run_all
from .partial_file import PartialFile, sweep
from .remote import RemoteFile

_PIECE = 16 * 1024 * 1024
_LARGE = 2 * _PIECE
_LONGEST_LAG = 16 * _PIECE
_AT_A_TIME = 4
_CHANGED = (412, 416)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_S3_CHECKSUMS = ("sha256", "crc32", "sha1")


class _StoppedError(Exception):
    """Another file has failed: this one need not go on."""


class _NoPiecesError(Exception):
    """The server sends something else than the piece of the version that it is asked for."""


def download_all(
    pairs: Sequence[tuple[RemoteFile, str]],
    progress: Progress,
    *,
    threads: int,
    patience: Patience | None = None,
) -> None:
    """Bring every file to its absolute path. Raises the first failure, naming its URI.

    A target that has the size and checksum already is left alone. Files of unknown checksum are
    fetched anew; proving a whole folder is the caller's business.
    """
    # The largest first: at the end all threads have something to do.
    ordered = sorted(pairs, key=lambda pair: -pair[0].size)
    client, folders, stop = Client(os.environ, patience), _Folders(), threading.Event()
    verify = os.environ.get("TAO_VERIFY") or "pieces"
    if verify not in ("pieces", "full"):
        raise RunnerError(f"TAO_VERIFY={verify!r}: give pieces or full")

    def tasks() -> Iterator[Callable[[], None]]:
        # A few large files at a time: each is hashed by one thread.
        for first in range(0, len(ordered), _AT_A_TIME):
            files = [
                _Incoming(file, target, client, progress, stop, folders, verify)
                for file, target in ordered[first : first + _AT_A_TIME]
            ]
            for index in range(max(file.pieces for file in files)):
                yield from (partial(file.work, index) for file in files if index < file.pieces)

    try:
        run_all(tasks(), min(threads, sum(_piece_count(file.size) for file, _ in pairs)), stop)
    finally:
        client.close()


def _piece_count(size: int) -> int:
    return -(-size // _PIECE) if size > _LARGE else 1


class _Folders:
    """Makes each folder once, and looks once what is in it."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def names_in(self, folder: str) -> set[str]:
        if folder not in self._names:
            os.makedirs(folder, exist_ok=True)
            names = set(os.listdir(folder))
            sweep(folder, names)
            self._names[folder] = names
        return self._names[folder]


class _Incoming:
    """One file while it arrives, in one piece or in many."""

    def __init__(
        self,
        file: RemoteFile,
        target: str,
        client: Client,
        progress: Progress,
        stop: threading.Event,
        folders: _Folders,
        verify: str,
    ) -> None:
        self._file, self._target, self._size = file, target, file.size
        self._client, self._progress, self._stop = client, progress, stop
        self._folders, self._is_full = folders, verify == "full"
        self._checksum = file.checksum
        self.pieces = self._left = _piece_count(file.size)
        self._lock, self._hashing = threading.Lock(), threading.Lock()
        self._partial: PartialFile | None = None
        self._is_present = self._needs_one_stream = self._is_hashed = False
        self._workers = 0
        self._have: set[int] = set()
        self._hashed = 0
        self._hasher: Hasher | None = None
        self._tag = self._right_tag = ""

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
        except OSError as error:
            self._stop.set()
            raise self._local_failure(error) from error
        except BaseException:
            self._stop.set()
            raise
        finally:
            with self._lock:
                self._workers -= 1
                if self._stop.is_set() and not self._workers:
                    self._leave()

    def _work(self, index: int) -> None:
        with self._lock:
            if not self._partial and not self._is_present:
                self._begin()
        if self._is_present:
            return
        if self.pieces > 1:
            self._fetch_piece(index)
            with self._lock:
                self._left -= 1
                if self._left:
                    return
        self._finish()

    def _leave(self) -> None:
        """Pieces of a large file are for the next attempt; of a small one nothing is kept."""
        if self._partial and self.pieces > 1:
            self._partial.close()
        elif self._partial:
            self._partial.discard()

    def _local_failure(self, error: OSError) -> TransferError:
        folder = os.path.dirname(self._target)
        if error.errno in _NO_SPACE:
            free = os.statvfs(folder)
            return TransferError(
                f"{self._file.uri}: no space left in {folder} for {self._size} bytes "
                f"({free.f_bavail * free.f_frsize} are free). Free some, or set TAO_RESULTS_ROOT "
                "or TAO_WORK_ROOT to a larger disk"
            )
        return TransferError(f"{self._file.uri}: cannot write {self._target}: {error.strerror}")

    def _begin(self) -> None:
        folder, name = os.path.split(self._target)
        if name in self._folders.names_in(folder) and self._is_whole_already():
            self._is_present = True
            self._progress.add(self._size)
            self._progress.file_done()
            return
        if self.pieces == 1:
            self._partial = PartialFile(self._target)
            return
        tag = self._file.fingerprint
        self._partial = PartialFile(self._target, tag and f"{tag} {self._size} {_PIECE}")
        self._have = self._partial.resume(self._size, _PIECE, bool(self._checksum))
        if self._is_full or self._partial.has_unproved or self._checksum != f"md5:{tag}":
            self._is_hashed = bool(self._checksum)
        else:
            self._right_tag = tag
        self._progress.add(sum(map(self._length_of, self._have)))

    def _is_whole_already(self) -> bool:
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

    def _length_of(self, index: int) -> int:
        return min(_PIECE, self._size - index * _PIECE)

    def _fetch_piece(self, index: int) -> None:
        if self._needs_one_stream:
            return
        if index not in self._have:
            start = index * _PIECE
            try:
                hasher = self._receive(start, start + self._length_of(index))
            except _NoPiecesError:
                self._needs_one_stream = True
                return
            with self._lock:
                self._opened.note(index, hasher.hexdigest())
                self._have.add(index)
        # Hashing may be slower than the network: fetching on would only take its processor time.
        lag = (len(self._have) - self._hashed) * _PIECE
        self._hash_on(blocking=lag > _LONGEST_LAG)

    @property
    def _opened(self) -> PartialFile:
        assert self._partial  # noqa: S101 - _begin comes first
        return self._partial

    def _hash_on(self, blocking: bool) -> None:
        """Hash, in order, the pieces that are there. Whoever finds nobody doing it does it."""
        checksum = self._checksum if self._is_hashed else ""
        if not checksum or not self._hashing.acquire(blocking):
            return
        try:
            self._hasher = self._hasher or hasher_for(checksum, self._size)
            while self._hashed in self._have and not self._stop.is_set():
                start = self._hashed * _PIECE
                length = self._length_of(self._hashed)
                for block in blocks_of(self._opened.descriptor, start, length):
                    self._hasher.update(block)
                self._hashed += 1
        finally:
            self._hashing.release()

    def _finish(self) -> None:
        if self.pieces == 1 or self._needs_one_stream or not self._pieces_agree():
            self._fetch_in_one_stream()
        self._opened.commit()
        self._partial = None
        self._is_present = True
        self._progress.file_done()

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

    def _fetch_in_one_stream(self) -> None:
        if self.pieces > 1:
            self._progress.add(-sum(map(self._length_of, self._have)))
            self._opened.restart(0)
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
            request = self._file.request()
            if is_part:
                headers = {**request.headers, "Range": f"bytes={at}-{end - 1}"}
                request = request._replace(headers=headers)
            with self._client.send(request) as reply:
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
                        "whether all of it arrives could not be known"
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
            f"{self._file.uri}: changed while it was downloaded. Run the job again when nobody "
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
