"""One HTTP/1.1 connection: a request out, an answer back, as few copies as possible.

The parser is our own because `http.client` takes longer to read the head of an answer than the
network to bring 64 KiB. A body is handed out as views of one buffer that is used again and again.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple, Union

from ..errors import TransferError

BLOCK = 256 * 1024  # what is received is still in the processor's cache when it is written
_LONGEST_HEAD = 64 * 1024
_FINAL = 200


class ConnectionFailedError(Exception):
    """The connection broke or went silent: another attempt may succeed."""


class ClosedError(ConnectionFailedError):
    """The other side hung up."""


class FilePart(NamedTuple):
    """A body that is read from an open file while it is sent."""

    descriptor: int
    offset: int
    length: int


Body = Union[bytes, FilePart]


class Connection:
    """A socket to one origin, used by one thread at a time."""

    def __init__(self, sock: socket.socket, is_tls: bool, stall_seconds: float) -> None:
        self._socket, self._is_tls, self._stall = sock, is_tls, stall_seconds
        self._bytes = bytearray(BLOCK)
        self._buffer = memoryview(self._bytes)
        self._start = self._end = 0  # what has arrived and is not handed out yet
        self.silent = True
        """Nothing of the answer to the present request has arrived."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(stall_seconds)
        if not is_tls:
            # The kernel's own time-out saves a poll before every read, and allows MSG_WAITALL.
            wait = struct.pack("ll", int(stall_seconds), int(stall_seconds % 1 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
            sock.settimeout(None)

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        self.close()  # a connection that is kept goes with its client

    @property
    def is_clean(self) -> bool:
        """Nothing has arrived that was not asked for."""
        return self._start == self._end

    def exchange(self, method: str, head: bytes, body: Body) -> Response:
        """Send a request and read the head of its answer."""
        self.silent = True
        try:
            self._send(head, body)
        except OSError as error:
            # A server that will not have a body stops reading it; its answer says why.
            if not select.select([self._socket], [], [], 0)[0]:
                raise self._failure(error) from error
            response = self._answer(method)
            response.keeps_alive = False
            return response
        return self._answer(method)

    def _send(self, head: bytes, body: Body) -> None:
        if isinstance(body, bytes):
            self._socket.sendall(head + body)
            return
        self._socket.sendall(head)
        offset, end = body.offset, body.offset + body.length
        while offset < end:
            if self._is_tls:
                block = os.pread(body.descriptor, min(BLOCK, end - offset), offset)
                self._socket.sendall(block)
                sent = len(block)
            else:
                sent = os.sendfile(
                    self._socket.fileno(), body.descriptor, offset, min(end - offset, 1 << 30)
                )
            if not sent:
                raise TransferError("the file became shorter while it was sent")
            offset += sent

    def _answer(self, method: str) -> Response:
        status = 0
        while status < _FINAL:  # 1xx announce the answer
            lines = self._head().split("\r\n")
            try:
                status = int(lines[0].split(" ", 2)[1])
            except (IndexError, ValueError):
                raise ConnectionFailedError("the answer is not HTTP") from None
        fields = [line.partition(":") for line in lines[1:]]
        headers = {name.lower(): value.strip() for name, _, value in fields}
        has_body = method != "HEAD" and status not in (204, 304)
        return Response(self, status, headers, has_body)

    def _head(self) -> str:
        searched = self._start
        while True:
            end = self._bytes.find(b"\r\n\r\n", searched, self._end)
            if end >= 0:
                head = bytes(self._buffer[self._start : end]).decode("latin-1")
                self._start = end + 4
                return head
            searched = max(self._start, self._end - 3)
            if self._end - self._start > _LONGEST_HEAD:
                raise ConnectionFailedError("the head of the answer has no end")
            if self._start == self._end:
                self._start = self._end = searched = 0
            self.arrive(1)

    def arrive(self, wanted: int) -> None:
        """Wait for bytes; up to `wanted` of them where the kernel can gather that many."""
        if self._end == BLOCK:
            raise ConnectionFailedError("a line of the answer has no end")
        room = self._buffer[self._end :]
        try:
            if self._is_tls or wanted == 1:
                count = self._socket.recv_into(room)
            else:
                count = self._socket.recv_into(room, min(wanted, len(room)), socket.MSG_WAITALL)
        except OSError as error:
            raise self._failure(error) from error
        if not count:
            raise ClosedError("the connection was closed in the middle of an answer")
        self.silent = False
        self._end += count

    def _failure(self, error: OSError) -> ConnectionFailedError:
        if isinstance(error, (BlockingIOError, socket.timeout)):
            return ConnectionFailedError(f"no byte for {self._stall:g} seconds")
        return ConnectionFailedError(error.strerror or str(error))

    def blocks(self, length: int) -> Iterator[memoryview]:
        """The next `length` bytes, as views that are valid until the next one is asked for."""
        while length:
            have = self._end - self._start
            if have < length and self._start + length <= BLOCK:
                try:
                    self.arrive(length - have)  # it all fits: hand it out in one block
                    continue
                except ConnectionFailedError:
                    if have:
                        yield self._buffer[self._start : self._end]
                    raise
            if not have:
                self._start = self._end = 0
                self.arrive(length)
                continue
            count = min(have, length)
            view = self._buffer[self._start : self._start + count]
            self._start += count
            length -= count
            yield view

    def rest(self) -> Iterator[memoryview]:
        """Everything until the other side hangs up."""
        while True:
            yield from self.blocks(self._end - self._start)
            self._start = self._end = 0
            try:
                self.arrive(1)
            except ClosedError:
                return

    def line(self) -> bytes:
        """The next short line, without its end."""
        while True:
            end = self._bytes.find(b"\r\n", self._start, self._end)
            if end >= 0:
                line = bytes(self._buffer[self._start : end])
                self._start = end + 2
                return line
            rest = bytes(self._buffer[self._start : self._end])
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
            self.arrive(1)


class Response:
    """The head of an answer, and its body while it arrives."""

    def __init__(
        self, connection: Connection, status: int, headers: dict[str, str], has_body: bool
    ) -> None:
        self.connection, self.status, self.headers = connection, status, headers
        self.length = -1
        """Of the body; -1 where the head does not say."""
        if not has_body:
            self.length = 0
        elif "transfer-encoding" not in headers and "content-length" in headers:
            try:
                self.length = max(0, int(headers["content-length"]))
            except ValueError:
                raise ConnectionFailedError("the answer has no valid length") from None
        self.complete = self.length == 0
        self.keeps_alive = headers.get("connection", "").lower() != "close"

    def blocks(self) -> Iterator[memoryview]:
        """The body. Raises when it ends too soon."""
        if self.length >= 0:
            yield from self.connection.blocks(self.length)
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            yield from self._chunks()
        else:
            self.keeps_alive = False
            yield from self.connection.rest()
        self.complete = True

    def read(self, most: int = 256 * BLOCK) -> bytes:
        """The body as a whole; what is longer than `most` is cut off."""
        body = bytearray()
        for block in self.blocks():
            body += block
            if len(body) > most:
                break
        return bytes(body[:most])

    def _chunks(self) -> Iterator[memoryview]:
        while True:
            try:
                length = int(self.connection.line().split(b";")[0], 16)
            except ValueError:
                raise ConnectionFailedError("the answer has no valid chunk length") from None
            if not length:
                break
            yield from self.connection.blocks(length)
            self.connection.line()
        while self.connection.line():  # trailers
            pass
