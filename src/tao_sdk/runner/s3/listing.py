"""What is in a bucket: objects below a prefix, as files and folders."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_plus

from ..errors import CredentialError, NotFoundError, TransferError
from ..http import Answer
from ..remote import Listing, RemoteFile, Request
from .addresses import Place, parse_uri
from .store import Store

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MD5 = re.compile("[0-9a-f]{32}")


class Item(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    etag: str
    modified: str = ""
    """When, as the store writes it."""


def find(store: Store, uri: str, want: str = "") -> Listing:
    """What a URI stands for.

    With a trailing slash it is the folder. Otherwise it is the object of exactly this name if there
    is one, else the folder; an empty object beside a folder of the same name only marks the folder.
    `want` ("file" or "folder") decides where the store has both, and only there: metadata calls
    folders of images a file, and archives a folder. Slashes that are doubled by mistake are
    forgiven: if nothing has the key as it is written, the one with single slashes is looked for.

    A folder that exists only as a marker (an empty object `folder/`) is an empty folder.
    """
    place = parse_uri(uri)
    tidy = place._replace(key=re.sub("/+", "/", place.key).lstrip("/"))
    for candidate in dict.fromkeys((place, tidy)):
        found = _look(store, candidate, want)
        if found:
            return found
    what = "folder" if place.key.endswith("/") else "object or folder"
    raise NotFoundError(f"{uri}: there is no such {what}; check the name and S3_ENDPOINT_URL")


def _look(store: Store, place: Place, want: str) -> Listing | None:
    if not place.key or place.key.endswith("/"):
        return _folder(store, place)
    single = None if want == "folder" else _single(store, place)
    if single and (want == "file" or single.files[0].size):
        return single
    try:
        folder = _folder(store, place)
        denied = None
    except CredentialError as error:
        folder, denied = None, error
    # Who may not list may still be allowed to read.
    found = folder or single or (_single(store, place) if want == "folder" else None)
    if denied and not found:
        raise denied
    return found


def _single(store: Store, place: Place) -> Listing | None:
    answer = store.ask("HEAD", place)
    # Stores that keep objects as files say 400 to a name that no file can have.
    if answer.status == 404 or (answer.status == 400 and "//" in place.key):
        return None
    if answer.status >= 300:
        raise answer.error(place.uri)
    size = answer.headers.get("content-length", "")
    if not size.isdecimal():
        raise TransferError(f"{place.uri}: the store does not tell its size")
    item = Item(place.key, int(size), _tag(answer.headers.get("etag", "")))
    file = remote_file(store, place.bucket, item, place.key.rpartition("/")[2])
    return Listing(place.uri, False, (file,))


def _folder(store: Store, place: Place) -> Listing | None:
    prefix = place.key if place.key.endswith("/") or not place.key else place.key + "/"
    items = [item for page, _ in pages(store, Place(place.bucket, prefix)) for item in page]
    if not items:
        return None
    files, folders = as_tree(items, prefix, f"s3://{place.bucket}/")
    remote = [remote_file(store, place.bucket, item, path) for path, item in files.items()]
    return Listing(place.uri, True, tuple(remote), tuple(folders))


def pages(
    store: Store, place: Place, delimiter: str = "", most: int = 1000
) -> Iterator[tuple[list[Item], list[str]]]:
    """Objects and, with a delimiter, common prefixes: page by page, in the order of the keys."""
    query = {"list-type": "2", "prefix": place.key, "encoding-type": "url", "max-keys": str(most)}
    if delimiter:
        query["delimiter"] = delimiter
    tokens, whole = {""}, Place(place.bucket, "")
    while True:
        sent = store.client.send_ahead(store.request("GET", whole, query))
        _load_ahead()
        answer = store.call("GET", whole, query, sent=sent)
        items, prefixes, token = _parse_page(answer, place.uri)
        yield items, prefixes
        if token is None:
            return
        if token in tokens:  # what was listed is not all, and must not pass for it
            raise TransferError(f"{place.uri}: the store's listing does not say how it goes on")
        tokens.add(token)
        query["continuation-token"] = token


def _load_ahead() -> None:
    """While the answer is on its way, load what will be needed when it is here."""
    from xml.etree import ElementTree  # noqa: F401 - loaded ahead, used later

    with contextlib.suppress(ImportError):  # it travels with those only who fetch something
        from .. import download  # noqa: F401 - loaded ahead, used later


def _parse_page(answer: Answer, uri: str) -> tuple[list[Item], list[str], str | None]:
    """Objects, common prefixes, and the token of the next page; None after the last."""
    from xml.etree import ElementTree

    try:
        # No entities from outside: expat does not fetch any, and limits those within.
        return _read_page(ElementTree.fromstring(answer.body))  # noqa: S314 - the store's own answer
    except ElementTree.ParseError as error:
        raise TransferError(f"{uri}: the store's listing is not XML ({error})") from error
    except (KeyError, ValueError) as error:
        raise TransferError(f"{uri}: the store's listing lacks {error}") from error


def _read_page(page: Element) -> tuple[list[Item], list[str], str | None]:
    items, prefixes, fields = [], [], {}
    for element in page:
        name = element.tag.rpartition("}")[2]
        below = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
        if name == "Contents":
            tag, time = _tag(below.get("ETag", "")), below.get("LastModified", "")
            items.append(Item(below["Key"], int(below["Size"]), tag, time))
        elif name == "CommonPrefixes":
            prefixes.append(below["Prefix"])
        else:
            fields[name] = element.text or ""
    if fields.get("EncodingType") == "url":
        items = [item._replace(key=unquote_plus(item.key)) for item in items]
        prefixes = [unquote_plus(prefix) for prefix in prefixes]
    is_truncated = fields.get("IsTruncated", "").strip() == "true"
    return items, prefixes, fields.get("NextContinuationToken", "") if is_truncated else None


def as_tree(items: Iterable[Item], prefix: str, base: str) -> tuple[dict[str, Item], list[str]]:
    """Files by their path below the prefix, and folders without files.

    Keys are just text; a file system is a tree. Empty and `.` steps of a path are left out. What
    cannot be in a tree beside the others, or would lie outside, is refused by name.
    """
    files: dict[str, Item] = {}
    markers: set[str] = set()
    for item in items:
        steps = [step for step in item.key[len(prefix) :].split("/") if step not in ("", ".")]
        path = "/".join(steps)
        if ".." in steps or "\0" in path:
            raise TransferError(f"{base}{item.key}: leads out of the folder; rename the object")
        if item.key.endswith("/") or not steps:
            if item.size:
                raise TransferError(
                    f"{base}{item.key}: has content but the name of a folder; rename the object"
                )
            markers.add(path)
        elif path in files:
            raise TransferError(
                f"{base}{item.key} and {base}{files[path].key} are the same file on a disk; "
                "rename one of them"
            )
        else:
            files[path] = item
    parents = _parents(files)
    for path in parents.intersection(files):
        if files[path].size:
            raise TransferError(
                f"{base}{files[path].key} is an object and has objects below it, which no disk "
                "can hold; rename it, or name the part that you need"
            )
        del files[path]
    return files, sorted(markers - parents - {""} - set(files))


def _parents(paths: Iterable[str]) -> set[str]:
    parents: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in parents:
            parents.add(parent)
            parent = parent.rpartition("/")[0]
    return parents


def remote_file(store: Store, bucket: str, item: Item, path: str) -> RemoteFile:
    """An object as something to download."""
    place = Place(bucket, item.key)
    checksum = f"md5:{item.etag}" if is_md5(item.etag) else ""
    request = partial(_get, store, place, item.etag)
    return RemoteFile(path, item.size, item.etag, checksum, place.uri, request)


def _get(store: Store, place: Place, etag: str) -> Request:
    headers = {"If-Match": f'"{etag}"'} if etag else {}
    if not is_md5(etag):
        headers["x-amz-checksum-mode"] = "ENABLED"
    return store.request("GET", place, headers=headers)


def is_md5(etag: str) -> bool:
    """Whether a tag has the form of an MD5; those of objects made of parts have not."""
    return _MD5.fullmatch(etag) is not None


def _tag(etag: str) -> str:
    return etag.strip().strip('"')
