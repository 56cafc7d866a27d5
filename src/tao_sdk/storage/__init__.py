"""URIs of stores and registries, seen from the client.

Uses the very code that stages data in containers, so what is found here will be found there. "It
is not there" is an answer; "it could not be asked" is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tao_sdk import settings
from tao_sdk.errors import CredentialError, StorageError
from tao_sdk.planning.uris import STAGED_SCHEMES, is_remote, parse_s3
from tao_sdk.runner import errors as runner_errors
from tao_sdk.runner.stage import list_uri
from tao_sdk.runner.uris import scheme_of

__all__ = [
    "STAGED_SCHEMES",
    "exists",
    "is_remote",
    "list_files",
    "list_names",
    "read_file",
    "remove_folder",
]


def exists(uri: str) -> bool:
    """Is there a file, a folder, a repository of this name?"""
    with _errors_of_the_client(uri):
        try:
            if scheme_of(uri) == "s3":
                return _s3_exists(uri)
            list_uri(uri, _environment())
        except runner_errors.NotFoundError:
            return False
        return True


def list_names(uri: str) -> list[str]:
    """What is directly below a folder, or the one file itself; folders end with a slash."""
    with _errors_of_the_client(uri):
        try:
            if scheme_of(uri) == "s3":
                return _s3_names(uri)
            files = list_uri(uri, _environment()).files
        except runner_errors.NotFoundError as error:
            raise StorageError(str(error)) from None
    names = {
        first + ("/" if rest else "") for first, _, rest in (f.path.partition("/") for f in files)
    }
    return sorted(names)


def list_files(uri: str) -> dict[str, int]:
    """Everything below a folder: relative paths and sizes; nothing where there is no folder."""
    with _errors_of_the_client(uri):
        try:
            listing = list_uri(uri, _environment(), "folder")
        except runner_errors.NotFoundError:
            return {}
    return {file.path: file.size for file in listing.files}


def read_file(uri: str) -> bytes | None:
    """The content of a small object of an S3 store; None where there is none."""
    from tao_sdk.runner.s3 import parse_uri
    from tao_sdk.runner.s3.store import Store

    store = Store(_environment())
    with _errors_of_the_client(uri):
        try:
            return store.call("GET", parse_uri(uri)).body
        except runner_errors.NotFoundError:
            return None
        finally:
            store.client.close()


def remove_folder(uri: str) -> None:
    """Remove everything below a folder of an S3 store, whatever its keys look like."""
    from tao_sdk.runner.s3 import S3, Place, parse_uri
    from tao_sdk.runner.s3.listing import pages
    from tao_sdk.runner.s3.store import Store

    store = Store(_environment())
    with _errors_of_the_client(uri):
        try:
            folder = parse_uri(f"{uri.rstrip('/')}/")
            found = [item.key for items, _ in pages(store, folder) for item in items]
            for key in found:
                S3(store).delete(Place(folder.bucket, key).uri)
        finally:
            store.client.close()


def _s3_exists(uri: str) -> bool:
    from tao_sdk.runner.s3 import S3

    store = S3.from_environment(_environment())
    try:
        return any(store.exists(spelling) for spelling in _spellings(uri))
    finally:
        store.close()


def _s3_names(uri: str) -> list[str]:
    from tao_sdk.runner.s3 import S3

    store = S3.from_environment(_environment())
    try:
        for spelling in _spellings(uri):
            names = store.list_names(spelling)
            if names or store.exists(spelling):
                return names or [uri.rstrip("/").rpartition("/")[2]]
        raise runner_errors.NotFoundError(f"{uri}: there is nothing of that name")
    finally:
        store.close()


def _spellings(uri: str) -> list[str]:
    """With the slashes single that were doubled by joining texts, and as it is written."""
    bucket, key = parse_s3(uri)
    return list(dict.fromkeys((f"s3://{bucket}/{key}", uri)))


def _environment() -> Mapping[str, str]:
    return settings.process_environment()


@contextmanager
def _errors_of_the_client(uri: str) -> Iterator[None]:
    try:
        yield
    except runner_errors.RunnerError as error:
        text = str(error)
        is_ours = isinstance(error, runner_errors.CredentialError)
        kind = CredentialError if is_ours else StorageError
        raise kind(text if uri in text else f"{uri}: {text}") from error
