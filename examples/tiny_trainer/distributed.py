"""Data-parallel training over plain TCP.

Rank 0 listens at MASTER_ADDR:MASTER_PORT, the others connect. A collective operation is a star:
everybody sends to rank 0, rank 0 combines in the order of the ranks and sends the one result
back, so all ranks go on with the same bits.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .errors import PeerError, SpecError

Vector = npt.NDArray[np.float64]

DEFAULT_PORT = "29500"
_FRAME = struct.Struct("<4sIIQ")  # magic, number of the operation, stop signal, bytes that follow
_MAGIC = b"TINY"
_HELLO_LIMIT = 4096
_HELLO_SECONDS = 5.0
_RETRY_SECONDS = 0.1


@dataclass(frozen=True)
class Placement:
    """Which of how many processes this is."""

    rank: int = 0
    world: int = 1
    host: str = ""
    port: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], num_nodes: int) -> Placement:
        """WORLD_SIZE counts nodes and rules; the spec's `train.num_nodes` may only agree."""
        world = _whole_number(environment, "WORLD_SIZE", "1")
        if num_nodes not in (1, world):
            raise SpecError(
                f"train.num_nodes: {num_nodes}, but WORLD_SIZE says {world}: "
                "start one process per node with WORLD_SIZE, NODE_RANK and MASTER_ADDR set"
            )
        if world <= 1:
            return cls()
        for name in ("NODE_RANK", "MASTER_ADDR"):
            if not environment.get(name):
                raise SpecError(f"{name} is not set, and WORLD_SIZE={world} needs it")
        rank = _whole_number(environment, "NODE_RANK", "")
        if rank >= world:
            raise SpecError(f"NODE_RANK={rank} does not fit WORLD_SIZE={world}: ranks start at 0")
        port = _whole_number(environment, "MASTER_PORT", DEFAULT_PORT)
        return cls(rank, world, environment["MASTER_ADDR"], port)


class Group(Protocol):
    """The ranks of one training."""

    rank: int
    world: int

    def broadcast(self, content: Callable[[], bytes]) -> bytes:
        """Rank 0's content, on every rank; only rank 0 calls `content`."""
        ...

    def add_up(self, vector: Vector, stop: int) -> tuple[Vector, int]:
        """The sum over all ranks, and a stop signal if any rank has got one."""
        ...


class Alone:
    """A group of one."""

    rank = 0
    world = 1

    def broadcast(self, content: Callable[[], bytes]) -> bytes:
        return content()

    def add_up(self, vector: Vector, stop: int) -> tuple[Vector, int]:
        return vector, stop


@dataclass(frozen=True)
class Frame:
    number: int
    stop: int
    content: bytes


@dataclass(frozen=True)
class Hello:
    """How a rank presents itself to rank 0."""

    rank: int
    world: int
    fingerprint: str


