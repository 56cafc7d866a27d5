"""Before a launch on Brev: its program is here, and logged in.

The program is asked and nothing else: logging in would write its credentials file, and its only
way to take a token is a command line that every user of the machine can read.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tao_sdk.preflight.checks import Check, Task, failed, passed, skipped
from tao_sdk.preflight.credentials import credential_checks, is_set
from tao_sdk.preflight.gpus import gpu_checks
from tao_sdk.preflight.paths import mount_tasks, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest

_SECONDS = 120
_LIST = ("brev", "ls", "--json")


def brev_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """All that is looked at."""
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("brev.access", partial(_access, request)),
        Task("gpu", partial(gpu_checks, request, None)),
        *mount_tasks(request, "Brev"),
        *unsupported_tasks(request),
    ]


def _access(request: PreflightRequest) -> Iterator[Check]:
    program = shutil.which("brev")
    if program is None:
        yield failed(
            "brev.program",
            "there is no program brev on PATH",
            "Install it: https://docs.nvidia.com/brev (brew install brevdev/homebrew-brev/brev, or "
            "the installer for Linux), then: brev login",
        )
        return
    yield passed("brev.program", program)
    if request.skip_platform_access:
        yield skipped("brev.access", "not asked: platform access is skipped")
        return
    try:
        done = subprocess.run(
            _LIST,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield failed(
            "brev.access", f"brev ls did not answer within {_SECONDS} s", "Check the network."
        )
        return
    instances = parse_instances(done.stdout) if done.returncode == 0 else None
    if instances is None:
        said = " ".join((done.stderr or done.stdout).split())[-300:] or "it said nothing"
        yield failed("brev.access", f"brev ls ended with {done.returncode}: {said}", _log_in())
    else:
        told = ", ".join(f"{name} ({state})" for name, state in instances.items()) or "none yet"
        yield passed("brev.access", f"logged in; instances: {told}")


def parse_instances(text: str) -> dict[str, str] | None:
    """Names and states of instances: a list, or an object with a list; None for anything else."""
    try:
        told = json.loads(text)
    except ValueError:
        return None
    if isinstance(told, dict):
        told = told.get("workspaces")
        if told is None:
            told = []
    if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
        return None
    return {str(each.get("name", "?")): str(each.get("status", "?")) for each in told}


def _log_in() -> str:
    if is_set("BREV_API_TOKEN"):
        return (
            "BREV_API_TOKEN is set, and brev is not logged in. Log in: brev login. Where there is "
            "no browser: brev login --token, on a machine whose other users may see it."
        )
    return "Log in: brev login"
