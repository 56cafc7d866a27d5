"""The job store: its place, whether it is usable, and its content."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tao_sdk.cli.checks.findings import Finding, note, problem
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.session import Place
from tao_sdk.job_store import JobStore
from tao_sdk.job_store.paths import StatePaths, state_paths
from tao_sdk.job_store.schema import MIGRATIONS
from tao_sdk.job_store.store_file import REMEDY, choose_mode, read_header, was_emptied
from tao_sdk.progress.wording import amount_of_bytes
from tao_sdk.watcher import is_watched

_FOR_OTHERS = 0o077


def check_state(place: Place) -> Iterator[Finding]:
    paths = state_paths(place.state_file)
    database = Path(paths.database)
    yield from _check_folder(paths)
    header, mode = read_header(database), choose_mode(database)
    if was_emptied(database):
        yield problem("store", f"{database} is damaged: it is empty, and was a store", REMEDY)
        return
    if header is None:
        yield Finding("store", f"none yet; the first job makes {database} ({mode} mode)")
        return
    size = amount_of_bytes(database.stat().st_size, None)
    yield Finding("store", f"{database} ({mode} mode, {size})")
    yield from _check_privacy(database)
    watched = is_watched(database)
    yield Finding("watcher", "one is running" if watched else "none is running")
    if header.version < len(MIGRATIONS):
        yield note("version", "of an older SDK; the next command brings it up to date")
    with usable_store(place) as store:
        if store is not None:
            yield from _check_jobs(store, watched=watched)


@contextmanager
def usable_store(place: Place) -> Iterator[JobStore | None]:
    """The store, if there is one that can be opened without changing anything about it."""
    database = Path(state_paths(place.state_file).database)
    header = read_header(database)
    if header is None or header.version < len(MIGRATIONS) or list(_exposed(database)):
        yield None
        return
    # Not through the place: that would take over the jobs of another program on the way.
    with JobStore(database) as store:
        yield store


def _check_folder(paths: StatePaths) -> Iterator[Finding]:
    folder = Path(paths.database).parent
    if not paths.folder_is_ours or not os.path.lexists(folder):
        return
    elsewhere = "set TAO_SDK_STATE_DIR to a folder of your own"
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        yield problem("folder", f"{folder} is a symbolic link", elsewhere)
    elif not stat.S_ISDIR(found.st_mode):
        yield problem("folder", f"{folder} is not a folder", "move it away")
    elif found.st_uid != os.geteuid():
        yield problem("folder", f"{folder} belongs to another user", elsewhere)
    elif found.st_mode & _FOR_OTHERS:
        yield problem("folder", f"others may look into {folder}", f"chmod 700 {folder}")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield problem("folder", f"{folder} cannot be written to", f"chmod 700 {folder}")
    else:
        yield Finding("folder", f"{folder} is private")


def _check_privacy(database: Path) -> Iterator[Finding]:
    for path in _exposed(database):
        yield problem("files", f"others may read {path}", f"chmod 600 {path}")


def _exposed(database: Path) -> Iterator[Path]:
    """The store's files that others may read."""
    for path in sorted(database.parent.glob(f"{database.name}*")):
        if path.lstat().st_mode & _FOR_OTHERS:
            yield path


def _check_jobs(store: JobStore, *, watched: bool) -> Iterator[Finding]:
    counts = _count(store)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    yield Finding("jobs", f"{counts.total()} ({states})" if counts else "none")
    active = store.active_jobs()
    if active and not watched:
        yield note(
            "watching",
            f"no process watches the open jobs ({len(active)}): their states are brought up to "
            "date when a command looks",
            "tao-sdk watch -d",
        )
    for row in active:
        if row["phase"] == "submitting":
            yield note(
                "submission",
                f"whether {row['backend_type']} has job {row['job_id']} is not settled "
                f"(submitted {row['created_at']})",
                f"tao-sdk status {short_id(row['job_id'])}",
            )


def _count(store: JobStore) -> Counter[str]:
    """Jobs by state."""
    return Counter(str(row["status"]) for page in store.job_pages() for row in page)
