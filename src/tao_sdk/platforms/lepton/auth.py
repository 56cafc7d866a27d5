"""Which workspace, where its API is, and with which token.

LEPTON_WORKSPACE_ID and LEPTON_AUTH_TOKEN. The dashboard also shows both in one, as `id:token`: that
is refused, because nobody would take the name of a workspace for a secret. LEPTON_API_BASE_URL is
the host of the API, or the whole address of the workspace.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from tao_sdk import settings
from tao_sdk.errors import CredentialError, ValidationError
from tao_sdk.secrets import Secret

_WORKSPACE = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)
_PURPOSE = "DGX Cloud Lepton"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WorkspaceAccess(NamedTuple):
    """The way to one workspace."""

    workspace: str
    url: str
    """What every path of the API comes after."""
    token: Secret

    def __str__(self) -> str:
        return f"workspace {self.workspace} at {self.origin}"

    @property
    def origin(self) -> str:
        """Scheme and host, which the gateway wants to be told."""
        return "/".join(self.url.split("/", 3)[:3])

    @classmethod
    def find(cls) -> WorkspaceAccess:
        """As the environment says; `CredentialError` names what is missing."""
        settings.require("LEPTON_WORKSPACE_ID", "LEPTON_AUTH_TOKEN", purpose=_PURPOSE)
        workspace = settings.lookup("LEPTON_WORKSPACE_ID")
        token = settings.lookup("LEPTON_AUTH_TOKEN")
        if ":" in workspace:
            raise CredentialError(
                "LEPTON_WORKSPACE_ID holds a token as well (id:token): leave the id, and put what "
                "follows the colon into LEPTON_AUTH_TOKEN, where it is known to be secret"
            )
        if not _WORKSPACE.fullmatch(workspace):
            raise CredentialError(
                "LEPTON_WORKSPACE_ID is not the id of a workspace: letters, digits, '_', '.', '-'"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise CredentialError("LEPTON_AUTH_TOKEN has characters that no token has")
        return cls(workspace, workspace_url(workspace), Secret(token))


def workspace_url(workspace: str) -> str:
    """Where the API of a workspace is."""
    base = settings.get("LEPTON_API_BASE_URL").rstrip("/")
    try:
        parts = urlsplit(base)
        known = parts.scheme in ("https", "http") and parts.hostname and not parts.query
        known = bool(known) and not parts.username and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known:
        raise ValidationError(
            "LEPTON_API_BASE_URL must be https://host[:port], or the whole address of the "
            "workspace, without user and password"
        )
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValidationError(
            f"LEPTON_API_BASE_URL: {base} would send the token in clear text; give https://"
        )
    if "/workspaces/" in parts.path:
        return base
    return f"{base}/api/v2/workspaces/{quote(workspace, safe='')}"
