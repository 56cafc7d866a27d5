"""Before a launch on Brev: the program is installed and logged in, and an instance can be had.

The program is asked and nothing else: logging in would write its credentials file, and its only
way to take a token is a command line that every user of the machine can read. An API key goes to
it by environment.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, PlatformError, TaoError, ValidationError
from tao_sdk.platforms.brev.client import API_KEY_PREFIX, INSTALL_HINT, LOGIN_HINT, BrevClient
from tao_sdk.platforms.brev.offers import OFFER_OPTIONS, fitting_offers
from tao_sdk.platforms.brev.options import BrevOptions, check_word
from tao_sdk.platforms.brev.parse import Instance
from tao_sdk.platforms.request import checked_options
from tao_sdk.preflight.checks import Check, Task, failed, passed, skipped, warning
from tao_sdk.preflight.credentials import credential_checks
from tao_sdk.preflight.gpus import gpu_checks
from tao_sdk.preflight.nodes import one_machine_tasks
from tao_sdk.preflight.paths import mount_tasks, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest


def brev_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """All checks."""
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("brev.access", partial(_access, request)),
        Task("gpu", partial(gpu_checks, request, None)),
        *one_machine_tasks(request, "Brev"),
        *mount_tasks(request, "Brev"),
        *unsupported_tasks(request),
    ]


def _access(request: PreflightRequest) -> Iterator[Check]:
    program = shutil.which("brev")
    if program is None:
        yield failed(
            "brev.program", "there is no program brev on PATH", f"Install it: {INSTALL_HINT}"
        )
        return
    yield passed("brev.program", program)
    if request.skip_platform_access:
        yield skipped("brev.access", "not asked: platform access is skipped")
        return
    with tempfile.TemporaryDirectory() as nothing_kept:
        yield from _answers(request, BrevClient(Path(nothing_kept)))


def _answers(request: PreflightRequest, cli: BrevClient) -> Iterator[Check]:
    try:
        instances = cli.instances()
    except BackendUnreachableError as error:
        yield failed("brev.access", str(error), f"Log in: {LOGIN_HINT}")
        return
    names = ", ".join(f"{one.name} ({one.status})" for one in instances) or "none yet"
    yield passed("brev.access", f"logged in; instances: {names}")
    token = settings.lookup("BREV_API_TOKEN")
    if token and not token.startswith(API_KEY_PREFIX):
        message = "BREV_API_TOKEN is no API key: the program's own login is used"
        yield warning("brev.token", message, f"Unset it, or: {LOGIN_HINT}")
    try:
        cli.check()
    except PlatformError as error:
        yield failed("brev.version", str(error), f"Install a newer one: {INSTALL_HINT}")
        return
    version = cli.facts().version
    yield passed("brev.version", ".".join(map(str, version)) if version else "not known")
    if request.options.get("instance_id"):
        yield _instance(request.options["instance_id"], instances)
    elif request.options.get("gpu_type") or request.gpu_count is not None:
        yield _offer(request, cli)


def _instance(asked: Any, instances: Sequence[Instance]) -> Check:
    """One that is there already must be one that a job can go to."""
    remedy = "Name another one, or none: then one is made for the job."
    try:
        name = check_word("instance_id", asked)
    except ValidationError as error:
        return failed("brev.instance", str(error), remedy)
    for one in instances:
        if name in (one.name, one.id):
            message = f"instance {one.name} is {one.status.lower()}: no job can go to it"
            if one.stopped:
                return failed("brev.instance", message, f"Start it: brev start {one.name}")
            if one.going or one.failed:
                return failed("brev.instance", message, remedy)
            return passed("brev.instance", f"{one.name} ({one.status})")
    names = ", ".join(sorted(one.name for one in instances)) or "none"
    return failed("brev.instance", f"no instance {name!r}; there are: {names}", remedy)


def _offer(request: PreflightRequest, cli: BrevClient) -> Check:
    """One that is made for the job: which, and what it costs."""
    given = {name: request.options[name] for name in OFFER_OPTIONS if request.options.get(name)}
    try:
        options = checked_options(BrevOptions, given)
        count = 1 if request.gpu_count is None else request.gpu_count
        return passed("brev.offer", str(fitting_offers(cli, options, count)[0]))
    except TaoError as error:
        remedy = "Ask for another (`brev search` lists them), or name one you have: instance_id."
        return failed("brev.offer", str(error), remedy)
