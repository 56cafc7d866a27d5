"""An answer that is read as it comes: a log that is followed, a watch."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from collections.abc import Callable, Iterator
from types import TracebackType

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.kubernetes.answers import trouble
from tao_sdk.platforms.kubernetes.connections import Connection

_PIECE = 65536


class Stream(Iterator[bytes]):
    """Pieces of an answer. To be closed, or used with `with`."""

    def __init__(
        self,
        connection: Connection,
        response: http.client.HTTPResponse,
        unreachable: Callable[[str], BackendUnreachableError],
    ) -> None:
        self._connection = connection
        self._response = response
        self._unreachable = unreachable
        # A second descriptor of the same connection: hanging up by it disturbs nobody who reads
        # through the first.
        self._line = socket.socket(fileno=os.dup(connection.sock.fileno()))

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __next__(self) -> bytes:
        """Raises `BackendUnreachableError` where the answer breaks off or nothing comes."""
        try:
            piece = self._response.read1(_PIECE)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(trouble(error)) from error
        if not piece:
            raise StopIteration
        return piece

    def hang_up(self) -> None:
        """End the connection from another thread; whoever reads gets no more."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._response.close()
        self._connection.close()
        self._line.close()
