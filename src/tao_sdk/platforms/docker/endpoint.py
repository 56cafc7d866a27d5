"""The daemon's address and TLS files, found in the order of the Docker command line.

DOCKER_HOST, DOCKER_CONTEXT, the context that `docker context use` chose, the default socket.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tao_sdk import settings
from tao_sdk.errors import ValidationError
from tao_sdk.plain_data import parse_json

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_SCHEMES = ("unix", "tcp", "http", "https", "ssh")


@dataclass(frozen=True)
class TlsFiles:
    """Client certificates: a folder with ca.pem, cert.pem and key.pem."""

    folder: Path
    verify: bool = True


@dataclass(frozen=True)
class Endpoint:
    """The address of a daemon."""

    url: str
    tls: TlsFiles | None = None
    chosen_by: str = "the default"

    @property
    def local(self) -> bool:
        """Whether paths, GPUs and processes of that daemon belong to this machine."""
        return self.url.startswith("unix://")

    def __str__(self) -> str:
        return f"{self.url} (from {self.chosen_by})"


def resolve(given: str | None = None) -> Endpoint:
    """The daemon that jobs go to."""
    if given:
        return Endpoint(_checked(given, "docker_host"), _tls_from_settings(given), "docker_host=")
    host = settings.lookup("DOCKER_HOST")
    if host:
        return Endpoint(_checked(host, "DOCKER_HOST"), _tls_from_settings(host), "DOCKER_HOST")
    folder = settings.expanded(settings.get("DOCKER_CONFIG"))
    name = settings.lookup("DOCKER_CONTEXT") or _current_context(folder)
    if name and name != "default":
        return read_context(folder, name)
    return Endpoint(DEFAULT_SOCKET)


def read_context(folder: Path, name: str) -> Endpoint:
    """A context of the Docker command line, as `docker context create` stores it."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / digest / "meta.json"
    try:
        described: dict[str, Any] = parse_json(meta.read_text(encoding="utf-8"))
        docker = described["Endpoints"]["docker"]
        host = str(docker["Host"])
    except FileNotFoundError:
        raise ValidationError(
            f"DOCKER_CONTEXT: there is no context {name!r} in {folder}; `docker context ls` lists "
            "them"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValidationError(
            f"{meta}: not a context of the Docker command line ({error})"
        ) from None
    files = folder / "contexts" / "tls" / digest / "docker"
    verify = not docker.get("SkipTLSVerify", False)
    tls = TlsFiles(files, verify) if files.is_dir() else None
    return Endpoint(_checked(host, f"context {name}"), tls, f"context {name}")


def _current_context(folder: Path) -> str:
    try:
        config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""  # no configuration, or one that docker itself would complain about
    return str(config.get("currentContext", "")) if isinstance(config, dict) else ""


def _tls_from_settings(host: str) -> TlsFiles | None:
    """DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, which count for network addresses only."""
    if urlsplit(host).scheme not in ("tcp", "https"):
        return None
    verify = settings.lookup("DOCKER_TLS_VERIFY")
    folder = settings.lookup("DOCKER_CERT_PATH")
    if not verify and not folder:
        return None
    place = settings.expanded(folder or settings.get("DOCKER_CONFIG"))
    missing = [name for name in ("ca.pem", "cert.pem", "key.pem") if not (place / name).exists()]
    if missing:
        raise ValidationError(
            f"TLS for {host} needs {', '.join(missing)} in {place}: set DOCKER_CERT_PATH to the "
            "folder that has them"
        )
    return TlsFiles(place, bool(verify))


def _checked(host: str, where: str) -> str:
    url = f"unix://{host}" if host.startswith("/") else host
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not (parts.netloc or parts.path):
        raise ValidationError(
            f"{where}: {host!r} is not the address of a Docker daemon: unix:///path/to.sock, "
            "ssh://user@host or tcp://host:2376"
        )
    if parts.password:
        raise ValidationError(f"{where}: leave the password out; use a key or an agent")
    return url
