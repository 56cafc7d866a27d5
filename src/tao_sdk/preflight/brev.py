"""Before a launch on Brev: its program is here, and logged in.

The program is asked and nothing else: logging in would write its credentials file, and its only
way to take a token is a command line that every user of the machine can read. An API key goes to
it by environment.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.brev.cli import INSTALL_HINT, LOGIN_HINT, BrevCli
from tao_sdk.preflight.checks import Check, Task, failed, passed, skipped
from tao_sdk.preflight.credentials import credential_checks
from tao_sdk.preflight.gpus import gpu_checks
from tao_sdk.preflight.nodes import one_machine_tasks
from tao_sdk.preflight.paths import mount_tasks, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest


def brev_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """All that is looked at."""
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
    try:
        with tempfile.TemporaryDirectory() as nothing_kept:
            instances = BrevCli(Path(nothing_kept)).instances()
    except BackendUnreachableError as error:
        yield failed("brev.access", str(error), f"Log in: {LOGIN_HINT}")
        return
    told = ", ".join(f"{one.name} ({one.status})" for one in instances) or "none yet"
    yield passed("brev.access", f"logged in; instances: {told}")
