"""Notes: small JSON files that processes leave for each other, and for the next attempt."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from typing import Any

# Characters of a note of another user, who may have left anything.
_MOST_OF_OTHERS = 1 << 20
# Not there, not readable, or not a file of ours: a link, a pipe, a device.
_NO_NOTE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO)


def read_note(path: str, *, ours: bool = False) -> dict[str, Any]:
    """What it says; nothing where there is none, or none that could be read (yet).

    `ours`: a note of another user says nothing, except root's. On shared storage anybody can leave
    one.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in _NO_NOTE:
            raise
        return {}
    found = os.fstat(descriptor)
    is_foreign = found.st_uid not in (0, os.geteuid())
    if not stat.S_ISREG(found.st_mode) or (ours and is_foreign):
        os.close(descriptor)
        return {}
    with open(descriptor, encoding="utf-8") as file:
        try:
            note = json.loads(file.read(_MOST_OF_OTHERS if is_foreign else -1))
        except (ValueError, RecursionError):
            return {}
    return note if isinstance(note, dict) else {}


def write_note(path: str, note: Mapping[str, Any]) -> None:
    """Leave it, whole at once."""
    draft = f"{path}.{os.urandom(4).hex()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(json.dumps(note))  # `json.dump` is many times slower
    os.replace(draft, path)
