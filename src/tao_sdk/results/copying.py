"""Copying what a plan names, one whole file after the other.

A file is written under another name, compared with what was announced, and renamed into place.
Nothing is ever written outside the destination, whatever links lie in it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tao_sdk import file_locks
from tao_sdk.errors import PlatformError, StoreBusyError, StoreError, ValidationError
from tao_sdk.results.comparing import digest_of
from tao_sdk.results.outcomes import Outcome, State, failed
from tao_sdk.results.planning import WORKSPACE, PullPlan
from tao_sdk.results.sources import Advance, Entry, Fetched, Kind, ResultSource

_LOCK = "lock"
# Beside the lock file, while a lock is held by a link.
_LINKS = (f"{_LOCK}-access", f"{_LOCK}-ticket")
# How long to wait for such a lock; the one of a killed pull is broken meanwhile.
_LINK_SECONDS = 1.0


class _CannotPlaceError(Exception):
    """The destination is not fit for this entry."""


def copy_results(
    source: ResultSource, plan: PullPlan, advance: Advance = lambda _: None
) -> Iterator[Outcome]:
    """Do what the plan says. Yields what becomes of every entry; `advance` counts bytes.

    Raises, with what was copied so far in place, when the disk is full, or when another pull
    writes to the same destination.
    """
    complete = True
    for outcome in _copy(source, plan, advance):
        complete = complete and not outcome.state.incomplete
        yield outcome
    if complete and plan.whole:
        source.all_fetched()


def _copy(source: ResultSource, plan: PullPlan, advance: Advance) -> Iterator[Outcome]:
    _refuse_too_little_space(plan)
    for entry in plan.unfit:
        yield Outcome(entry.path, State.SKIPPED, message=entry.problem)
    for entry in plan.unreadable:
        yield Outcome(entry.path, State.FAILED, message=entry.problem)
    for entry in plan.present:
        yield Outcome(entry.path, State.PRESENT, entry.size)
    with _workspace(plan.destination) as workspace:
        copier = _Copier(plan, workspace)
        for entry in plan.folders:
            yield from copier.make_folder(entry)
        for entry in plan.to_copy:
            if entry.kind is Kind.LINK:
                yield copier.copy_link(entry)
        files = [entry for entry in plan.to_copy if entry.kind is Kind.FILE]
        for fetched in source.fetch(files, workspace, advance, digests=plan.verify):
            yield fetched.problem or copier.place(fetched)
        for entry in reversed(plan.folders):
            yield from copier.finish_folder(entry)


class _Copier:
    """Copies into one destination."""

    def __init__(self, plan: PullPlan, workspace: Path) -> None:
        self._destination = plan.destination
        self._workspace = workspace
        self._made: set[str] = set()

    def place(self, fetched: Fetched) -> Outcome:
        """Give a file that is here its name."""
        entry, part = fetched.entry, fetched.part
        try:
            if part is None:
                raise _CannotPlaceError("it was not fetched")
            if fetched.digest:
                with part.open("rb") as written:
                    if digest_of(written) != fetched.digest:
                        raise _CannotPlaceError(
                            "what was written reads back differently: a bad disk?"
                        )
            if entry.mode is not None:
                part.chmod(entry.mode)
            os.utime(part, ns=(entry.mtime_ns, entry.mtime_ns))
            self._rename(part, entry)
        except _CannotPlaceError as error:
            return Outcome(entry.path, State.FAILED, entry.size, str(error))
        except OSError as error:
            return failed(entry.path, entry.size, error)
        return Outcome(entry.path, State.COPIED, entry.size)

    def copy_link(self, entry: Entry) -> Outcome:
        part = self._workspace / "link"
        try:
            part.unlink(missing_ok=True)
            part.symlink_to(entry.target)
            self._rename(part, entry)
        except _CannotPlaceError as error:
            return Outcome(entry.path, State.FAILED, entry.size, str(error))
        except OSError as error:
            return failed(entry.path, entry.size, error)
        return Outcome(entry.path, State.COPIED)

    def make_folder(self, entry: Entry) -> Iterator[Outcome]:
        try:
            self._folder(PurePosixPath(entry.path))
            self._made.add(entry.path)
        except _CannotPlaceError as error:
            yield Outcome(entry.path, State.FAILED, message=str(error))
        except OSError as error:
            yield failed(entry.path, entry.size, error)

    def finish_folder(self, entry: Entry) -> Iterator[Outcome]:
        """Modes and times last: writing needs the one and changes the other."""
        if entry.path not in self._made:
            return  # not ours, or reached through a link that was there before
        folder = self._destination / entry.path
        try:
            if _is_real_folder(folder) and entry.mode is not None:
                folder.chmod(entry.mode | stat.S_IRWXU)
                os.utime(folder, ns=(entry.mtime_ns, entry.mtime_ns))
        except OSError as error:
            yield failed(entry.path, entry.size, error)

    def _rename(self, part: Path, entry: Entry) -> None:
        path = PurePosixPath(entry.path)
        target = self._folder(path.parent) / path.name
        if _is_real_folder(target):
            raise _CannotPlaceError(f"{target} is a folder: move it away")
        part.replace(target)

    def _folder(self, path: PurePosixPath) -> Path:
        """That folder of the destination, made if need be; links are not followed."""
        folder = self._destination
        for name in path.parts:
            folder = folder / name
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            if not _is_real_folder(folder):
                raise _CannotPlaceError(f"{folder} is not a folder (links are not followed)")
        return folder


@contextlib.contextmanager
def _workspace(destination: Path) -> Iterator[Path]:
    """A private folder in the destination, for one pull at a time."""
    workspace = destination / WORKSPACE
    destination.mkdir(parents=True, exist_ok=True)
    try:
        with _lock(workspace):
            try:
                yield workspace
            except BaseException:
                if not any(path.is_dir() for path in workspace.glob("*")):
                    _clear(workspace)
                raise  # otherwise the next pull goes on with what is in there, and clears it
            _clear(workspace)
    finally:
        with contextlib.suppress(OSError):  # not empty: it is needed, or another pull has begun
            workspace.rmdir()


def _clear(workspace: Path) -> None:
    """Empty the folder; what cannot be removed is left to the next pull.

    The lock file goes last: from then on the folder may be another pull's.
    """
    with contextlib.suppress(OSError):
        for path in sorted(workspace.iterdir(), key=lambda path: path.name == _LOCK):
            if _is_real_folder(path):
                shutil.rmtree(path, ignore_errors=True)
            elif not path.name.startswith(_LINKS):
                path.unlink(missing_ok=True)


def _lock(workspace: Path) -> contextlib.ExitStack:
    """Lock the folder, which is made if need be; closing what is returned unlocks it."""
    path = workspace / _LOCK
    while True:
        with contextlib.suppress(FileExistsError):
            workspace.mkdir(mode=0o700)
        # FileNotFoundError: a pull that ends just now removed it.
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as held:
            if not stat.S_ISDIR(workspace.lstat().st_mode):
                raise ValidationError(f"{workspace} is in the way: remove it")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            held.callback(os.close, descriptor)
            try:
                if not file_locks.lock(descriptor, wait=False):
                    raise ValidationError(_another_pull(workspace))
            except file_locks.NoFileLocksError:
                _lock_by_link(path, held)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return held.pop_all()


def _lock_by_link(path: Path, held: contextlib.ExitStack) -> None:
    """Lock where the file system refuses file locks.

    The lock of a killed pull is broken on its own machine only: on any other one, a pull that has
    been silent for long may still be copying a large file.
    """
    from tao_sdk.job_store.deadline import Deadline  # rarely needed
    from tao_sdk.job_store.network_lock import NetworkLock

    deadline = Deadline(time.monotonic() + _LINK_SECONDS, _LINK_SECONDS)
    workspace = path.parent
    try:
        held.enter_context(NetworkLock(path, foreign_silence=math.inf).held(deadline))
    except StoreBusyError:
        remedy = f"; if it was killed on another machine, remove {workspace}"
        raise ValidationError(_another_pull(workspace) + remedy) from None
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None
        raise


def _another_pull(workspace: Path) -> str:
    return f"another pull writes to {workspace.parent}: wait for it, or choose another destination"


def _refuse_too_little_space(plan: PullPlan) -> None:
    place = plan.destination
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    # Files that are replaced free their old space, but only once they have been.
    if plan.bytes_to_copy > free:
        raise PlatformError(
            f"{plan.bytes_to_copy:,} bytes are to be copied, and {place} has {free:,} left: make "
            "room, choose another destination, or fewer files (--include, --exclude)"
        )


def _is_real_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False
