"""Where a server is, and through which proxy it is reached."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from tao_sdk import settings
from tao_sdk.platforms.kubernetes.kubeconfig import KubeconfigError
from tao_sdk.secrets import Secret

_PORTS = {"https": 443, "http": 80, "socks5": 1080, "socks5h": 1080}


class Proxy(NamedTuple):
    """A proxy that passes connections on (CONNECT of HTTP, or SOCKS 5)."""

    scheme: str
    host: str
    port: int
    user: str
    password: Secret

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class Route(NamedTuple):
    """The way to a server."""

    host: str
    port: int
    encrypted: bool
    prefix: str
    """What every path begins with; "" for most servers."""
    server_name: str
    """The name that the server's certificate must have."""
    proxy: Proxy | None


def route(server: str, server_name: str = "", proxy_url: str = "") -> Route:
    """The way to `server`; without `proxy_url`, HTTPS_PROXY and NO_PROXY decide."""
    parts = _split(server, "server", ("https", "http"))
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    if not proxy_url and parts.scheme == "https" and not _is_direct(host, port):
        proxy_url = settings.lookup("HTTPS_PROXY")
    proxy = _proxy(proxy_url) if proxy_url else None
    encrypted = parts.scheme == "https"
    return Route(host, port, encrypted, parts.path.rstrip("/"), server_name or host, proxy)


def _proxy(url: str) -> Proxy:
    parts = _split(url if "://" in url else f"http://{url}", "proxy", ("http", "socks5", "socks5h"))
    return Proxy(
        parts.scheme,
        parts.hostname or "",
        parts.port or _PORTS[parts.scheme],
        unquote(parts.username or ""),
        Secret(unquote(parts.password or "")),
    )


def _split(url: str, what: str, schemes: tuple[str, ...]) -> SplitResult:
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # refuses what no name of a host can be
        known = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known:
        # Not quoted whole: a proxy's address may hold a password.
        raise KubeconfigError(
            f"the address of the {what} ({url.partition('@')[2] or url!r}) must be "
            f"{', '.join(f'{scheme}://host[:port]' for scheme in schemes)}"
        )
    return parts


def _is_direct(host: str, port: int) -> bool:
    """Does NO_PROXY leave this host out? The rules are those of the Go programs beside us."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for rule in settings.lookup("NO_PROXY").lower().replace(" ", "").split(","):
        if rule and _matches(rule, host.lower(), port, address):
            return True
    return False


def _matches(
    rule: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    if rule == "*":
        return True
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    name, _, wanted = rule.rpartition(":") if rule.count(":") == 1 else (rule, "", "")
    if wanted and wanted != str(port):
        return False
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or (address is None and host.endswith(f".{name}"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
