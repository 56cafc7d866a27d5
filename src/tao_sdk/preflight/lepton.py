"""Before a launch on DGX Cloud Lepton: the workspace answers with this token.

The token is in a header and nowhere else, and goes to the one host that is named: an answer that
leads elsewhere is not followed.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tao_sdk import settings
from tao_sdk.platforms.lepton.access import workspace_url
from tao_sdk.preflight.checks import Check, Task, failed, passed, skipped
from tao_sdk.preflight.credentials import credential_checks
from tao_sdk.preflight.gpus import gpu_checks
from tao_sdk.preflight.paths import mount_tasks, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest

_SECONDS = 30
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TOKEN = "Make a new token in the dashboard (Settings > Tokens) and set LEPTON_AUTH_TOKEN."  # noqa: S105 - a sentence


def lepton_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """All that is looked at."""
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("lepton.access", partial(_access, request, described)),
        Task("gpu", partial(gpu_checks, request, None)),
        *mount_tasks(request, "Lepton"),
        *unsupported_tasks(request),
    ]


def _access(request: PreflightRequest, described: Mapping[str, Any]) -> Iterator[Check]:
    if any(check.status == "failed" for check in credential_checks(described)):
        yield skipped("lepton.access", "not asked: credentials are missing")
        return
    if request.skip_platform_access:
        yield skipped("lepton.access", "not asked: platform access is skipped")
        return
    base = settings.get("LEPTON_API_BASE_URL").rstrip("/")
    parts = urlsplit(base)
    host = parts.hostname or ""
    if parts.scheme not in ("https", "http") or not host:
        yield failed("lepton.access", f"LEPTON_API_BASE_URL={base!r} is not an address", _HTTPS)
        return
    if parts.scheme == "http" and host not in _LOOPBACK:
        yield failed("lepton.access", f"{base} would send the token in clear text", _HTTPS)
        return
    # Lepton's own client takes "id:token" there: what follows is nobody's business.
    workspace = settings.lookup("LEPTON_WORKSPACE_ID").partition(":")[0]
    path = f"{urlsplit(workspace_url(workspace)).path}/imagepullsecrets"
    try:
        status = _get(parts.scheme, host, parts.port, path)
    except (OSError, http.client.HTTPException) as error:
        yield failed(
            "lepton.access", f"{base} does not answer: {error}", "Check the network and the proxy."
        )
        return
    yield _judge(status, base, workspace)


_HTTPS = "Unset LEPTON_API_BASE_URL, or set it to the https:// address of the gateway."


def _get(scheme: str, host: str, port: int | None, path: str) -> int:
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=_SECONDS)
    try:
        headers = {
            "Authorization": f"Bearer {settings.lookup('LEPTON_AUTH_TOKEN')}",
            "Accept": "application/json",
            "Origin": f"{scheme}://{host}",
        }
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def _judge(status: int, base: str, workspace: str) -> Check:
    if 200 <= status < 300:
        return passed("lepton.access", f"workspace {workspace} at {base} answers")
    if status in (401, 403):
        told = f"{base} refuses LEPTON_AUTH_TOKEN for workspace {workspace} (HTTP {status})"
        return failed("lepton.access", told, _TOKEN)
    if status == 404:
        told = f"{base} knows no workspace {workspace}"
        return failed("lepton.access", told, "Check LEPTON_WORKSPACE_ID (Settings > General).")
    return failed(
        "lepton.access", f"{base} answers with HTTP {status}", "Try again later; check the address."
    )
