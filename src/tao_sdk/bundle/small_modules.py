"""The modules of the runner as they travel, made once and then read from a file.

Making them takes a good part of a second, which every command would pay. A wheel brings the file
along; in a checkout, or where it does not fit the sources, there is one in the user's cache
folder. What it says runs in the user's jobs, so it is believed only if nobody else could have
written it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tao_sdk import runner, settings
from tao_sdk.atomic_files import write_private
from tao_sdk.errors import ValidationError

LOADER = "loading"
START = "start"
"""The function of the loader that the command calls."""

PACKAGED_FILE = Path(__file__).with_name("small_modules.json")
"""Written when a wheel is built."""

_log = logging.getLogger(__name__)
_PRIVATE_FOLDER = 0o700
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class SmallModule(NamedTuple):
    """A module as it travels."""

    source: str
    imports: tuple[str, ...]
    """The runner's modules that it imports when it is loaded."""


def load() -> Mapping[str, SmallModule]:
    """Every module of the runner."""
    digest = _digest_of_sources()
    packaged = _read(PACKAGED_FILE, digest)
    if packaged is not None:
        return packaged
    kept = cache_file()
    cached = _read(kept, digest) if kept and _is_ours_alone(kept) else None
    if cached is not None:
        return cached
    from tao_sdk.bundle.preparation import prepare

    modules = prepare()
    if kept:
        _keep(kept, as_text(modules))
    return modules


def as_text(modules: Mapping[str, SmallModule]) -> str:
    """What the file holds; nothing in it depends on when or where it is made."""
    return json.dumps({"digest": _digest_of_sources(), "modules": modules}, sort_keys=True)


def cache_file() -> Path | None:
    """Where this user keeps it; None without a home."""
    try:
        folder = Path(settings.process_environment().get("XDG_CACHE_HOME") or "~/.cache")
        return settings.expanded(folder).absolute() / "tao-sdk" / PACKAGED_FILE.name
    except ValidationError:  # no home is known
        return None


def _digest_of_sources() -> str:
    """Of what is made small, and of the programs that do it."""
    digest = hashlib.sha256()
    for folder in (Path(runner.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def _read(path: Path, digest: str) -> dict[str, SmallModule] | None:
    """None where there is no such file, or it is of other sources, or damaged."""
    try:
        found = json.loads(path.read_bytes())
        if found["digest"] != digest:
            return None
        return {
            name: SmallModule(source, tuple(imports))
            for name, (source, imports) in found["modules"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _is_ours_alone(path: Path) -> bool:
    """Whether nobody but this user can have written a file of a folder."""
    try:
        folder, file = path.parent.lstat(), path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(folder.st_mode)
        and stat.S_ISREG(file.st_mode)
        and folder.st_uid == file.st_uid == os.geteuid()
        and not (folder.st_mode | file.st_mode) & _OTHERS_MAY_WRITE
    )


def _keep(path: Path, text: str) -> None:
    """For the next process. Where that is not possible it takes the same time again, no more."""
    try:
        path.parent.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
        write_private(path, text)
    except OSError as error:
        _log.debug("the runner's small modules cannot be kept in %s: %s", path, error)
