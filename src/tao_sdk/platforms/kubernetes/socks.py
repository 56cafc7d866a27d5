"""SOCKS 5 (RFC 1928 and 1929): `ssh -D` is how many clusters are reached."""

from __future__ import annotations

import socket
import struct

from tao_sdk.platforms.kubernetes.routes import Proxy

_NO_PASSWORD, _PASSWORD = 0, 2
_REFUSALS = {
    1: "it failed",
    2: "its rules forbid it",
    3: "the network is unreachable",
    4: "the host is unreachable",
    5: "the connection was refused",
}


def pass_through(connection: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Have the proxy connect us; it looks up the host's name. Raises `ConnectionError`."""
    offered = bytes([_NO_PASSWORD, _PASSWORD] if proxy.user else [_NO_PASSWORD])
    connection.sendall(bytes([5, len(offered)]) + offered)
    version, method = _read(connection, 2)
    if version != 5 or method not in offered:
        raise ConnectionError(f"the proxy {proxy} wants to be asked in another way")
    if method == _PASSWORD:
        _log_in(connection, proxy)
    name = host.encode("idna")
    connection.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", port))
    _, refused, _, kind = _read(connection, 4)
    if refused:
        reason = _REFUSALS.get(refused, f"reason {refused}")
        raise ConnectionError(f"the proxy {proxy} does not connect us: {reason}")
    length = {1: 4, 4: 16}.get(kind) or _read(connection, 1)[0]
    _read(connection, length + 2)  # the proxy's own address, which nobody needs


def _log_in(connection: socket.socket, proxy: Proxy) -> None:
    user, password = proxy.user.encode(), proxy.password.reveal().encode()
    sent = bytes([1, len(user)]) + user + bytes([len(password)]) + password
    connection.sendall(sent)
    if _read(connection, 2)[1]:
        raise ConnectionError(f"the proxy {proxy} refuses user and password")


def _read(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = connection.recv(length - len(found))
        if not piece:
            raise ConnectionError("the proxy hung up")
        found += piece
    return found
