"""Where the system's OpenSSH keeps authenticated sessions that processes of one user share."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from tao_sdk.errors import BackendUnreachableError


def control_path(folder: Path | str, name: str) -> str:
    """The value of ssh's ControlPath for sessions of this folder.

    Quoted and escaped, because ssh takes an option apart like a line of its configuration.
    """
    return f'"{str(folder).replace("%", "%%")}/{name}"'


# A unix socket's path has at most 107 bytes; ssh's own name in it has 49 and, while it is being
# made, 17 more.
_LONGEST_FOLDER = 107 - 17 - 49 - 1


def control_folder() -> Path:
    """A private folder whose path is short enough for sockets in it."""
    name = f"tao-ssh-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        folder = Path("/tmp") / name  # noqa: S108 - made private, and refused if it is not ours
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise BackendUnreachableError(f"{folder} must be a folder that only you can use: remove it")
    return folder
