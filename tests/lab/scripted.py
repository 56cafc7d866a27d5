"""A server on loopback that says, byte for byte, what a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Scripted:
    """Accepts connections and hands each to the next function of its script."""

    def __init__(self, *script: Callable[[socket.socket], None]) -> None:
        self._script = list(script)
        self.heads: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for handle in self._script:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                handle(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(1)
        if not data:
            return head
        head += data
    return head


def say(*answers: bytes, step: int = 1 << 20) -> Callable[[socket.socket], None]:
    """Answer one request after the other, in pieces of `step` bytes."""

    def handle(connection: socket.socket) -> None:
        for answer in answers:
            read_head(connection)
            for start in range(0, len(answer), step):
                connection.sendall(answer[start : start + step])

    return handle
