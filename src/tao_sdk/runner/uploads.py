"""Where results are sent: an object store, or a folder of the mount."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .errors import RunnerError
from .uris import local_path, scheme_of

if TYPE_CHECKING:
    from .report import Stage
    from .s3 import S3


def uploader_for(env: Mapping[str, str]) -> Uploads:
    """The uploader with this environment's credentials."""
    return Uploads(env)


class Uploads:
    """Sends each file to the place that its URI names."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._client: S3 | None = None

    def upload_all(
        self, pairs: Sequence[tuple[str, str]], progress: Stage, *, threads: int
    ) -> list[tuple[str, str]]:
        """Send local files to their URIs; what failed, and why."""
        copies = [pair for pair in pairs if scheme_of(pair[1]) == "file"]
        uploads = [pair for pair in pairs if scheme_of(pair[1]) != "file"]
        failed = [
            (path, reason) for path, uri in copies if (reason := _copied(path, uri, progress))
        ]
        if uploads:
            failed += self._s3.upload_all(uploads, progress, threads=threads)
        return failed

    def put_bytes(self, uri: str, data: bytes) -> None:
        self._s3.put_bytes(uri, data)

    @property
    def _s3(self) -> S3:
        from .s3 import S3

        if self._client is None:
            self._client = S3.from_environment(self._env)
        return self._client


def _copied(path: str, uri: str, progress: Stage) -> str:
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
