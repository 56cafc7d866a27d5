"""URIs of stores and registries, seen from the client.

Uses the very code that stages data in containers, so what is found here will be found there. "It
is not there" is an answer; "it could not be asked" is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tao_sdk import settings
from tao_sdk.errors import StorageError
from tao_sdk.planning.uris import STAGED_SCHEMES, is_remote, parse_s3
from tao_sdk.runner import errors as runner_errors
from tao_sdk.runner.stage import list_uri
from tao_sdk.runner.uris import scheme_of
from tao_sdk.storage.client_errors import errors_of_the_client

if TYPE_CHECKING:
    from tao_sdk.runner.s3.store import Store
    from tao_sdk.storage.s3_questions import Found

__all__ = [
    "STAGED_SCHEMES",
    "exists",
    "is_remote",
    "list_files",
    "list_names",
    "look",
    "read_file",
    "remove_folder",
]


# For somebody who waits for the answer: a store that is away says so within half a minute.
_QUICK = {"TAO_TRANSFER_ATTEMPTS": "3", "TAO_STALL_SECONDS": "10"}


def exists(uri: str, *, quick: bool = False) -> bool:
    """Is there a file, a folder, a repository of this name? `quick` gives up soon."""
    with errors_of_the_client(uri):
        try:
            if scheme_of(uri) == "s3":
                return _s3_exists(uri)
            list_uri(
                uri,
                {**_QUICK, **settings.staging_environment()}
                if quick
                else settings.staging_environment(),
            )
        except runner_errors.NotFoundError:
            return False
        return True


def look(uri: str) -> Found | None:
    """What an address of an S3 store names, proven to be readable; None for nothing.

    Gives up soon on a store that is away.
    """
    from tao_sdk.runner.s3.store import Store
    from tao_sdk.storage import s3_questions

    store = Store({**_QUICK, **settings.staging_environment()})
    try:
        with errors_of_the_client(uri):
            found = (s3_questions.look(store, spelling) for spelling in _spellings(uri))
            return next(filter(None, found), None)
    finally:
        store.client.close()


def list_names(uri: str) -> list[str]:
    """What is directly below a folder, or the one file itself; folders end with a slash."""
    with errors_of_the_client(uri):
        try:
            if scheme_of(uri) == "s3":
                return _s3_names(uri)
            files = list_uri(uri, settings.staging_environment()).files
        except runner_errors.NotFoundError as error:
            raise StorageError(str(error)) from None
    names = {
        first + ("/" if rest else "") for first, _, rest in (f.path.partition("/") for f in files)
    }
    return sorted(names)


def list_files(uri: str) -> dict[str, int]:
    """Everything below a folder: relative paths and sizes; nothing where there is no folder."""
    with errors_of_the_client(uri):
        try:
            listing = list_uri(uri, settings.staging_environment(), "folder")
        except runner_errors.NotFoundError:
            return {}
    return {file.path: file.size for file in listing.files}


def read_file(uri: str, limit: int) -> bytes | None:
    """The first `limit` bytes of an object of an S3 store; None where there is none."""
    from tao_sdk.runner.s3 import parse_uri

    with errors_of_the_client(uri), _s3() as store:
        answer = store.ask("GET", parse_uri(uri), headers={"Range": f"bytes=0-{limit - 1}"})
        if answer.status == 416:  # an empty object has no first byte
            return b""
        if answer.status >= 300 or answer.code:
            error = answer.error(uri)
            if isinstance(error, runner_errors.NotFoundError):
                return None
            raise error
        return answer.body[:limit]


def remove_folder(uri: str) -> None:
    """Remove everything below a folder of an S3 store, whatever its keys look like."""
    from tao_sdk.runner.s3 import Place, parse_uri
    from tao_sdk.runner.s3.listing import pages
    from tao_sdk.storage.s3_questions import delete

    with errors_of_the_client(uri), _s3() as store:
        folder = parse_uri(f"{uri.rstrip('/')}/")
        found = [item.key for items, _ in pages(store, folder) for item in items]
        for key in found:
            delete(store, Place(folder.bucket, key).uri)


def _s3_exists(uri: str) -> bool:
    from tao_sdk.storage import s3_questions

    with _s3() as store:
        return any(s3_questions.exists(store, spelling) for spelling in _spellings(uri))


def _s3_names(uri: str) -> list[str]:
    from tao_sdk.storage import s3_questions

    with _s3() as store:
        for spelling in _spellings(uri):
            names = s3_questions.list_names(store, spelling)
            if names or s3_questions.exists(store, spelling):
                return names or [uri.rstrip("/").rpartition("/")[2]]
    raise runner_errors.NotFoundError(f"{uri}: there is nothing of that name")


@contextmanager
def _s3() -> Iterator[Store]:
    from tao_sdk.runner.s3.store import Store

    store = Store(settings.staging_environment())
    try:
        yield store
    finally:
        store.client.close()


def _spellings(uri: str) -> list[str]:
    """With the slashes single that were doubled by joining texts, and as it is written."""
    bucket, key = parse_s3(uri)
    return list(dict.fromkeys((f"s3://{bucket}/{key}", uri)))
