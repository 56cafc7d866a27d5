"""A folder of an S3 store: what is in it, and bringing objects of it here.

With the code that stages data in containers: many objects at once, large ones in pieces, none
under its name before it is whole, and what a killed process has fetched of a large one is not
fetched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import StorageError
from tao_sdk.runner.context import read_number
from tao_sdk.runner.download import download_all
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.parallel import Progress
from tao_sdk.runner.remote import RemoteFile
from tao_sdk.runner.s3 import Place, parse_uri
from tao_sdk.runner.s3.listing import Item, is_md5, pages, remote_file
from tao_sdk.runner.s3.store import Store
from tao_sdk.storage.client_errors import errors_of_the_client


class StoredObject(NamedTuple):
    """An object below the folder, as it was when somebody looked."""

    key: str
    """What follows the folder in its name: any text at all."""
    size: int
    etag: str
    mtime_ns: int

    @property
    def md5(self) -> str:
        """Of its content, as far as the store tells; "" where it does not."""
        return self.etag if is_md5(self.etag) else ""


class S3Folder:
    """The objects whose names begin with a URI and a slash."""

    def __init__(self, uri: str) -> None:
        environment = settings.staging_environment()
        with errors_of_the_client(uri):
            place = parse_uri(uri.rstrip("/") + "/")
            self._threads = max(1, int(read_number(environment, "TAO_TRANSFER_THREADS", 64)))
        self._bucket, self._prefix = place.bucket, place.key
        self._store = Store(environment)
        self.uri = place.uri.rstrip("/")

    def objects(self) -> list[StoredObject]:
        """All that is there, in the order of the names."""
        with errors_of_the_client(self.uri):
            found = pages(self._store, Place(self._bucket, self._prefix))
            return [self._stored(item) for items, _ in found for item in items]

    def look(self, key: str) -> StoredObject | None:
        """An object as it is now; None when it is gone."""
        name = self._prefix + key
        with errors_of_the_client(self.uri):
            # Of all names that begin with a name, that name is the first.
            items, _ = next(pages(self._store, Place(self._bucket, name), most=1))
            return self._stored(items[0]) if items and items[0].key == name else None

    def download(
        self, wanted: Sequence[tuple[StoredObject, Path]], progress: Progress
    ) -> list[StoredObject]:
        """Bring objects to files. Returns those that are not the same any more, or gone.

        Raises when one cannot be brought for another reason: the others could not be, either.
        """
        try:
            self._download(wanted, progress)
        except RunnerError:
            # Which one was it? The files that are whole are there.
            return [each for each, path in wanted if not self._is_here(each, path, progress)]
        return []

    def _is_here(self, wanted: StoredObject, path: Path, progress: Progress) -> bool:
        if path.exists():
            return True
        try:
            self._download([(wanted, path)], progress)
        except RunnerError as error:
            if isinstance(error.__cause__, OSError):  # the trouble is at this end
                raise error.__cause__ from None
            if self.look(wanted.key) != wanted:
                return False
            with errors_of_the_client(self.uri):
                raise
        return True

    def _download(self, wanted: Sequence[tuple[StoredObject, Path]], progress: Progress) -> None:
        pairs = [(self._remote(each), str(path)) for each, path in wanted]
        download_all(pairs, progress, threads=self._threads)

    def _remote(self, wanted: StoredObject) -> RemoteFile:
        item = Item(self._prefix + wanted.key, wanted.size, wanted.etag)
        return remote_file(self._store, self._bucket, item, wanted.key)

    def _stored(self, item: Item) -> StoredObject:
        key = item.key[len(self._prefix) :]
        return StoredObject(key, item.size, item.etag, self._time_of(item))

    def _time_of(self, item: Item) -> int:
        """When it was stored, in nanoseconds."""
        try:
            moment = datetime.fromisoformat(item.modified.replace("Z", "+00:00"))
        except ValueError:
            raise StorageError(
                f"{self.uri}: the store does not tell when {item.key} was stored "
                f"({item.modified!r})"
            ) from None
        return round(moment.timestamp() * 1_000_000) * 1_000
