"""A proxy between an HTTP client and a server that spoils answers, as a script says.

    with FaultProxy(server_url, script) as proxy:
        ...  # clients use proxy.url

The script is asked once for every request, with its number, method and target, and returns what
is to happen to it. `random_faults` is a script that depends on a seed alone.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)


@dataclass(frozen=True)
class Fault:
    """What happens to one request. Counts of bytes are of the answer, its head included."""

    delay: float = 0.0
    """Seconds before the request is passed on."""
    status: int = 0
    """Answer this instead of passing the request on."""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    cut_after: int = -1
    """Hang up after so many bytes."""
    reset_after: int = -1
    """The same with a TCP reset."""
    stall_after: int = -1
    """Send nothing more after so many bytes, and keep the connection."""
    flip_after: int = -1
    """Change the byte at this place."""


Script = Callable[[int, str, str], "Fault | None"]


def never(number: int, method: str, target: str) -> Fault | None:
    """The script of a faithful proxy."""
    return None


def random_faults(seed: int, probability: float = 0.2) -> Script:
    """Resets, cuts, refusals and delays for this share of the requests."""
    kinds: list[Callable[[random.Random], Fault]] = [
        lambda dice: Fault(reset_after=dice.choice((0, 100, dice.randrange(200_000)))),
        lambda dice: Fault(cut_after=dice.choice((0, 100, dice.randrange(200_000)))),
        lambda dice: Fault(status=dice.choice((500, 502, 503)), body=b"upstream is busy"),
        lambda dice: Fault(status=503, body=SLOW_DOWN),
        lambda dice: Fault(status=429, headers=(("Retry-After", "0"),)),
        lambda dice: Fault(delay=dice.random() / 20),
    ]

    def script(number: int, method: str, target: str) -> Fault | None:
        dice = random.Random(f"{seed} {number}")
        return dice.choice(kinds)(dice) if dice.random() < probability else None

    return script


class FaultProxy:
    """Listens on loopback until it is closed."""

    def __init__(self, upstream: str, script: Script = never) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self.script = script
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def count(self, method: str = "", part: str = "") -> int:
        """How many requests there were of a method and with a text in the target."""
        with self._lock:
            return sum(method in seen and part in target for seen, target in self.requests)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError, _HungUpError),
            client,
            socket.create_connection(self._upstream) as server,
            self._known(client, server),
        ):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader, answers = _Reader(client), _Reader(server)
            while True:
                self._exchange(client, server, reader, answers)

    @contextlib.contextmanager
    def _known(self, *sockets: socket.socket) -> Iterator[None]:
        with self._lock:
            self._sockets.update(sockets)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.difference_update(sockets)

    def _exchange(
        self, client: socket.socket, server: socket.socket, reader: _Reader, answers: _Reader
    ) -> None:
        head = reader.head()
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        with self._lock:
            number = len(self.requests)
            self.requests.append((method, target))
        fault = self.script(number, method, target) or Fault()
        if fault.delay:
            self._is_closed.wait(fault.delay)
        if fault.status:
            for _ in reader.body(head):
                pass
            client.sendall(_made_up(fault, method))
            return
        server.sendall(head)
        for block in reader.body(head):
            server.sendall(block)
        answer = answers.head()
        sender = _Sender(client, fault, self._is_closed)
        sender.send(answer)
        if method != "HEAD" and answer.split(b" ", 2)[1] not in (b"204", b"304"):
            for block in answers.body(answer):
                sender.send(block)


class _HungUpError(Exception):
    """A side has closed its connection, or the script wants it closed."""


class _Reader:
    """Heads and bodies out of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._data = sock, b""

    def _more(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise _HungUpError
        self._data += data

    def head(self) -> bytes:
        while b"\r\n\r\n" not in self._data:
            self._more()
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def body(self, head: bytes) -> Iterator[bytes]:
        lower = head.lower()
        if b"\r\ntransfer-encoding: chunked" in lower:
            while True:
                while b"\r\n" not in self._data:
                    self._more()
                size = int(self._data.split(b"\r\n", 1)[0].split(b";")[0], 16)
                length = self._data.index(b"\r\n") + 2 + size + 2
                yield from self._exactly(length)
                if not size:
                    return
        elif b"\r\ncontent-length:" in lower:
            yield from self._exactly(int(lower.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0]))

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            if not self._data:
                self._more()
            block, self._data = self._data[:length], self._data[length:]
            length -= len(block)
            yield block


class _Sender:
    """Passes an answer on until the fault comes."""

    def __init__(self, client: socket.socket, fault: Fault, is_closed: threading.Event) -> None:
        self._client, self._fault, self._is_closed = client, fault, is_closed
        self._sent = 0

    def send(self, block: bytes) -> None:
        fault = self._fault
        if self._sent <= fault.flip_after < self._sent + len(block):
            at = fault.flip_after - self._sent
            block = block[:at] + bytes([block[at] ^ 1]) + block[at + 1 :]
        stops = [n for n in (fault.cut_after, fault.reset_after, fault.stall_after) if n >= 0]
        if stops and self._sent + len(block) >= stops[0]:
            self._client.sendall(block[: stops[0] - self._sent])
            if fault.stall_after >= 0:
                self._is_closed.wait()
            if fault.reset_after >= 0:
                self._client.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            raise _HungUpError
        self._client.sendall(block)
        self._sent += len(block)


def _made_up(fault: Fault, method: str) -> bytes:
    lines = [f"HTTP/1.1 {fault.status} Fault", f"Content-Length: {len(fault.body)}"]
    lines += [f"{name}: {value}" for name, value in fault.headers]
    body = b"" if method == "HEAD" else fault.body
    return "\r\n".join([*lines, "", ""]).encode() + body
