"""Private files that are replaced whole or not at all.

A reader sees the old content or the new one, never a part, whatever happens to the writer.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

__all__ = ["write_private", "write_private_json"]


def write_private(path: str | Path, content: str | bytes) -> None:
    """Replace a file's content in one step; only the owner may read it (0600)."""
    target = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    # In the target's own folder, since a rename is atomic only within one file system. mkstemp
    # creates the file with mode 0600 and refuses to follow a link laid in its way.
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".writing-")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink()
        raise
    _sync_folder(target.parent)


def write_private_json(path: str | Path, value: object) -> None:
    """`write_private` of a value as JSON with sorted keys, indented by two."""
    write_private(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
