"""Where the system's OpenSSH keeps authenticated sessions that processes of one user share."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tao_sdk import settings
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
    """A private folder whose path is short enough for sockets in it.

    Another user can make a folder of that name in the one for temporary files; then the session's
    runtime folder serves, or the state folder. Both are private.
    """
    flaws = []
    for folder in _candidates():
        if len(os.fsencode(folder)) > _LONGEST_FOLDER:
            flaws.append(f"{folder} is too long for the path of a socket")
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError as error:
            flaws.append(f"{folder}: {error.strerror}")
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o77:
            return folder
        flaws.append(f"{folder} is not a folder that only you can use")
    raise BackendUnreachableError(
        f"no folder for the sessions of ssh: {'; '.join(flaws)}. Set TMPDIR to a private folder "
        "with a short path"
    )


def _candidates() -> Iterator[Path]:
    name = f"tao-ssh-{os.getuid()}"
    yield Path(tempfile.gettempdir()) / name
    yield Path("/tmp") / name  # noqa: S108 - made private, and not used if it is not ours
    if runtime := settings.process_environment().get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / name
    yield settings.expanded(settings.get("TAO_SDK_STATE_DIR")) / "ssh"
