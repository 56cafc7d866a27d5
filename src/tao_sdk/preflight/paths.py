"""Where the paths of a launch lie: fetched from a store, on a file system, or neither. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tao_sdk import settings
from tao_sdk.planning.uris import STAGED_SCHEMES
from tao_sdk.preflight.checks import Check, Task, failed, skipped, warning
from tao_sdk.preflight.data import unlooked, unread
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.uris import IN_PLACE_SCHEMES, local_path, scheme_of

PROOF = (
    "Show that it is mounted into the job (a listing from inside such a job, or the volume in the "
    "platform's profile), then confirm it with --confirm-mounts; or give an s3:// address, which "
    "can be looked at."
)


def mounted(request: PreflightRequest, *more: str) -> list[str]:
    """The labels of paths on a file system; `more` are schemes of the platform's own."""
    ours = ("", *IN_PLACE_SCHEMES, *more)
    return [label for label, path in request.paths.items() if scheme_of(path) in ours]


def file_path(path: str) -> str:
    """The absolute path that is meant; "" when there is none."""
    try:
        found = local_path(path)
    except RunnerError:
        return ""
    return "" if "\n" in found or "\0" in found else found


def not_a_path(request: PreflightRequest, label: str) -> Iterator[Check]:
    """What is neither a URI nor an absolute path."""
    path, flag = request.paths[label], request.flags.path
    if "\n" in path or "\0" in path:
        yield failed(
            f"path:{label}",
            f"{path!r} has a line break or a NUL in it",
            "Rename it, or give the path without: such names do not survive on the way.",
        )
        yield from unread(request, label, "the path is not usable")
        return
    yield failed(
        f"path:{label}",
        f"{path!r} is not an absolute path",
        f"Write it out: {flag} {label}={settings.expanded(path).absolute()}"
        if path and not scheme_of(path)
        else f"Give it: {flag} {label}=/ABSOLUTE/PATH",
    )
    yield from unread(request, label, "the path is not usable")


def unsupported_tasks(request: PreflightRequest, *more: str) -> list[Task]:
    """Findings about URIs that jobs of this platform cannot read, or that cannot be inspected."""
    known = ("", *STAGED_SCHEMES, *IN_PLACE_SCHEMES, *more)
    return [
        Task(f"path:{label}", partial(_unsupported, request, label))
        for label, path in request.paths.items()
        if scheme_of(path) not in known
    ]


def _unsupported(request: PreflightRequest, label: str) -> Iterator[Check]:
    uri = request.paths[label]
    scheme = scheme_of(uri)
    if request.skip_platform_access:
        yield from unlooked(request, label, "platform access is skipped")
        return
    if request.confirmed_mounts:
        yield warning(f"path:{label}", f"{uri} was not looked at: you have proof that jobs read it")
    else:
        yield failed(
            f"path:{label}",
            f"{uri}: {scheme}:// can be neither staged nor looked at",
            "Copy the data to an S3 store, or mount it and give its absolute path. If the job "
            "reads this address by itself, confirm that with --confirm-mounts.",
        )
    yield from unread(request, label, f"{scheme}:// cannot be looked at")


def mount_tasks(request: PreflightRequest, platform: str, *more: str) -> list[Task]:
    """The rule for platforms whose mounts cannot be seen from here: no proof, no launch."""
    return [
        Task(f"path:{label}", partial(_mount_rule, request, label, platform))
        for label in mounted(request, *more)
    ]


def _mount_rule(request: PreflightRequest, label: str, platform: str) -> Iterator[Check]:
    path = request.paths[label]
    name = f"path:{label}"
    if request.skip_platform_access:
        yield skipped(name, "not looked at: platform access is skipped")
    elif request.confirmed_mounts:
        yield warning(name, f"{path} was not looked at: you have proof that it is mounted")
    else:
        yield failed(
            name,
            f"{path} is a mounted path, and it cannot be checked from here whether {platform} "
            "jobs have it",
            PROOF,
        )
    yield from unread(request, label, "a mounted path cannot be seen from here")
