"""What only the client asks of an S3 store, and so does not travel with jobs."""

from __future__ import annotations

from typing import NamedTuple

from tao_sdk.runner.errors import NotFoundError
from tao_sdk.runner.s3 import Place, parse_uri
from tao_sdk.runner.s3.listing import pages
from tao_sdk.runner.s3.store import Store


class Found(NamedTuple):
    """An object, or a folder of which at least one object can be read."""

    is_folder: bool
    size: int = 0
    """Of the object."""


def look(store: Store, uri: str) -> Found | None:
    """What there is; raises when it may not be read."""
    place = parse_uri(uri)
    if place.key and not place.key.endswith("/"):
        try:
            answer = store.call("HEAD", place)
            return Found(is_folder=False, size=int(answer.headers.get("content-length") or 0))
        except NotFoundError:
            place = place._replace(key=place.key + "/")
    items, _ = next(pages(store, place, most=1))
    if not items:
        return None
    # Keys that may list need not be keys that may read.
    store.call("HEAD", Place(place.bucket, items[0].key))
    return Found(is_folder=True)


def exists(store: Store, uri: str) -> bool:
    """Whether there is an object of this name, or anything below it."""
    place = parse_uri(uri)
    try:
        if place.key and not place.key.endswith("/"):
            store.call("HEAD", place)
            return True
    except NotFoundError:
        place = place._replace(key=place.key + "/")
    items, _ = next(pages(store, place, most=1))
    return bool(items)


def list_names(store: Store, uri: str) -> list[str]:
    """What is directly below a folder: names, those of folders with a slash at the end."""
    place = parse_uri(uri)
    prefix = place.key if place.key.endswith("/") or not place.key else place.key + "/"
    names: set[str] = set()
    for items, folders in pages(store, place._replace(key=prefix), "/"):
        names.update(item.key[len(prefix) :] for item in items)
        names.update(folder[len(prefix) :] for folder in folders)
    return sorted(names - {""})


def delete(store: Store, uri: str) -> None:
    """Remove an object. It is no error if there is none."""
    store.call("DELETE", parse_uri(uri))
