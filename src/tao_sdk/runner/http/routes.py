"""The way to an origin: directly or through a proxy, and which certificates are believed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from ..errors import RunnerError
from ..site_packages import importable
from .connection import Connection, ConnectionFailedError

if TYPE_CHECKING:
    import ssl

_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Where a URL points to."""

    scheme: str
    host: str
    port: int

    @property
    def name(self) -> str:
        """For the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def origin_of(url: str) -> Origin:
    """The origin of a URL; an error for what cannot be one."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        _encoded(host)
    except (ValueError, KeyError):
        host = ""
    if not host:
        # No more of it: there may be credentials in the rest.
        place = "/".join(url.split("/", 3)[:3]).rpartition("@")[2]
        raise RunnerError(f"{place}: not an http or https address")
    return Origin(parts.scheme, host, port)


def _encoded(host: str) -> bytes:
    """As resolvers know it. An error for what cannot be a name.

    Python would do it itself, at the price of a module of tables that few names need.
    """
    if not host.isascii():
        return host.encode("idna")
    if not all(0 < len(label) < 64 for label in host.rstrip(".").split(".")):
        raise ValueError
    return host.encode()


class Routes:
    """Opens connections the way the environment asks for (HTTPS_PROXY, AWS_CA_BUNDLE, ...)."""

    def __init__(
        self, env: Mapping[str, str], connect_seconds: float, stall_seconds: float
    ) -> None:
        self._env = env
        self._connect_seconds, self._stall_seconds = connect_seconds, stall_seconds
        self._tls: ssl.SSLContext | None = None
        self._proxies: dict[Origin, SplitResult | None] = {}

    def proxy_for(self, origin: Origin) -> SplitResult | None:
        """The proxy that requests to this origin go through."""
        if origin not in self._proxies:
            self._proxies[origin] = self._find_proxy(origin)
        return self._proxies[origin]

    def _find_proxy(self, origin: Origin) -> SplitResult | None:
        names = (origin.scheme + "_proxy", "all_proxy")
        address = next((found for found in map(self._variable, names) if found), "")
        if not address or bypasses_proxy(origin.host, self._variable("no_proxy")):
            return None
        address = address if "://" in address else "http://" + address
        if origin_of(address).scheme != "http":
            raise RunnerError(
                f"{origin.scheme.upper()}_PROXY: only proxies with http:// addresses are supported"
            )
        return urlsplit(address)

    def _variable(self, name: str) -> str:
        return self._env.get(name) or self._env.get(name.upper(), "")

    def connect(self, origin: Origin) -> Connection:
        """A new connection, through the proxy's tunnel where there is one and TLS is wanted."""
        proxy = self.proxy_for(origin)
        host, port = origin.host, origin.port
        if proxy:
            host, port = proxy.hostname or "", proxy.port or 80
        try:
            address: tuple[Any, int] = (_encoded(host), port)  # bytes will do, unknown to types
            sock = socket.create_connection(address, self._connect_seconds)
        except OSError as error:
            what = "the proxy " if proxy else ""
            reason = error.strerror or str(error)
            raise ConnectionFailedError(f"cannot reach {what}{host}:{port} ({reason})") from error
        try:
            if origin.scheme == "http":
                return Connection(sock, False, self._stall_seconds)
            if proxy:
                self._tunnel(sock, origin, proxy)
            return Connection(self._secured(sock, origin), True, self._stall_seconds)
        except BaseException:
            sock.close()
            raise

    def _tunnel(self, sock: socket.socket, origin: Origin, proxy: SplitResult) -> None:
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"Host: {host}:{origin.port}"]
        lines += [f"{name}: {value}" for name, value in proxy_headers(proxy).items()]
        sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        answer = b""
        while b"\r\n\r\n" not in answer:
            # One byte at a time: what follows the head belongs to TLS.
            byte = sock.recv(1)
            if not byte or len(answer) > 16384:
                raise ConnectionFailedError("the proxy did not answer CONNECT")
            answer += byte
        status = answer.split(b" ", 2)[1:2]
        if status != [b"200"]:
            said = answer.split(b"\r\n", 1)[0].decode("latin-1")
            raise ConnectionFailedError(f"the proxy refused a tunnel to {host}: {said}")

    def _secured(self, sock: socket.socket, origin: Origin) -> socket.socket:
        import ssl

        if self._tls is None:
            self._tls = self._context()
        try:
            return self._tls.wrap_socket(sock, server_hostname=origin.host)
        except ssl.SSLCertVerificationError as error:
            raise RunnerError(
                f"https://{origin.name}: its certificate is not trusted ({error.verify_message}): "
                "set AWS_CA_BUNDLE to the certificate of its authority, or install ca-certificates "
                "in the image"
            ) from error
        except OSError as error:
            raise ConnectionFailedError(f"TLS with {origin.name} failed ({error})") from error

    def _context(self) -> ssl.SSLContext:
        import ssl

        names = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
        bundle = next((self._env[name] for name in names if self._env.get(name)), "")
        if not bundle:
            usual = ssl.get_default_verify_paths()
            if not usual.cafile and not usual.capath:
                bundle = _certifi()
        try:
            if os.path.isdir(bundle):
                return ssl.create_default_context(capath=bundle)
            return ssl.create_default_context(cafile=bundle or None)
        except OSError as error:
            raise RunnerError(
                f"{bundle}: not a file of certificates ({error}); see AWS_CA_BUNDLE"
            ) from error


def _certifi() -> str:
    """Certificates that came with a Python package, for images that have no others."""
    certifi = importable("certifi")
    return str(certifi.where()) if certifi else ""


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """The proxy's own credentials, where its address has some."""
    if proxy.username is None:
        return {}
    import base64

    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}


def bypasses_proxy(host: str, no_proxy: str) -> bool:
    """Whether NO_PROXY has this host: itself, a domain that it is in, `*`, or a network."""
    for entry in no_proxy.replace(",", " ").lower().split():
        domain = entry.split("://")[-1].lstrip("*.")
        if entry == "*" or host == domain or (domain and host.endswith("." + domain)):
            return True
        if "/" in domain and _in_network(host, domain):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:  # a name, or not a network
        return False
