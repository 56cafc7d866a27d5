"""The workspace, the address of its API, and the token.

They come from LEPTON_WORKSPACE_ID, LEPTON_AUTH_TOKEN and LEPTON_API_BASE_URL (the host of the API,
or the whole address of the workspace). The dashboard also shows `id:token`, which is refused: the
id of a workspace is shown everywhere, so a token in it would be, too.
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
    """What a client of one workspace needs."""

    workspace: str
    url: str
    """The address that all paths of the API are below."""
    token: Secret

    def __str__(self) -> str:
        return f"workspace {self.workspace} at {self.origin}"

    @property
    def origin(self) -> str:
        """Scheme and host; the gateway demands them in a header."""
        return "/".join(self.url.split("/", 3)[:3])

    @classmethod
    def find(cls) -> WorkspaceAccess:
        """From the environment. `CredentialError` names what is missing."""
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
    """The address of the API of a workspace."""
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
