"""What only the client asks of an S3 store, and so does not travel with jobs."""

from __future__ import annotations

from tao_sdk.runner.errors import NotFoundError
from tao_sdk.runner.s3 import parse_uri
from tao_sdk.runner.s3.listing import pages
from tao_sdk.runner.s3.store import Store


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
