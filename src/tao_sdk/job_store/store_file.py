"""The database file itself: is it ours, which mode is it in, and how a new one comes to be.

A file is judged by its first hundred bytes before SQLite may open it, because opening another
program's database can already change it. A new file is built under another name and renamed into
place under the store's lock, so that no process sees a half-made one.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from tao_sdk import settings
from tao_sdk.errors import ForeignStoreError, StoreError, ValidationError
from tao_sdk.job_store import schema
from tao_sdk.job_store.file_systems import on_network
from tao_sdk.job_store.paths import PRIVATE_FILE

Mode = Literal["wal", "network"]

# Under `NetworkLock` no other process has the file open, so SQLite needs no locks of its own. (Its
# `unix-dotfile` locks would do harm: in SQLite 3.40 they keep the next process from rolling back
# the journal of a killed writer, and the unfinished transaction becomes visible.)
_VFS: dict[Mode, str] = {"wal": "unix", "network": "unix-none"}
_JOURNAL: dict[Mode, str] = {"wal": "WAL", "network": "DELETE"}
# With a write-ahead log, NORMAL keeps the file whole whatever happens; that an acknowledged commit
# is on the disk is seen to by `LocalAccess`. With a rollback journal only FULL does either.
_SYNCHRONOUS: dict[Mode, str] = {"wal": "NORMAL", "network": "FULL"}
_MODE_BY_JOURNAL_VERSION: dict[int, Mode] = {1: "network", 2: "wal"}

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_LARGEST_IDLE_LOG = 16 * 2**20
_WAL_FORMAT = b"\2"
_SIDECARS = ("-wal", "-shm", "-journal")
# Files that the locks of a store leave beside it.
_LOCKS = ("-gate", "-access", "-breaker")
REMEDY = (
    "restore it from a backup; or salvage what can be read with `tao-sdk doctor --recover`; or "
    "move it away to start with an empty store"
)


class Header(NamedTuple):
    """What the first bytes of a store say."""

    mode: Mode
    version: int


def read_header(path: Path) -> Header | None:
    """Judge the file; None when it is absent or empty, an error when it is not a store of ours."""
    try:
        head = _read_head(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    if not head:
        return None
    if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
        if was_store(path):
            raise damaged(path, "it does not begin as a store does")
        raise ForeignStoreError(
            f"{path} is not a job store (nor any SQLite database): choose another state file, or "
            "move it away; nothing was changed"
        )
    if _application_id(head) != schema.APPLICATION_ID:
        if _has_locks(path):
            raise damaged(path, "its header is not that of a store")
        raise ForeignStoreError(
            f"{path} is a SQLite database of another program: choose another state file. (To take "
            "over the jobs of NVIDIA's SDK, use merge_legacy_database.) Nothing was changed"
        )
    version = int.from_bytes(head[60:64], "big")
    schema.refuse_newer(version, path)
    mode = _MODE_BY_JOURNAL_VERSION.get(head[18])
    if mode is None:
        raise damaged(path, "its header names an unknown file format")
    return Header(mode, version)


def is_ours(path: Path) -> bool:
    """Whether the file is a store of this SDK, of any version."""
    try:
        head = _read_head(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    return head.startswith(_MAGIC) and _application_id(head) == schema.APPLICATION_ID


def was_store(path: Path) -> bool:
    """Whether there are traces of a store of ours beside this file: locks, logs, job folders.

    Beside a database only the locks count: those of other programs have logs, too.
    """
    if _has_locks(path):
        return True
    if path.is_file() and _read_head(path).startswith(_MAGIC):
        return False
    if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return True
    return any(_has_entries(folder) for folder in path.parent.glob(f"{path.stem}.*"))


def _has_locks(path: Path) -> bool:
    return any(path.with_name(path.name + suffix).exists() for suffix in _LOCKS)


def was_emptied(path: Path) -> bool:
    """Whether this is an empty file where a store was."""
    try:
        return path.stat().st_size == 0 and was_store(path)
    except FileNotFoundError:
        return False


def _has_entries(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot read the job store {path}: {error.strerror}")


def _application_id(head: bytes) -> int:
    return int.from_bytes(head[68:72], "big")


# SQLite's locks are POSIX locks: closing any descriptor of a file drops all locks that the process
# holds on it, also those of another connection to the same store. The next process to leave would
# then take itself for the last one and delete the WAL that we still write to. So a descriptor that
# looked at a WAL store stays open; there is one per store.
_never_closed: dict[tuple[int, int], int] = {}


def _read_head(path: Path) -> bytes:
    found = path.stat()
    known = _never_closed.get((found.st_dev, found.st_ino))
    if known is not None:
        return os.pread(known, _HEADER_BYTES, 0)
    if not stat.S_ISREG(found.st_mode):
        raise ForeignStoreError(
            f"{path} is not a file: choose another state file, or move it away; nothing was changed"
        )
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    opened = os.fstat(descriptor)
    try:
        head = os.pread(descriptor, _HEADER_BYTES, 0)
    except OSError:
        os.close(descriptor)
        raise
    if head[18:19] == _WAL_FORMAT:
        _never_closed[opened.st_dev, opened.st_ino] = descriptor
    else:
        os.close(descriptor)
    return head


def damaged(path: Path, reason: str) -> ForeignStoreError:
    return ForeignStoreError(f"{path} is damaged ({reason}): {REMEDY}; nothing was changed")


def choose_mode(path: Path) -> Mode:
    """How this store is locked: by the setting, the file system, and what the file already is.

    A file made for network access keeps that mode wherever it is seen: what looks like a local
    disk here may be the disk that a file server exports. The reverse is refused, because WAL is
    not safe across hosts and converting needs certainty that no other process has the file open.
    """
    wanted = wanted_mode(path)
    header = read_header(path)
    if header is None or header.mode == wanted:
        return wanted
    if header.mode == "network" and settings.get("TAO_SDK_STORE_MODE") == "auto":
        return "network"
    raise StoreError(
        f"the job store {path} is in {header.mode} mode, but {wanted} mode is called for "
        f"(TAO_SDK_STORE_MODE={settings.get('TAO_SDK_STORE_MODE')}). Set TAO_SDK_STORE_MODE="
        f"{header.mode}, or, while no process uses the store, convert it with: "
        f"sqlite3 '{path}' 'PRAGMA journal_mode={_JOURNAL[wanted]}'"
    )


def wanted_mode(path: Path) -> Mode:
    """The mode of a new store: by the setting, or by the file system."""
    setting = settings.get("TAO_SDK_STORE_MODE")
    if setting == "auto":
        return "network" if on_network(path) else "wal"
    for mode in _VFS:
        if setting == mode:
            return mode
    raise ValidationError(f"TAO_SDK_STORE_MODE={setting!r}: give auto, wal or network")


def connect(path: Path, mode: Mode) -> sqlite3.Connection:
    """Open an existing file. `mode=rw`, so that SQLite never creates one with a wider mode."""
    address = f"file://{quote(os.fsencode(path))}?mode=rw&vfs={_VFS[mode]}"
    # The store's own lock serialises threads, and transactions are begun explicitly.
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    configure(connection, _SYNCHRONOUS[mode])
    return connection


def configure(connection: sqlite3.Connection, synchronous: str) -> None:
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    # One large transaction, such as a prune, must not leave a large log behind for good.
    connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_LOG}")


def create(path: Path, mode: Mode) -> None:
    """Build an empty store in place of a missing or empty file. Call under the store's lock."""
    draft = path.with_name(f"{path.name}-new")
    try:
        _remove_with_sidecars(draft)
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        build(draft, mode)
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot create the job store {path}: {error.strerror}") from error


def build(draft: Path, mode: Mode) -> None:
    """Make a store of an empty file."""
    connection = connect(draft, mode)
    try:
        connection.execute(f"PRAGMA journal_mode = {_JOURNAL[mode]}")
        schema.migrate(connection)
    finally:
        connection.close()


def make_private(path: Path) -> None:
    """Give the file and its companions mode 0600."""
    for name in (path.name, *(path.name + suffix for suffix in _SIDECARS)):
        file = path.with_name(name)
        try:
            mode = file.stat().st_mode
            if not stat.S_ISREG(mode):
                raise damaged(path, f"{file.name} beside it is not a file")
            if stat.S_IMODE(mode) & 0o077:
                file.chmod(PRIVATE_FILE)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise StoreError(
                f"{file} belongs to another user and is not private: choose another state file"
            ) from error


def _remove_with_sidecars(path: Path) -> None:
    for suffix in ("", *_SIDECARS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
