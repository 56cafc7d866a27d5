"""Results that are copied to a folder of the mount."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from .errors import RunnerError
from .uris import local_path

if TYPE_CHECKING:
    from .report import Stage


def copied(path: str, uri: str, progress: Stage) -> str:
    """Copy a file to the mount, whole or not at all; the reason when it could not be."""
    target = local_path(uri)
    folder, name = os.path.split(target)
    draft = os.path.join(folder, f".{name[:40]}.{os.urandom(4).hex()}.tao-part")
    try:
        os.makedirs(folder, exist_ok=True)
        before = os.stat(path)
        shutil.copy2(path, draft)
        after = os.stat(path)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise RunnerError("it changed while it was copied")
        os.replace(draft, target)
    except (OSError, RunnerError) as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        return str(error)
    progress.add(before.st_size)
    progress.file_done()
    return ""
