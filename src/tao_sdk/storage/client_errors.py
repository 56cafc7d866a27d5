"""The runner's errors as those of the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tao_sdk.errors import CredentialError, StorageError
from tao_sdk.runner import errors as runner_errors


@contextmanager
def errors_of_the_client(uri: str) -> Iterator[None]:
    """Whatever the runner's code raises here names the URI, and is one of `tao_sdk.errors`."""
    try:
        yield
    except runner_errors.RunnerError as error:
        text = str(error)
        is_ours = isinstance(error, runner_errors.CredentialError)
        kind = CredentialError if is_ours else StorageError
        raise kind(text if uri in text else f"{uri}: {text}") from error
