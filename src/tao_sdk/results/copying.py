"""Copying what a plan names, one whole file after the other.

A file is written under another name, compared with what was announced, and renamed into place.
Nothing is ever written outside the destination, whatever links lie in it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tao_sdk.errors import PlatformError, ValidationError
from tao_sdk.results.planning import WORKSPACE, PullPlan, digest_of, same_version
from tao_sdk.results.sources import Entry, Kind, ResultSource

_BLOCK = 1024 * 1024
_ATTEMPTS = 3
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class State(str, Enum):
    """What became of an entry."""

    COPIED = "copied"
    PRESENT = "present"
    """It was there already."""
    SKIPPED = "skipped"
    """Not a thing to copy."""
    GONE = "gone"
    """Removed from the results since they were listed."""
    CHANGED = "changed"
    """It changed whenever it was being copied: not copied."""
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value

    @property
    def incomplete(self) -> bool:
        """Whether something is missing at the destination."""
        return self in (State.CHANGED, State.FAILED)


@dataclass(frozen=True)
class Outcome:
    """One entry and what became of it."""

    path: str
    state: State
    size: int = 0
    message: str = ""


class _CannotPlaceError(Exception):
    """The destination is not fit for this entry."""


def copy_results(
    source: ResultSource, plan: PullPlan, advance: Callable[[int], None] = lambda _: None
) -> Iterator[Outcome]:
    """Do what the plan says. Yields what becomes of every entry; `advance` counts bytes.

    Raises, with what was copied so far in place, when the disk is full, or when another pull
    writes to the same destination.
    """
    _refuse_too_little_space(plan)
    for entry in plan.unfit:
        yield Outcome(entry.path, State.SKIPPED, message=entry.problem)
    for entry in plan.unreadable:
        yield Outcome(entry.path, State.FAILED, message=entry.problem)
    for entry in plan.present:
        yield Outcome(entry.path, State.PRESENT, entry.size)
    with _workspace(plan.destination) as workspace:
        copier = _Copier(source, plan, workspace, advance)
        for entry in plan.folders:
            yield from copier.make_folder(entry)
        for entry in plan.to_copy:
            yield copier.copy(entry)
        for entry in reversed(plan.folders):
            yield from copier.finish_folder(entry)


class _Copier:
    """Copies into one destination."""

    def __init__(
        self,
        source: ResultSource,
        plan: PullPlan,
        workspace: Path,
        advance: Callable[[int], None],
    ) -> None:
        self._source = source
        self._destination = plan.destination
        self._verify = plan.verify
        self._part = workspace / "part"
        self._advance = advance
        self._made: set[str] = set()

    def copy(self, entry: Entry) -> Outcome:
        try:
            return self._copy_link(entry) if entry.kind is Kind.LINK else self._copy_file(entry)
        except _CannotPlaceError as error:
            return Outcome(entry.path, State.FAILED, entry.size, str(error))
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._source.look(entry.path) is None:
                return Outcome(entry.path, State.GONE, message="removed while it was fetched")
            return _failed(entry, error)

    def make_folder(self, entry: Entry) -> Iterator[Outcome]:
        try:
            self._folder(PurePosixPath(entry.path))
            self._made.add(entry.path)
        except _CannotPlaceError as error:
            yield Outcome(entry.path, State.FAILED, message=str(error))
        except OSError as error:
            yield _failed(entry, error)

    def finish_folder(self, entry: Entry) -> Iterator[Outcome]:
        """Modes and times last: writing needs the one and changes the other."""
        if entry.path not in self._made:
            return  # not ours, or reached through somebody's link
        folder = self._destination / entry.path
        try:
            if _is_real_folder(folder):
                folder.chmod(entry.mode | stat.S_IRWXU)
                os.utime(folder, ns=(entry.mtime_ns, entry.mtime_ns))
        except OSError as error:
            yield _failed(entry, error)

    def _copy_file(self, entry: Entry) -> Outcome:
        for _ in range(_ATTEMPTS):
            written, digest = self._write_part(entry)
            now = self._source.look(entry.path)
            if now is None:
                raise FileNotFoundError(entry.path)
            if same_version(entry, now) and written == entry.size:
                self._place_part(entry, digest)
                return Outcome(entry.path, State.COPIED, entry.size)
            self._advance(-written)
            entry = replace(now, path=entry.path)
        return Outcome(
            entry.path, State.CHANGED, entry.size, "is being written just now: pull again later"
        )

    def _write_part(self, entry: Entry) -> tuple[int, str]:
        digest, written = hashlib.sha256(), 0
        with self._source.open(entry.path) as file, _new_file(self._part) as part:
            while block := file.read(_BLOCK):
                part.write(block)
                if self._verify:
                    digest.update(block)
                written += len(block)
                self._advance(len(block))
        return written, digest.hexdigest()

    def _place_part(self, entry: Entry, digest: str) -> None:
        if self._verify:
            with self._part.open("rb") as part:
                if digest_of(part) != digest:
                    raise _CannotPlaceError("what was written reads back differently: a bad disk?")
        self._part.chmod(entry.mode)
        os.utime(self._part, ns=(entry.mtime_ns, entry.mtime_ns))
        self._rename(entry)

    def _copy_link(self, entry: Entry) -> Outcome:
        self._part.unlink(missing_ok=True)
        self._part.symlink_to(entry.target)
        self._rename(entry)
        return Outcome(entry.path, State.COPIED)

    def _rename(self, entry: Entry) -> None:
        path = PurePosixPath(entry.path)
        target = self._folder(path.parent) / path.name
        if _is_real_folder(target):
            raise _CannotPlaceError(f"{target} is a folder: move it away")
        self._part.replace(target)

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
    lock = _lock(workspace)
    try:
        yield workspace
    finally:
        shutil.rmtree(workspace, ignore_errors=True)  # what stays is cleared by the next pull
        os.close(lock)


def _lock(workspace: Path) -> int:
    path = workspace / "lock"
    while True:
        with contextlib.suppress(FileExistsError):
            workspace.mkdir(mode=0o700)
        if not _is_real_folder(workspace):
            raise ValidationError(f"{workspace} is in the way: remove it")
        with contextlib.suppress(FileNotFoundError):  # a pull that ends just now removed it
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                raise ValidationError(
                    f"another pull writes to {workspace.parent}: wait for it, or choose another "
                    "destination"
                ) from None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


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


def _new_file(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _is_real_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _failed(entry: Entry, error: OSError) -> Outcome:
    if error.errno in _NO_SPACE:
        raise PlatformError(
            f"the destination is full ({error.strerror}); what was copied so far stays: make room "
            "and pull again"
        ) from error
    return Outcome(entry.path, State.FAILED, entry.size, error.strerror or str(error))
