"""Where the job store lives, and the privacy of the folder that holds it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import StoreError, UnsupportedError, ValidationError

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
MEMORY = ":memory:"

_DEFAULT_STORE = "jobs.db"
_STORE_SUFFIX = ".tao.db"
# What a caller's `state_file` may end in, beside the store's own suffix.
_DROPPED_SUFFIXES = (".json", ".db")


class ForeignFolderError(StoreError, PermissionError):
    """The state folder belongs to another user."""


class StatePaths(NamedTuple):
    """The files that belong to one `state_file`."""

    json: str
    database: str
    reference: str
    """Where NVIDIA's SDK would keep its own database; read once, never written."""
    folder_is_ours: bool
    """True for the default folder, which is made private; a caller's folder is left alone."""

    @property
    def exist(self) -> bool:
        """Whether there is a store, or one of NVIDIA's SDK to be taken over."""
        if Path(self.database).is_file():
            return True
        if not Path(self.reference).is_file():
            return False
        from tao_sdk.job_store.reference import is_reference  # loads SQLite

        return is_reference(Path(self.reference))


def resolve_sdk_state_paths(state_file: str | os.PathLike[str] | None = None) -> tuple[str, str]:
    """The session file and the job database for `state_file`.

    Without one, both lie in `$TAO_SDK_STATE_DIR` (default `~/.tao_sdk`), which is created and
    made private. A given path is kept as it is, and the database stands beside it:
    `runs/a.json` -> `runs/a.tao.db`. The path of a database of ours stands for itself.
    """
    paths = state_paths(state_file)
    if paths.folder_is_ours:
        harden_state_folder(Path(paths.database).parent)
    return paths.json, paths.database


def state_paths(state_file: str | os.PathLike[str] | None = None) -> StatePaths:
    """Like `resolve_sdk_state_paths`, but touches nothing."""
    if state_file is None:
        return _paths_in(_default_folder(), ours=True)
    given = os.fspath(state_file)
    if Path(given).name == _DEFAULT_STORE and Path(given).absolute() == _default_store():
        return state_paths()
    if not given or given.endswith(os.sep):
        raise ValidationError(f"state_file={given!r} names no file: give a path such as 'run.json'")
    if given.endswith(_STORE_SUFFIX):
        stem = given.removesuffix(_STORE_SUFFIX)
        return StatePaths(stem + ".json", given, stem + ".db", folder_is_ours=False)
    if _is_a_store(given):
        if Path(given).name == _DEFAULT_STORE:
            return _paths_in(Path(given).parent, ours=False)
        return StatePaths(given + ".json", given, "", folder_is_ours=False)
    stem = next(
        (given.removesuffix(end) for end in _DROPPED_SUFFIXES if given.endswith(end)), given
    )
    return StatePaths(given, stem + _STORE_SUFFIX, stem + ".db", folder_is_ours=False)


def _paths_in(folder: Path, *, ours: bool) -> StatePaths:
    """The files of a state folder."""
    return StatePaths(
        json=str(folder / "tao_session_state.json"),
        database=str(folder / _DEFAULT_STORE),
        reference=str(folder / "tao_session_state.db"),
        folder_is_ours=ours,
    )


def _is_a_store(given: str) -> bool:
    if not Path(given).is_file():
        return False
    if Path(f"{given}-gate").exists():  # also when it is damaged
        return True
    from tao_sdk.job_store.store_file import is_ours  # SQLite is not needed to name a new store

    return is_ours(Path(given))


def address_of(store: str) -> str:
    """The path of a store as a job's address has it: "" where any process looks by default."""
    if store == MEMORY:
        raise UnsupportedError(
            "a store in memory has no address: give state_file= (or a JobStore with a path), so "
            "that other processes find its jobs"
        )
    return "" if store == str(_store_without_settings().resolve()) else store


def state_files_at(address: str) -> list[str | None]:
    """The state files whose stores an address may mean, in the order of looking; None: the default.

    An address without a store was made for the default store, maybe by a process that had no
    TAO_SDK_STATE_DIR while this one has.
    """
    if address:
        return [address]
    without_settings = _store_without_settings()
    if without_settings.resolve() == _default_store().resolve():
        return [None]
    return [None, str(without_settings)]


def _store_without_settings() -> Path:
    """The default store of a process without TAO_SDK_STATE_DIR."""
    folder = settings.SETTINGS["TAO_SDK_STATE_DIR"].default
    return settings.expanded(folder) / _DEFAULT_STORE


def _default_store() -> Path:
    return _default_folder() / _DEFAULT_STORE


def _default_folder() -> Path:
    folder = settings.expanded(settings.get("TAO_SDK_STATE_DIR"))
    if not folder.is_absolute():
        raise ValidationError(
            f"TAO_SDK_STATE_DIR={str(folder)!r} is relative: give an absolute path, so that every "
            "process finds the same jobs"
        )
    return folder


def harden_state_folder(folder: Path) -> None:
    """Create the folder if need be and make it private (0700)."""
    _make_folder(folder)
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise ValidationError(
            f"{folder} is a symbolic link: set TAO_SDK_STATE_DIR to the folder that is meant"
        )
    if not stat.S_ISDIR(found.st_mode):
        raise ValidationError(
            f"{folder} is not a folder: move it away, or set TAO_SDK_STATE_DIR to another place"
        )
    if found.st_uid != os.geteuid():
        raise ForeignFolderError(
            f"{folder} belongs to another user (uid {found.st_uid}): "
            "set TAO_SDK_STATE_DIR to a folder of your own"
        )
    if stat.S_IMODE(found.st_mode) != PRIVATE_FOLDER:
        _make_private(folder)


def ensure_folder(folder: Path) -> None:
    """Create a missing folder for an explicit path; an existing one keeps its mode."""
    _make_folder(folder)


def _make_folder(folder: Path) -> None:
    if folder.is_symlink():
        return
    try:
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    except FileExistsError:
        return  # something else stands there; the caller says what
    except OSError as error:
        raise StoreError(
            f"cannot create the folder {folder} for the job store ({error.strerror}): "
            "create it, or choose another one"
        ) from error


def _make_private(folder: Path) -> None:
    # By descriptor, so that the folder we looked at is the folder we change.
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(descriptor, PRIVATE_FOLDER)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder} private ({error.strerror}): run chmod 700 {folder}"
        ) from error
