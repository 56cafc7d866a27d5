"""Where results are sent: an object store, or a folder of the mount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .uris import scheme_of

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
        failed, uploads = [], []
        for path, uri in pairs:
            if scheme_of(uri) != "file":
                uploads.append((path, uri))
                continue
            from .copies import copied

            reason = copied(path, uri, progress)
            if reason:
                failed.append((path, reason))
        if uploads:
            failed += self._s3.upload_all(uploads, progress, threads=threads)
        return failed

    def put_bytes(self, uri: str, data: bytes) -> None:
        self._s3.put_bytes(uri, data)

    def give_up(self) -> None:
        """There is no more time: leave nothing unfinished in the store."""
        if self._client:
            self._client.give_up()

    @property
    def _s3(self) -> S3:
        from .s3 import S3

        if self._client is None:
            self._client = S3.from_environment(self._env)
        return self._client
