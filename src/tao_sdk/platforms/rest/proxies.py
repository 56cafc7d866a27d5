"""Which proxy a server is reached through. Pure, except that the environment is read."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tao_sdk import settings
from tao_sdk.runner.http.routes import bypasses_proxy
from tao_sdk.secrets import Secret

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


class Proxy(NamedTuple):
    """A proxy that forwards connections: CONNECT of HTTP, or SOCKS 5."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: Secret = Secret("")

    @property
    def url(self) -> str:
        """Its address without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.url

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Raises `ValueError` with a message that leaves out user and password."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname or "", parts.port
            host.encode("idna")  # fails for text that cannot be a host name
        except ValueError:
            host = ""
        if not host or parts.scheme not in _PORTS:
            shown = url.rpartition("@")[2]
            schemes = ", ".join(f"{scheme}://host[:port]" for scheme in _PORTS)
            raise ValueError(f"the address of the proxy ({shown!r}) must be one of {schemes}")
        return cls(
            parts.scheme,
            host,
            port or _PORTS[parts.scheme],
            unquote(parts.username or ""),
            Secret(unquote(parts.password or "")),
        )


def proxy_for(url: str) -> Proxy | None:
    """The proxy that HTTPS_PROXY and NO_PROXY name for a server.

    Servers without TLS and servers on loopback are reached directly. Raises `ValueError` for a
    proxy address that cannot be one.
    """
    parts = urlsplit(url)
    address = settings.lookup("HTTPS_PROXY")
    host = parts.hostname or ""
    if parts.scheme != "https" or not address or _is_loopback(host):
        return None
    if bypasses_proxy(host, _rules_for_port(settings.lookup("NO_PROXY"), parts.port or 443)):
        return None
    return Proxy.parse(address)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _rules_for_port(no_proxy: str, port: int) -> str:
    """NO_PROXY's rules that may concern this port, without their port numbers."""
    rules = []
    for rule in no_proxy.replace(",", " ").split():
        name, colon, wanted = rule.rpartition(":")
        has_port = bool(colon) and wanted.isdigit() and (":" not in name or name.endswith("]"))
        if not has_port:
            rules.append(rule)
        elif wanted == str(port):
            rules.append(name.strip("[]"))
    return ",".join(rules)
