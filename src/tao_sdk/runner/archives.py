"""Unpack tar and zip archives: in one pass, never outside their folder, all or nothing.

Modes (less set-id bits and writing by others), times and links are kept. A member that would be
written, or point, outside stops the extraction; devices and pipes are left out with a warning.
Links are made last, so nothing is written through one. Their targets are normalised ("a/../b" to
"b"): only leading ".." can go up, so that links which stay inside stay there, whatever is unpacked
beside them later. What comes out is bounded by the free disk space only.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .archive_members import COPY_BYTES, LONGEST_LINK, Member, tar_members, zip_members
from .errors import RunnerError
from .notes import read_note, write_note
from .site_packages import importable
from .uris import ARCHIVE_SUFFIX, MOST_STEPS

_MARKER_SUFFIX = ".tao-extracted"
_WORKSHOP_SUFFIX = ".tao-extract"
# A folder's time does not tell whether a process still unpacks below it; after a day none does.
_STALE_SECONDS = 86_400.0
# A member of this size or more is compared with the free disk space before it is written.
_LARGE_BYTES = 64 << 20
# Links and folders are kept in memory until the end: about a million links of short names.
_MOST_KEPT_BYTES = 256 << 20
_LINK_BYTES, _FOLDER_BYTES = 120, 400  # beside their names


def extracted_folder(path: str, digest: str, *, into_parent: bool = False) -> str | None:
    """Where an archive of this digest lies unpacked, or None. The archive itself may be gone."""
    folder = result_folder(path, into_parent)
    whole = digest and read_note(_marker(path), ours=True).get("digest") == digest
    return folder if whole and os.path.isdir(folder) and os.listdir(folder) else None


def extract_beside(
    path: str,
    digest: str,
    *,
    keep: bool,
    into_parent: bool = False,
    shared: bool = True,
    say: Callable[[str], None],
) -> str:
    """Unpack an archive into `<its name without suffix>/` beside it; returns that folder.

    With `into_parent` the members go right into the archive's own folder. The digest stands for
    the archive's content: if the same was unpacked before, nothing is done, and if another was,
    this one takes its place. The archive is deleted afterwards unless it is to be kept. Where
    the folder is shared, other processes may unpack the same now: the first one to finish puts it
    into its place.
    """
    folder = result_folder(path, into_parent)

    def is_there() -> bool:
        return extracted_folder(path, digest, into_parent=into_parent) is not None

    if not is_there():
        marker = _marker(path)
        replace = not into_parent and _is_ours_alone(marker, folder)
        made = replace or not os.path.lexists(folder)
        before = read_note(marker, ours=True)
        if before:
            # It no longer proves anything, but still marks the folder as ours.
            write_note(marker, {**before, "digest": ""})
        _sweep(
            path,
            folder if into_parent else os.path.dirname(folder),
            _STALE_SECONDS if shared else 0,
        )
        extract(path, folder, into_parent=into_parent, replace=replace, unless=is_there, say=say)
        write_note(marker, {"digest": digest, "folder": folder, "made": made})
    if not keep and os.path.exists(path):
        os.remove(path)
    return folder


def extract(
    path: str,
    folder: str,
    *,
    into_parent: bool = False,
    replace: bool = False,
    unless: Callable[[], bool] = bool,
    say: Callable[[str], None],
) -> None:
    """Unpack an archive as a folder, which appears when it is whole.

    A top folder named as the archive, if it holds every member, is left out, except with
    `into_parent`. What is in the folder already stays, unless it is to be replaced. Nothing
    appears if, in the end, `unless` holds.
    """
    folder = os.path.abspath(folder)
    # On the same file system, so that what is whole can be renamed into place.
    beside = folder if into_parent else os.path.dirname(folder)
    name = f".{os.path.basename(path)}.{os.urandom(4).hex()}{_WORKSHOP_SUFFIX}"
    workshop = os.path.join(beside, name)
    with _blamed_on(path):
        os.makedirs(workshop, 0o700)
        try:
            stem = None if into_parent else _stem(path)
            content = _unpack(path, os.path.join(workshop, "new"), stem, say)
            if unless():
                return
            if replace:
                with suppress(FileNotFoundError):
                    os.rename(folder, os.path.join(workshop, "old"))
            _merge(path, content, folder)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


# -- the folder and its marker


def _stem(path: str) -> str:
    return ARCHIVE_SUFFIX.sub("", os.path.basename(path))


def result_folder(path: str, into_parent: bool = False) -> str:
    """Where what is in an archive goes."""
    parent = os.path.dirname(os.path.abspath(path))
    return parent if into_parent else os.path.join(parent, _stem(path))


def _marker(path: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}{_MARKER_SUFFIX}")


def _sweep(path: str, folder: str, older_than: float) -> None:
    """Remove what killed processes left when they unpacked this archive."""
    left = re.compile(rf"\.{re.escape(os.path.basename(path))}\.[0-9a-f]{{8}}{_WORKSHOP_SUFFIX}")
    for name in filter(left.fullmatch, os.listdir(folder)):
        workshop = os.path.join(folder, name)
        with suppress(FileNotFoundError):
            if os.stat(workshop).st_mtime <= time.time() - older_than:
                shutil.rmtree(workshop, ignore_errors=True)


def _is_ours_alone(marker: str, folder: str) -> bool:
    """Whether all that is in the folder came out of an earlier version of this archive."""
    if not read_note(marker, ours=True).get("made"):
        return False
    beside = os.path.dirname(marker)
    markers = [os.path.join(beside, n) for n in os.listdir(beside) if n.endswith(_MARKER_SUFFIX)]
    return [m for m in markers if read_note(m).get("folder") == folder] == [marker]


def _merge(archive: str, source: str, target: str) -> None:
    """Move a file or folder to its place; folders that are there already take in what is new."""
    exists = os.path.lexists(target)
    into_folder = os.path.isdir(target) and not os.path.islink(target)
    is_folder = os.path.isdir(source) and not os.path.islink(source)
    if exists and (into_folder != is_folder or target == os.path.abspath(archive)):
        raise RunnerError(f"archive {archive}: {target} is in the way; move one of them")
    if exists and is_folder:
        for name in os.listdir(source):
            _merge(archive, os.path.join(source, name), os.path.join(target, name))
        return
    try:
        os.replace(source, target)
    except OSError as error:
        # Another process has just put the same folder there.
        if exists or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _merge(archive, source, target)


# -- unpacking


def _unpack(path: str, root: str, stem: str | None, say: Callable[[str], None]) -> str:
    """Unpack into a new folder; returns it, or its only folder if that is named `stem`."""
    os.mkdir(root)
    tree = _Tree(path, root, say)
    with open(path, "rb") as file:
        members = zip_members if file.peek(2).startswith(b"PK") else tar_members
        for member in members(file, path):
            tree.add(member)
    return tree.finish(stem)


class _Tree:
    """What has been unpacked so far. As long as it grows, there are no symbolic links in it."""

    def __init__(self, archive: str, root: str, say: Callable[[str], None]) -> None:
        self._archive = archive
        self._root = root
        self._say = say
        self._made: set[tuple[str, ...]] = {()}
        self._folders: dict[tuple[str, ...], Member] = {}
        self._links: dict[str, str] = {}
        """Paths and what they point to: not in parts, of which each takes 50 bytes."""
        self._kept = 0

    def add(self, member: Member) -> None:
        place = self._place(member, member.name)
        if not place:
            return
        self._make_folder(place[:-1], member)
        if member.kind == "folder":
            self._make_folder(place, member)
            self._keep(_FOLDER_BYTES, member.name)
            self._folders[place] = member
            return
        if place in self._made:
            raise self._refusal(member.name, "is a folder and a file")
        if member.kind == "file":
            self._make_room(place)
            self._write(place, member)
        elif member.kind == "symlink":
            if len(member.target) > LONGEST_LINK:
                raise self._refusal(member.name, f"is a link of {len(member.target):,} characters")
            self._make_room(place)
            self._keep_link(place, member.target)
        elif member.kind == "hard link":
            self._link(place, member)
        else:
            self._say(f"archive {self._archive}: {member.kind} {member.name!r} is left out")

    def finish(self, stem: str | None) -> str:
        """Make the links, set folders' modes and times; returns the folder of all content."""
        tops = {*os.listdir(self._root), *(path.split("/")[0] for path in self._links)}
        top = (stem,) if stem and tops == {stem} and (stem,) in self._made else ()
        for path, link in self._links.items():
            target = os.path.normpath(link) if link else "/"
            climbs = target.split("/").count("..")
            if target.startswith("/") or climbs > path.count("/") - len(top):
                raise self._refusal(path, f"points outside ({link!r})")
            os.symlink(target, os.path.join(self._root, path))
        for place in sorted(self._folders, key=len, reverse=True):
            # The owner must be able to delete what is inside.
            self._set_mode_and_time(place, self._folders[place], 0o700)
        return self._path(top)

    def _place(self, member: Member, path: str) -> tuple[str, ...]:
        if re.match(r"[/\\]|[A-Za-z]:[/\\]", path):
            raise self._refusal(member.name, f"has an absolute path ({path!r})")
        if ".." in re.split(r"[/\\]", path):
            raise self._refusal(member.name, f"leads outside ({path!r})")
        place = tuple(part for part in path.split("/") if part not in ("", "."))
        if len(place) > MOST_STEPS:
            raise self._refusal(member.name, f"is more than {MOST_STEPS} folders deep")
        return place

    def _refusal(self, name: str, why: str) -> RunnerError:
        return RunnerError(
            f"archive {self._archive}: member {name!r} {why}; nothing was unpacked: "
            "pack it anew, with paths and links that stay inside"
        )

    def _keep(self, size: int, *texts: str) -> None:
        self._kept += size + sum(map(sys.getsizeof, texts))
        if self._kept > _MOST_KEPT_BYTES:
            raise RunnerError(
                f"archive {self._archive}: its folders and links take more than "
                f"{_MOST_KEPT_BYTES >> 20} MiB of memory; nothing was unpacked: pack it as several "
                "archives, or without links"
            )

    def _keep_link(self, place: tuple[str, ...], target: str) -> None:
        path = "/".join(place)
        self._keep(_LINK_BYTES, path, target)
        self._links[path] = target

    def _path(self, place: tuple[str, ...]) -> str:
        return os.path.join(self._root, *place)

    def _make_folder(self, place: tuple[str, ...], member: Member) -> None:
        if place in self._made:
            return
        self._make_folder(place[:-1], member)
        if "/".join(place) in self._links:
            raise self._refusal(member.name, "lies below a link")
        try:
            os.mkdir(self._path(place))
        except FileExistsError:
            raise self._refusal(member.name, "lies below a file") from None
        self._keep(_LINK_BYTES + sys.getsizeof(place), place[-1])
        self._made.add(place)

    def _make_room(self, place: tuple[str, ...]) -> None:
        """The last of several members of one name counts."""
        if self._links.pop("/".join(place), None) is None and os.path.lexists(self._path(place)):
            os.remove(self._path(place))

    def _write(self, place: tuple[str, ...], member: Member) -> None:
        if member.size >= _LARGE_BYTES and member.size > shutil.disk_usage(self._root).free:
            raise self._refusal(
                member.name, f"has {member.size} bytes, more than the disk has free"
            )
        source = member.open()
        with open(self._path(place), "xb") as file:
            if source is not None:
                with source:
                    shutil.copyfileobj(source, file, COPY_BYTES)
            if file.tell() != member.size:
                raise EOFError(f"{member.name!r} ends too early")
        self._set_mode_and_time(place, member, 0o400)

    def _link(self, place: tuple[str, ...], member: Member) -> None:
        target = self._place(member, member.target)
        if target == place:
            return
        pointed = self._links.get("/".join(target))
        if pointed is not None:
            self._make_room(place)
            self._keep_link(place, pointed)
            return
        if not os.path.isfile(self._path(target)):
            raise self._refusal(member.name, f"is a link to {member.target!r}, which is not there")
        self._make_room(place)
        try:
            os.link(self._path(target), self._path(place))
        except OSError:
            # Not every file system has hard links.
            shutil.copy2(self._path(target), self._path(place))

    def _set_mode_and_time(self, place: tuple[str, ...], member: Member, at_least: int) -> None:
        path = self._path(place)
        os.chmod(path, member.mode & 0o755 | at_least)
        if 0 <= member.mtime < 1 << 33:  # an archive may say anything, even "nan"
            os.utime(path, (member.mtime, member.mtime))


@contextmanager
def _blamed_on(path: str) -> Iterator[None]:
    """Turn every failure into an error that names the archive."""
    import tarfile
    import zipfile
    import zlib

    damage = [tarfile.TarError, zipfile.BadZipFile, zlib.error]
    damage += [OSError, EOFError, ValueError, OverflowError, NotImplementedError]
    damage += [RecursionError]  # headers of headers of headers
    lzma = importable("lzma")
    if lzma:
        damage.append(lzma.LZMAError)
    try:
        yield
    except tuple(damage) as error:
        if isinstance(error, OSError) and error.errno:
            raise RunnerError(f"archive {path} could not be unpacked: {error}") from error
        raise RunnerError(
            f"archive {path} is damaged, cut short or of an unknown kind ({error}); upload it again"
        ) from error
    except ImportError as error:
        raise RunnerError(f"archive {path} cannot be unpacked here: {error}") from error
