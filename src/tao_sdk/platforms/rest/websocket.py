"""Messages of a WebSocket (RFC 6455) on a connection of urllib3.

The upgrade is a GET like any other, with its TLS, proxies and credentials. What is left are
frames: ours are masked, as the standard demands, and the server's are not.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import struct
from collections.abc import Callable, Iterator, Mapping

from urllib3.connection import HTTPConnection

from tao_sdk.errors import BackendUnreachableError

_ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE, _PING, _PONG = 0x2, 0x8, 0x9, 0xA
_FINAL, _MASKED = 0x80, 0x80
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class Handshake:
    """The headers that ask for an upgrade, and the check of the answer."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._key = base64.b64encode(os.urandom(16))

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": self._key.decode(),
            "Sec-WebSocket-Protocol": self._protocol,
        }

    def is_accepted(self, status: int, headers: Mapping[str, str]) -> bool:
        proof = hashlib.sha1(self._key + _ACCEPT, usedforsecurity=False).digest()
        return (
            status == http.client.SWITCHING_PROTOCOLS
            and headers.get("Sec-WebSocket-Accept") == base64.b64encode(proof).decode()
            and headers.get("Sec-WebSocket-Protocol") == self._protocol
        )


class _UpgradedResponse(http.client.HTTPResponse):
    """http.client takes an upgraded connection for an answer without a body."""

    def begin(self) -> None:
        super().begin()
        if self.status == http.client.SWITCHING_PROTOCOLS:
            self.length = None


def upgradable(connection: type[HTTPConnection]) -> type[HTTPConnection]:
    """The same kind of connection, whose answers can be read on after an upgrade."""
    return type(connection.__name__, (connection,), {"response_class": _UpgradedResponse})


class WebSocket:
    """Binary messages, both ways. Close it, or use it with `with`."""

    def __init__(
        self, pieces: Iterator[bytes], send: Callable[[bytes], None], close: Callable[[], None]
    ) -> None:
        self._pieces = pieces
        self._send = send
        self._close = close
        self._ahead = bytearray()
        self._ended = False

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def receive(self) -> bytes:
        """The next message; empty when the server has closed the connection."""
        message = b""
        while not self._ended:
            first, data = self._frame(_MAX_MESSAGE_BYTES - len(message))
            opcode = first & 0x0F
            if opcode == _CLOSE:
                self._ended = True
            elif opcode == _PING:
                self._send(frame(_PONG, data))
            elif opcode != _PONG:
                message += data
                if first & _FINAL and message:
                    return message
        return b""

    def send(self, message: bytes) -> None:
        """Send one message."""
        self._send(frame(_BINARY, message))

    def close(self) -> None:
        self._ended = True
        self._close()

    def _frame(self, limit: int) -> tuple[int, bytes]:
        """The first byte and the content of the next frame; a lost connection is a close."""
        try:
            first, size = self._take(2)
            size &= 0x7F
            if size == 126:
                [size] = struct.unpack("!H", self._take(2))
            elif size == 127:
                [size] = struct.unpack("!Q", self._take(8))
            if size > limit:
                raise BackendUnreachableError(
                    f"a message on a WebSocket has more than {_MAX_MESSAGE_BYTES:,} bytes"
                )
            return first, self._take(size)
        except StopIteration:
            return _FINAL | _CLOSE, b""

    def _take(self, size: int) -> bytes:
        while len(self._ahead) < size:
            self._ahead += next(self._pieces)
        taken = bytes(self._ahead[:size])
        del self._ahead[:size]
        return taken


def frame(opcode: int, data: bytes) -> bytes:
    """A frame from a client."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", _FINAL | opcode, _MASKED | size)
    elif size <= 0xFFFF:
        head = struct.pack("!BBH", _FINAL | opcode, _MASKED | 126, size)
    else:
        head = struct.pack("!BBQ", _FINAL | opcode, _MASKED | 127, size)
    key = os.urandom(4)
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
    return head + key + (int.from_bytes(data, "big") ^ mask).to_bytes(size, "big")
