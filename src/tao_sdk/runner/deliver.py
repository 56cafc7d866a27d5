"""Results on their way to remote storage: while the command runs, and all that is left at its end.

While it runs, only files that have come to rest are sent, so that no half checkpoint is among
them. At the end, however it came, everything goes in the state it is in. Nothing is ever removed
at the destination: a checkpoint that the command rotated away stays where it was delivered.

On several nodes each has a disk of its own. Rank 0 delivers to the destination itself, rank n
below `rank<n>/` in it: so nobody overwrites anybody.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from .excludes import Excludes
from .report import Reporter, Stage

DELIVERY_FAILED = 74
"""The exit code (EX_IOERR) when the command succeeded, but not all of its results are there."""

_PRIVATE = (".tao", "inputs", "ptm")
_SYNC_THREADS = 3
_PAUSE_FACTOR = 10
_SETTLE_SECONDS = 5.0
_POINTER_BYTES = 1 << 20
_NAMED_FILES = 10


class Output(Protocol):
    """A file or folder that the command writes, and where it is to go ("": it stays)."""

    @property
    def local(self) -> str: ...
    @property
    def uri(self) -> str: ...


class Uploader(Protocol):
    def upload_all(
        self, pairs: Sequence[tuple[str, str]], progress: Stage, *, threads: int
    ) -> list[tuple[str, str]]: ...


class DeliveryResult(NamedTuple):
    """What has become of the results."""

    files: int
    nbytes: int
    failed: list[tuple[str, str]]
    """Paths, and why they are not at the destination."""
    skipped: list[tuple[str, str]]
    """What cannot be delivered by its nature, and why."""


class Found(NamedTuple):
    """A file among the outputs."""

    path: str
    uri: str
    size: int
    mtime: float
    version: tuple[int, int, int]
    """Another one when the content is."""


class Scan(NamedTuple):
    found: list[Found]
    skipped: dict[str, str]
    unreadable: dict[str, str]


class Delivery:
    """Delivers some outputs, in a thread of its own."""

    def __init__(
        self,
        outputs: Sequence[Output],
        excludes: Excludes,
        uploader: Uploader,
        reporter: Reporter,
        *,
        work: str,
        rank: int = 0,
        interval: float = 30,
        threads: int = 16,
        settle_seconds: float = _SETTLE_SECONDS,
    ) -> None:
        """`work` is the job's folder, in which inputs and private files lie."""
        self._outputs = [output for output in outputs if output.uri]
        self._excludes = excludes
        self._work_folder = work
        self._rank = rank
        self._uploader = uploader
        self._reporter = reporter
        self._interval = self._pause = interval
        self._threads = threads
        self._settle_seconds = settle_seconds
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._delivered: dict[str, Found] = {}
        self._reasons: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self._ending = threading.Event()
        self._worker: threading.Thread | None = None

    def assume_delivered(self, paths: Collection[str]) -> None:
        """These were fetched from the destination: there is no need to send them back."""
        fetched = {os.path.realpath(path) for path in paths}
        for file in self._scan().found if fetched else ():
            if file.path in fetched:
                self._delivered[file.uri] = file

    def start(self, running: Stage) -> None:
        """Begin to synchronise; `running` is told what moves, and when that is over."""
        self._worker = threading.Thread(target=self._work, args=(running,), daemon=True)
        self._worker.start()

    def finish(self, time_limit: Callable[[], float]) -> DeliveryResult:
        """Deliver what is left. The limit, on the monotonic clock, may change meanwhile."""
        worker = self._worker
        if worker is None:
            raise RuntimeError("start comes first")
        self._ending.set()
        while worker.is_alive() and time.monotonic() < time_limit():
            worker.join(0.1)
        return self._account(worker.is_alive())

    def _scan(self) -> Scan:
        return scan(self._outputs, self._excludes, self._work_folder, self._rank)

    # ------------------------------------------------------------------ in the worker's thread

    def _work(self, running: Stage) -> None:
        while not self._ending.wait(self._pause or None):
            self._safely(lambda: self._synchronise(running))
        running.done()
        self._safely(self._flush)

    def _safely(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the job goes on; `finish` names what is missing
            self._reporter.warn(f"delivery failed: {type(error).__name__}: {error}")

    def _synchronise(self, running: Stage) -> None:
        """Send what is new or changed and has come to rest."""
        began = time.monotonic()
        pending = self._pending()
        # However many files there are, looking at them must not disturb the command.
        self._pause = max(self._interval, _PAUSE_FACTOR * (time.monotonic() - began))
        rested = time.time() - self._settle_seconds
        ready = [f for f in pending if self._seen.get(f.path) == f.version and f.mtime <= rested]
        self._seen = {file.path: file.version for file in pending}
        known = set(self._reasons)
        large, small = _by_size(ready)
        self._send(large, running)
        # What was written after a large file may point to it, and waits until that is there.
        missing = [f.mtime for f in _by_size(pending)[0] if not self._is_delivered(f)]
        small = [f for f in small if f.mtime < min(missing, default=float("inf"))]
        self._send(small, running)
        new = sorted(set(self._reasons) - known)
        if new:
            self._reporter.warn(
                f"not delivered yet, to be tried again: {_named(new)} ({self._reasons[new[0]]})"
            )

    def _send(self, batch: Sequence[Found], running: Stage) -> None:
        if batch:
            running.expect(sum(file.size for file in batch), len(batch), batch[0].uri)
            self._upload(batch, running, min(_SYNC_THREADS, self._threads))

    def _flush(self) -> None:
        """Send everything that is not there, in its present state."""
        pending = self._pending()
        if not pending:
            return
        total = sum(file.size for file in pending)
        uri = pending[0].uri
        progress = self._reporter.stage(
            "delivering", bytes_total=total, files_total=len(pending), uri=uri
        )
        for batch in filter(None, _by_size(pending)):
            self._upload(batch, progress, self._threads)
        progress.done()

    def _pending(self) -> list[Found]:
        """What is to be delivered, oldest first."""
        result = self._scan()
        for path, reason in {**result.skipped, **result.unreadable}.items():
            if path not in self._skipped:
                self._skipped[path] = reason
                self._reporter.warn(f"{path} is not delivered: {reason}")
        pending = [file for file in result.found if not self._is_delivered(file)]
        return sorted(pending, key=lambda file: file.mtime)

    def _upload(self, batch: Sequence[Found], progress: Stage, threads: int) -> None:
        pairs = [(file.path, file.uri) for file in batch]
        try:
            failures = dict(self._uploader.upload_all(pairs, progress, threads=threads))
        except Exception as error:  # noqa: BLE001 - the reason is kept for every file of the batch
            failures = {path: str(error) or type(error).__name__ for path, _ in pairs}
        for file in batch:
            self._reasons.pop(file.path, None)
            if file.path not in failures:
                self._delivered[file.uri] = file
            elif os.path.exists(file.path):  # otherwise it was rotated away, and nothing is missing
                self._reasons[file.path] = failures[file.path]

    def _is_delivered(self, file: Found) -> bool:
        delivered = self._delivered.get(file.uri)
        return delivered is not None and delivered.version == file.version

    # ------------------------------------------------------------------ the account

    def _account(self, unfinished: bool) -> DeliveryResult:
        """Compare what is there with what was delivered."""
        result = self._scan()
        failed = dict(result.unreadable)
        for file in result.found:
            late = unfinished and not self._is_delivered(file)
            if late or file.uri not in self._delivered or file.path in self._reasons:
                default = "the time for delivery was up" if unfinished else "see the warnings above"
                failed[file.path] = self._reasons.get(file.path, default)
        for output in self._outputs:
            if not os.path.lexists(output.local):
                self._reporter.say(f"{output.local} was not written: nothing for {output.uri}")
        delivered = list(self._delivered.values())
        if failed:
            some = sorted(failed)
            self._reporter.say(
                f"error: {len(failed):,} of the results were not delivered: {_named(some)} "
                f"({failed[some[0]]})"
            )
        return DeliveryResult(
            len(delivered),
            sum(file.size for file in delivered),
            sorted(failed.items()),
            sorted(result.skipped.items()),
        )


def overall_exit_code(command_code: int, result: DeliveryResult | None) -> int:
    """The command's own code if it failed; DELIVERY_FAILED if only the delivery did."""
    return command_code or (DELIVERY_FAILED if result is not None and result.failed else 0)


def scan(outputs: Sequence[Output], excludes: Excludes, work: str, rank: int) -> Scan:
    """Every file that is to be delivered, and what cannot be."""
    result = Scan([], {}, {})
    placed = [(output, os.path.realpath(output.local)) for output in outputs]
    places = [place for _, place in placed]
    private = {os.path.join(os.path.realpath(work), name) for name in _PRIVATE}
    for output, place in placed:
        if os.path.isdir(place):
            uri = output.uri.rstrip("/") + (f"/rank{rank}" if rank else "")
            _walk(place, uri, excludes, places, private, result)
        elif os.path.lexists(place):
            folder, _, name = output.uri.rpartition("/")
            uri = f"{folder}/rank{rank}/{name}" if rank else output.uri
            _note(place, uri, result)
    return result


def _walk(
    root: str,
    uri: str,
    excludes: Excludes,
    places: Sequence[str],
    private: Collection[str],
    result: Scan,
) -> None:
    folders = [""]
    while folders:
        relative = folders.pop()
        for entry in _entries(os.path.join(root, relative), result):
            path = relative + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.path in private or excludes.excluded(path, is_folder):
                continue
            if is_folder:
                folders.append(path + "/")
                continue
            problem = _problem_of_link(entry.path, places, private) if entry.is_symlink() else ""
            if problem:
                result.skipped[entry.path] = problem
            else:
                _note(entry.path, f"{uri}/{path}", result)


def _entries(folder: str, result: Scan) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from list(entries)
    except FileNotFoundError:
        pass  # removed since it was found
    except OSError as error:
        result.unreadable[folder] = f"{error.strerror}"


def _problem_of_link(path: str, places: Sequence[str], private: Collection[str]) -> str:
    """Why a link is not followed; "" when it is."""
    target = os.path.realpath(path)
    if not os.path.exists(target):
        return "it is a broken link"
    if os.path.isdir(target):
        return "it is a link to a folder, whose files are delivered where they lie, if at all"
    if not any(_inside(target, place) for place in places) or any(
        _inside(target, folder) for folder in private
    ):
        return f"it is a link to {target}, which is not among the outputs"
    return ""


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _note(path: str, uri: str, result: Scan) -> None:
    try:
        status = os.stat(path)
        uri.encode("utf-8")
    except FileNotFoundError:
        return  # removed since it was found
    except OSError as error:
        result.unreadable[path] = f"{error.strerror}"
    except UnicodeEncodeError:
        result.unreadable[path] = "its name is not valid UTF-8"
    else:
        if stat.S_ISREG(status.st_mode):
            version = (status.st_size, status.st_mtime_ns, status.st_ino)
            result.found.append(Found(path, uri, status.st_size, status.st_mtime, version))
        else:
            result.skipped[path] = "it is not a regular file"


def _by_size(files: Sequence[Found]) -> tuple[list[Found], list[Found]]:
    """Large files, and small ones, such as a `latest` that points to a large one."""
    large = [file for file in files if file.size > _POINTER_BYTES]
    return large, [file for file in files if file.size <= _POINTER_BYTES]


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED_FILES
    return ", ".join(paths[:_NAMED_FILES]) + (f" and {more:,} more" if more > 0 else "")
