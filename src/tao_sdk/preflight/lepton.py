"""Before a launch on DGX Cloud Lepton: the workspace answers with this token, and has a place.

Variables are read and requests are made by the platform's own client: what it refuses is refused
here, and the token goes to the one host that is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tao_sdk.errors import CapacityError, CredentialError, PlatformError, ValidationError
from tao_sdk.platforms.lepton import naming, plan
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.options import LeptonOptions
from tao_sdk.platforms.lepton.workspace import Workspace
from tao_sdk.platforms.request import checked_options
from tao_sdk.platforms.rest import RefusedError, Timeouts
from tao_sdk.preflight.checks import Check, Task, failed, passed, skipped
from tao_sdk.preflight.credentials import credential_checks
from tao_sdk.preflight.gpus import GpuFacts, gpu_checks
from tao_sdk.preflight.paths import mount_tasks, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest

_QUICK = Timeouts(connect=5.0, read=15.0, write=15.0, busy=5.0)
_ADDRESS = "Correct LEPTON_WORKSPACE_ID, LEPTON_AUTH_TOKEN or LEPTON_API_BASE_URL."
_TOKEN = "Make a new token in the dashboard (Settings > Tokens) and set LEPTON_AUTH_TOKEN."  # noqa: S105 - a sentence
_WORKSPACE = "Check LEPTON_WORKSPACE_ID (Settings > General) and LEPTON_API_BASE_URL."
_NETWORK = "Check the network, LEPTON_API_BASE_URL and the proxy (HTTPS_PROXY, NO_PROXY)."
_OTHER_PLACE = "Ask for another shape, node group, volume or pull secret, or for fewer GPUs."


def lepton_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """The checks of a launch on Lepton."""
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("lepton.access", partial(_workspace_checks, request, described)),
        *mount_tasks(request, "Lepton"),
        *unsupported_tasks(request),
    ]


def _workspace_checks(request: PreflightRequest, described: Mapping[str, Any]) -> Iterator[Check]:
    if any(check.status == "failed" for check in credential_checks(described)):
        yield skipped("lepton.access", "not asked: credentials are missing")
        yield from gpu_checks(request, None)
        return
    try:
        api = LeptonClient(WorkspaceAccess.find(), _QUICK)
    except (CredentialError, ValidationError) as error:
        yield failed("lepton.access", str(error), _ADDRESS)
        return
    if request.skip_platform_access:
        yield skipped("lepton.access", "not asked: platform access is skipped")
        yield from gpu_checks(request, None)
        return
    try:
        reached = _reach(api)
        yield reached
        if reached.status == "passed":
            yield from _place_checks(Workspace(api), request)
    finally:
        api.close()


def _reach(api: LeptonClient) -> Check:
    try:
        api.get_list(naming.PULL_SECRETS)
    except PlatformError as error:
        status = error.status if isinstance(error, RefusedError) else 0
        remedy = {401: _TOKEN, 403: _TOKEN, 404: _WORKSPACE}.get(status, _NETWORK)
        return failed("lepton.access", f"{api.access}: {error}" if status else str(error), remedy)
    return passed("lepton.access", f"{api.access} answers")


def _place_checks(workspace: Workspace, request: PreflightRequest) -> Iterator[Check]:
    """What the platform would find for such a job."""
    if request.gpu_count is None and not request.options:
        yield from gpu_checks(request, None)
        return
    gpus = 1 if request.gpu_count is None else request.gpu_count
    try:
        options = checked_options(LeptonOptions, request.options)
        found = plan.find_place(options, gpus, workspace)
        plan.pull_secrets(options.image_pull_secret, request.container_image, workspace)
    except (ValidationError, CapacityError) as error:
        yield failed("lepton.place", str(error), _OTHER_PLACE)
        return
    choice = found.choice
    names = {group.id: group.name for group in workspace.groups()}
    where = f"of node group {names.get(choice.group, choice.group)}" if choice.group else ""
    findings = [f"{choice.shape} {where}".strip(), *found.notes]
    yield passed("lepton.place", "; ".join(findings))
    kind = next((one.gpu_type for one in workspace.shapes() if one.id == choice.shape), "")
    yield from gpu_checks(request, [GpuFacts(str(n), "", model=kind) for n in range(choice.gpus)])
