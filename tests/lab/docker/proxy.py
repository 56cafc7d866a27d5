"""A proxy that can be cut: how a test makes a service unreachable, for every process at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path


class Proxy:
    """Passes bytes between a listening socket and a target until it is cut."""

    def __init__(self, listen: Path | str, target: Path | tuple[str, int]) -> None:
        """Listens on a socket file, or at an address of this machine."""
        self._listen = listen
        self._target = target
        self._pairs: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.port = 0
        self.passed = 0
        """Bytes that went through."""
        self._open()

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """While this is open nobody gets through, and whoever was through is thrown out."""
        self.close()
        try:
            yield
        finally:
            self._open()

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        if isinstance(self._listen, Path):
            self._listen.unlink(missing_ok=True)
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for one in pairs:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _open(self) -> None:
        self._closing = False
        if isinstance(self._listen, str):
            self._server = socket.create_server((self._listen, self.port))
            self.port = self._server.getsockname()[1]
        else:
            self._server = socket.socket(socket.AF_UNIX)
            self._server.bind(str(self._listen))
            self._server.listen(64)
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                inner, _ = server.accept()
            except OSError:
                return
            try:
                outer = self._connect()
            except OSError:
                inner.close()
                continue
            with self._lock:
                if self._closing:
                    inner.close()
                    outer.close()
                    return
                self._pairs |= {inner, outer}
            for one, other in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self._target, tuple):
            return socket.create_connection(self._target, timeout=30)
        target = socket.socket(socket.AF_UNIX)
        target.connect(str(self._target))
        return target

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
                with self._lock:
                    self.passed += len(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            self._pairs.discard(source)