class Link:
    """A connection to one other rank that carries frames."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.name = name
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def set_timeout(self, seconds: float) -> None:
        self._connection.settimeout(seconds)

    def send(self, frame: Frame) -> None:
        header = _FRAME.pack(_MAGIC, frame.number, frame.stop, len(frame.content))
        try:
            self._connection.sendall(header + frame.content)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, number: int, limit: int | None = None) -> Frame:
        magic, got, stop, length = _FRAME.unpack(self._receive_exactly(_FRAME.size))
        if magic != _MAGIC or (limit is not None and length > limit):
            raise PeerError(f"{self.name} does not speak this trainer's protocol")
        if got != number:
            raise PeerError(f"{self.name} is out of step: at operation {got} instead of {number}")
        return Frame(number, stop, self._receive_exactly(length))

    def _receive_exactly(self, length: int) -> bytes:
        content = bytearray()
        while len(content) < length:
            try:
                part = self._connection.recv(min(length - len(content), 1 << 20))
            except OSError as error:
                raise self._lost(error) from error
            if not part:
                raise PeerError(f"{self.name} closed the connection: it has ended, see its log")
            content += part
        return bytes(content)

    def _lost(self, error: OSError) -> PeerError:
        if isinstance(error, TimeoutError):
            seconds = self._connection.gettimeout()
            return PeerError(f"{self.name} was silent for {seconds:g} s: it hangs or is cut off")
        return PeerError(f"lost {self.name}: {error}")


class Coordinator:
    """Rank 0: gathers, combines, answers."""

    rank = 0

    def __init__(self, links: list[Link]) -> None:
        self._links = links
        self.world = 1 + len(links)
        self._operation = 0

    def broadcast(self, content: Callable[[], bytes]) -> bytes:
        self._operation += 1
        made = content()
        for link in self._links:
            link.send(Frame(self._operation, 0, made))
        return made

    def add_up(self, vector: Vector, stop: int) -> tuple[Vector, int]:
        self._operation += 1
        total = vector.copy()
        for link in self._links:
            frame = link.receive(self._operation, limit=vector.nbytes)
            total += np.frombuffer(frame.content, dtype=np.float64)
            stop = max(stop, frame.stop)
        for link in self._links:
            link.send(Frame(self._operation, stop, total.tobytes()))
        return total, stop


class Follower:
    """Any other rank: sends to rank 0 and takes its answer."""

    def __init__(self, placement: Placement, link: Link) -> None:
        self.rank = placement.rank
        self.world = placement.world
        self._link = link
        self._operation = 0

    def broadcast(self, content: Callable[[], bytes]) -> bytes:  # noqa: ARG002 - rank 0's
        self._operation += 1
        return self._link.receive(self._operation).content

    def add_up(self, vector: Vector, stop: int) -> tuple[Vector, int]:
        self._operation += 1
        self._link.send(Frame(self._operation, stop, vector.tobytes()))
        frame = self._link.receive(self._operation, limit=vector.nbytes)
        return np.frombuffer(frame.content, dtype=np.float64), frame.stop


@contextmanager
def join(placement: Placement, timeout: float, fingerprint: str) -> Iterator[Group]:
    """Meet the other ranks. All must show the same fingerprint of what they train."""
    with ExitStack() as connections:
        if placement.world == 1:
            yield Alone()
        elif placement.rank == 0:
            links = _gather_followers(placement, timeout, fingerprint, connections)
            yield Coordinator(links)
        else:
            yield Follower(placement, _find_rank_0(placement, timeout, fingerprint, connections))


def _gather_followers(
    placement: Placement, timeout: float, fingerprint: str, connections: ExitStack
) -> list[Link]:
    deadline = time.monotonic() + timeout
    links: dict[int, Link] = {}
    with _listen(placement) as server:
        while len(links) < placement.world - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, (host, *_) = server.accept()
            except TimeoutError as error:
                missing = sorted(set(range(1, placement.world)) - set(links))
                raise PeerError(
                    f"rank 0 waited {timeout:g} s on port {placement.port}: "
                    f"{_ranks(missing)} never came; see whether every node has started"
                ) from error
            connections.callback(connection.close)
            link = Link(connection, "the caller")
            try:
                hello = _receive_hello(link)
            except PeerError:
                # A port scanner or health check knocked: no reason to end a training.
                print(f"Ignoring a connection from {host}: it is no rank of ours", flush=True)
                connection.close()
                continue
            refusal = _refusal(hello, links, placement, fingerprint)
            link.send(Frame(0, 0, refusal.encode()))
            if refusal:
                raise PeerError(refusal)
            link.name = f"rank {hello.rank}"
            link.set_timeout(timeout)
            links[hello.rank] = link
    return [links[rank] for rank in sorted(links)]


def _receive_hello(link: Link) -> Hello:
    link.set_timeout(_HELLO_SECONDS)
    content = link.receive(0, limit=_HELLO_LIMIT).content
    try:
        return Hello(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise PeerError(f"{link.name} does not speak this trainer's protocol") from error


def _refusal(hello: Hello, links: dict[int, Link], placement: Placement, fingerprint: str) -> str:
    """Why a rank cannot take part; empty when it can."""
    if hello.world != placement.world:
        return f"rank {hello.rank} has WORLD_SIZE={hello.world}, rank 0 has {placement.world}"
    if hello.rank in links or not 0 < hello.rank < placement.world:
        return f"a second process came as rank {hello.rank}: give every node its own NODE_RANK"
    if hello.fingerprint != fingerprint:
        return f"rank {hello.rank} has another spec or data set than rank 0: give all the same"
    return ""


def _find_rank_0(
    placement: Placement, timeout: float, fingerprint: str, connections: ExitStack
) -> Link:
    connection = _connect(placement, timeout)
    connections.callback(connection.close)
    link = Link(connection, "rank 0")
    link.set_timeout(timeout)
    hello = Hello(placement.rank, placement.world, fingerprint)
    link.send(Frame(0, 0, json.dumps(asdict(hello)).encode()))
    refusal = link.receive(0, limit=_HELLO_LIMIT).content
    if refusal:
        raise PeerError(refusal.decode())
    return link


def _connect(placement: Placement, timeout: float) -> socket.socket:
    """Keep trying: rank 0 may start later, and its name may resolve later still."""
    address = (placement.host, placement.port)
    deadline = time.monotonic() + timeout
    while True:
        remaining = deadline - time.monotonic()
        try:
            return socket.create_connection(address, timeout=max(remaining, 0.001))
        except OSError as error:
            if remaining <= _RETRY_SECONDS:
                raise PeerError(
                    f"rank {placement.rank} could not reach rank 0 at "
                    f"{placement.host}:{placement.port} within {timeout:g} s: {error}"
                ) from error
        time.sleep(_RETRY_SECONDS)


def _listen(placement: Placement) -> socket.socket:
    # MASTER_ADDR may be a name that only the others can use (a Service), so rank 0 listens
    # everywhere, unless the address says that nobody from outside is expected.
    host = placement.host if _is_loopback(placement.host) else ""
    try:
        return socket.create_server((host, placement.port))
    except OSError as error:
        raise PeerError(f"rank 0 cannot listen on port {placement.port}: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _whole_number(environment: Mapping[str, str], name: str, default: str) -> int:
    text = environment.get(name) or default
    if not text.isdecimal():
        raise SpecError(f"{name}={text!r} is not a whole number")
    return int(text)
