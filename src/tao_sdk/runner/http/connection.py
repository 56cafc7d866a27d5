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
from typing import TYPE_CHECKING, NamedTuple

from ..errors import TransferError
from .answers import Answer

BLOCK = 256 * 1024  # what is received is still in the processor's cache when it is written
_SPARE: list[bytearray] = []
"""Buffers that nobody reads into now. The one that was used last is in the processor's cache."""
_LONGEST_WISH = 120.0
_LONGEST_HEAD = 64 * 1024
_FINAL = 200


class PassingError(Exception):
    """An attempt failed in a way that the next may not."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = min(after, _LONGEST_WISH)


class ConnectionFailedError(PassingError):
    """The connection broke or went silent."""


class ClosedError(ConnectionFailedError):
    """The other side hung up."""


class FilePart(NamedTuple):
    """A body that is read from an open file while it is sent."""

    descriptor: int
    offset: int
    length: int


if TYPE_CHECKING:
    Body = bytes | FilePart


class Connection:
    """A socket to one origin, used by one thread at a time."""

    def __init__(self, sock: socket.socket, is_tls: bool, stall_seconds: float) -> None:
        self._socket, self._is_tls, self._stall = sock, is_tls, stall_seconds
        self._trouble: OSError | None = None
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

    def end_answer(self) -> bool:
        """The answer is read. Whether nothing has arrived that was not asked for."""
        _SPARE.append(self._bytes)
        return self._start == self._end

    def send(self, head: bytes, body: Body) -> None:
        """Send a request. What goes wrong is told by `answer`."""
        self.silent, self._trouble = True, None
        try:
            self._send(head, body)
        except OSError as error:
            self._trouble = error

    def answer(self, method: str, idle: list[Connection]) -> Reply:
        """Read the head of the answer to the request that was sent.

        Afterwards the connection joins those that are idle, if it can be used again.
        """
        try:
            self._bytes = _SPARE.pop()
        except IndexError:
            self._bytes = bytearray(BLOCK)
        self._buffer = memoryview(self._bytes)
        self._start = self._end = 0  # what has arrived and is not handed out yet
        trouble = self._trouble
        # A server that will not have a body stops reading it; its answer says why.
        if trouble and not select.select([self._socket], [], [], 0)[0]:
            raise self._failure(trouble) from trouble
        reply = self._answer(method, idle)
        if trouble:
            reply.keeps_alive = False
        return reply

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

    def _answer(self, method: str, idle: list[Connection]) -> Reply:
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
        return Reply(self, idle, status, headers, has_body)

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


class Reply:
    """An answer that is arriving. Leave its `with` block to give the connection back."""

    def __init__(
        self,
        connection: Connection,
        idle: list[Connection],
        status: int,
        headers: dict[str, str],
        has_body: bool,
    ) -> None:
        self._connection, self._idle = connection, idle
        self.status, self.headers = status, headers
        self.length = -1
        """Of the body; -1 where the head does not say."""
        if not has_body:
            self.length = 0
        elif "transfer-encoding" not in headers and "content-length" in headers:
            try:
                self.length = max(0, int(headers["content-length"]))
            except ValueError:
                raise ConnectionFailedError("the answer has no valid length") from None
        self._is_complete = self.length == 0
        self.has_known_end = self.length >= 0 or "transfer-encoding" in headers
        self.keeps_alive = headers.get("connection", "").lower() != "close"

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.end_answer() and self._is_complete and self.keeps_alive:
            self._idle.append(self._connection)
        else:
            self._connection.close()

    def answer(self) -> Answer:
        """The whole of it, for short ones."""
        return Answer(self.status, self.headers, self._read())

    def blocks(self) -> Iterator[memoryview]:
        """The body. Raises when it ends too soon."""
        if self.length >= 0:
            yield from self._connection.blocks(self.length)
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            yield from self._chunks()
        else:
            self.keeps_alive = False
            yield from self._connection.rest()
        self._is_complete = True

    def _read(self, most: int = 256 * BLOCK) -> bytes:
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
                length = int(self._connection.line().split(b";")[0], 16)
            except ValueError:
                raise ConnectionFailedError("the answer has no valid chunk length") from None
            if not length:
                break
            yield from self._connection.blocks(length)
            self._connection.line()
        while self._connection.line():  # trailers
            pass
