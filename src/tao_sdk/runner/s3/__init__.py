"""S3 and what speaks like it, on the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import NotFoundError
from ..remote import Listing
from .addresses import Place, parse_uri
from .listing import find, pages
from .store import Store

if TYPE_CHECKING:
    from ..parallel import Progress

__all__ = ["S3", "Place", "parse_uri"]


class S3:
    """The objects of a store, by their URIs. Asks nobody before the first call."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> S3:
        """The store that AWS_*, ACCESS_KEY, SECRET_KEY, S3_ENDPOINT_URL and CLOUD_REGION name."""
        return cls(Store(env))

    def listing(self, uri: str, want: str = "") -> Listing:
        """What a URI stands for: see `listing.find`."""
        return find(self._store, uri, want)

    def upload_all(
        self, pairs: Sequence[tuple[str, str]], progress: Progress, *, threads: int
    ) -> list[tuple[str, str]]:
        """Bring (path, URI) pairs to the store. Returns those that failed, as (path, reason)."""
        from .upload import upload_all

        return upload_all(self._store, pairs, progress, threads)

    def put_bytes(self, uri: str, data: bytes) -> None:
        from .upload import put_bytes

        put_bytes(self._store, parse_uri(uri), data)

    def delete(self, uri: str) -> None:
        """Remove an object. It is no error if there is none."""
        self._store.call("DELETE", parse_uri(uri))

    def exists(self, uri: str) -> bool:
        """Whether there is an object of this name, or anything below it."""
        place = parse_uri(uri)
        try:
            if place.key and not place.key.endswith("/"):
                self._store.call("HEAD", place)
                return True
        except NotFoundError:
            place = place._replace(key=place.key + "/")
        items, _ = next(pages(self._store, place, most=1))
        return bool(items)

    def list_names(self, uri: str) -> list[str]:
        """What is directly below a folder: names, those of folders with a slash at the end."""
        place = parse_uri(uri)
        prefix = place.key if place.key.endswith("/") or not place.key else place.key + "/"
        names: set[str] = set()
        for items, folders in pages(self._store, place._replace(key=prefix), "/"):
            names.update(item.key[len(prefix) :] for item in items)
            names.update(folder[len(prefix) :] for folder in folders)
        return sorted(names - {""})

    def close(self) -> None:
        self._store.client.close()
