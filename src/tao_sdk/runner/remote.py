"""What every source of data says about its files, so that one downloader serves them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Request(NamedTuple):
    """One HTTP request, ready to be sent: signed, with its credentials in the headers."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class RemoteFile(NamedTuple):
    """One file of a source."""

    path: str
    """Its place below the URI, with forward slashes; the base name where the URI is the file."""
    size: int
    """In bytes; -1 where the store does not say."""
    fingerprint: str
    """Changes whenever the content does (an ETag, a commit and path); "" when unknown."""
    checksum: str
    """`md5:<hex>`, `sha256:<hex>`, `crc32:<hex>` of the whole content; "" where there is none."""
    uri: str
    """How a message names it; no credential in it."""
    request: Callable[[], Request]
    """A fresh request for the content. A `Range` header may be added without breaking it.

    Called for every attempt, because signatures and redirected addresses expire.
    """


class Listing(NamedTuple):
    """What a URI stands for."""

    uri: str
    is_folder: bool
    files: tuple[RemoteFile, ...]
    """Everything below a folder, or the one file."""
    folders: tuple[str, ...] = ()
    """Folders that hold no file, where the store knows of such."""
