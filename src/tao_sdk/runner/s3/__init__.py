"""S3 and what speaks like it, on the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..remote import Listing
from .addresses import Place, parse_uri
from .listing import find
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

    def give_up(self) -> None:
        """End uploads where they are, and remove what there is of those in parts."""
        from .upload import give_up

        give_up(self._store)

    def close(self) -> None:
        self._store.client.close()
