"""Connections to one server: made, kept for the next request, and let go of."""

from __future__ import annotations

import http.client
import os
import select
import socket
import ssl
import threading
import time
import weakref
from base64 import b64encode

from tao_sdk.platforms.kubernetes.access import ClusterAccess
from tao_sdk.platforms.kubernetes.credentials import Credential
from tao_sdk.platforms.kubernetes.routes import Route
from tao_sdk.platforms.kubernetes.socks import pass_through

_KEPT = 8
# Load balancers drop connections that were idle for some minutes, often without saying so.
_IDLE_SECONDS = 60.0
# A peer that is gone is noticed after half a minute, also while nothing is to be read.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


class Connection(http.client.HTTPConnection):
    """One connection, through a proxy if need be."""

    def __init__(self, route: Route, tls: ssl.SSLContext | None, seconds: float) -> None:
        proxy = route.proxy
        near = (proxy.host, proxy.port) if proxy else (route.host, route.port)
        super().__init__(*near, timeout=seconds)
        self._route = route
        self._tls = tls
        self.idle_since = 0.0
        self.credential: Credential | None = None
        if proxy and proxy.scheme == "http":
            headers = {}
            if proxy.user:
                pair = f"{proxy.user}:{proxy.password.reveal()}".encode()
                headers["Proxy-Authorization"] = f"Basic {b64encode(pair).decode('ascii')}"
            self.set_tunnel(route.host, route.port, headers)

    def connect(self) -> None:
        super().connect()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        route = self._route
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if route.proxy and route.proxy.scheme != "http":
            pass_through(self.sock, route.proxy, route.host, route.port)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=route.server_name)

    def putrequest(
        self, method: str, url: str, skip_host: bool = False, skip_accept_encoding: bool = False
    ) -> None:
        # Behind a SOCKS proxy, http.client would name the proxy as the host.
        via_socks = self._route.proxy is not None and self._route.proxy.scheme != "http"
        super().putrequest(method, url, skip_host or via_socks, skip_accept_encoding)
        if via_socks and not skip_host:
            self.putheader("Host", f"{self._route.host}:{self._route.port}")

    def wait_at_most(self, seconds: float | None) -> None:
        """For the next bytes."""
        self.sock.settimeout(seconds)

    @property
    def usable(self) -> bool:
        """Is it worth sending another request? Whatever can be read now is the server's goodbye."""
        if self.sock is None or time.monotonic() - self.idle_since > _IDLE_SECONDS:
            return False
        poller = select.poll()
        poller.register(self.sock, select.POLLIN | select.POLLHUP)
        return not poller.poll(0)


class ConnectionPool:
    """Idle connections of one process."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        _pools.add(self)

    def take(self, credential: Credential) -> Connection | None:
        """An idle connection on which the server knows us by this credential."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            # A certificate belongs to the connection; a token comes with each request.
            known_as = connection.credential
            if known_as and known_as.certificate == credential.certificate and connection.usable:
                return connection
            connection.close()

    def connect(self, credential: Credential, seconds: float) -> Connection:
        """A new connection."""
        access = self._access
        connection = Connection(access.route, access.tls(credential), seconds)
        connection.credential = credential
        connection.connect()
        return connection

    def keep(self, connection: Connection) -> None:
        """For the next request."""
        connection.idle_since = time.monotonic()
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _after_fork_in_child(self) -> None:
        """Two processes must not use one connection: each would read the other's answers."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        # Closing only lets go of our descriptors: nothing is said to the server.
        for connection in self._idle:
            connection.close()
        self._idle = []


_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for pool in _pools:
        pool._after_fork_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)
