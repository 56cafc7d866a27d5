"""The body of an answer while it arrives, for those who cannot wait until it is whole.

The daemon makes an HTTP chunk of every message of a log. The HTTP client would hand them out one
by one, at a price that for a long log is most of the work, and would wait for each without end.
"""

from __future__ import annotations

import os
import ssl
import time
from typing import Any

import requests

PIECE = 256 * 1024
# A piece this small was all that had arrived. Who reads on at once gets one message at a time.
_FEW = 2048
_GATHERING_SECONDS = 0.0002


class Arriving:
    """What the daemon sends, in pieces as large as they come."""

    def __init__(self, answer: requests.Response) -> None:
        raw: Any = answer.raw
        self._answer = answer
        self._socket: Any = None
        self._few = False
        self._again = b""
        if not raw.chunked:  # it was whole before the daemon began to answer
            self._received, self._over = answer.content, True
            return
        self._over = False
        buffered = raw._fp.fp
        self._socket = buffered.raw._sock
        self._socket.setblocking(False)
        try:
            self._received = buffered.read1(PIECE) or b""  # what came along with the headers
        except ssl.SSLWantReadError:
            self._received = b""

    def next_piece(self, seconds: float) -> bytes | None:
        """What arrives within so many seconds: None when nothing does, b"" at the end."""
        if self._again:
            piece, self._again = self._again, b""
            return piece
        if self._over:
            rest, self._received = self._received, b""
            return rest
        while True:
            content = self._take_chunks()
            if content or self._over:
                return content
            received = self._receive(seconds)
            if received is None:
                return None
            if not received:
                raise ConnectionError("the answer broke off")
            self._few = len(received) < _FEW
            self._received += received

    def put_back(self, piece: bytes) -> None:
        """Let the next one who asks have this piece."""
        self._again = piece

    @property
    def closed(self) -> bool:
        return self._socket is not None and self._socket.fileno() < 0

    def close(self) -> None:
        """Let go of the connection, which tells the daemon to stop sending."""
        self._answer.close()
        if self._socket is not None:
            self._socket.close()

    def abandon_in_child(self) -> None:
        """In a forked process: close our copy of the socket. The connection is the parent's."""
        if self._socket is not None and not self.closed:
            os.close(self._socket.detach())

    def _receive(self, seconds: float) -> bytes | None:
        if self._few:
            time.sleep(_GATHERING_SECONDS)
        self._socket.settimeout(seconds)
        try:
            received: bytes = self._socket.recv(PIECE)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            self._few = False
            return None
        return received

    def _take_chunks(self) -> bytes:
        """The content of all chunks that are whole."""
        held, begin, chunks = self._received, 0, []
        find, length = held.find, len(held)
        while (end := find(b"\r\n", begin)) >= 0:
            size = int(held[begin:end], 16)
            after = end + 2 + size
            if after + 2 > length:
                break
            chunks.append(held[end + 2 : after])
            begin = after + 2
            if size == 0:
                self._over = True
                break
        # At the end nothing follows that anybody asked for.
        self._received = b"" if self._over else held[begin:]
        return b"".join(chunks)
