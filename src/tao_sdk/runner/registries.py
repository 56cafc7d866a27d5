"""Reading what a registry answers: bounded, and of the expected form or an error that says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import TransferError
from .http import Answer
from .remote import RemoteFile

MOST_PAGES = 10_000
# A page of a listing has less than 1 MiB. Decoded, an answer takes up to twenty times its size.
_LARGEST_ANSWER = 16 << 20
_LARGEST_FILE = 1 << 62


@contextmanager
def understood(complaint: str) -> Iterator[None]:
    """Raise an error with this text where an answer has another form than the code expects."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise TransferError(complaint) from error


def decoded(answer: Answer) -> Any:
    """The JSON of an answer. Raises `ValueError` or `RecursionError`."""
    if len(answer.body) > _LARGEST_ANSWER:
        raise ValueError("the answer is too long")
    return json.loads(answer.body)


def checked(file: RemoteFile) -> RemoteFile:
    """The file. Raises `ValueError` or `TypeError` where a registry gave it an impossible part."""
    has_size = type(file.size) is int and -1 <= file.size < _LARGEST_FILE
    file.path.encode()
    if not has_size or not file.path or "\0" in file.path:
        raise ValueError("not a file")
    return file
