"""Servers that end with the test."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from lab.scripted import Scripted


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """Starts a server with the script it is given."""
    servers: list[Scripted] = []

    def start(*script: Callable[[socket.socket], None]) -> Scripted:
        servers.append(Scripted(*script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
