"""Before a launch on this machine itself: its GPUs and its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tao_sdk import settings
from tao_sdk.platforms.gpus.discovery import can_tell
from tao_sdk.platforms.gpus.leases import OuterLease, look_for_free
from tao_sdk.preflight.checks import Check, Task, skipped
from tao_sdk.preflight.credentials import credential_checks
from tao_sdk.preflight.gpus import gpu_checks, occupancy
from tao_sdk.preflight.host_gpus import host_gpus
from tao_sdk.preflight.local_files import local_checks
from tao_sdk.preflight.paths import mounted, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest


def local_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """All that is looked at."""
    # The nodes of a job are processes of one machine, and share its GPUs.
    together = replace(request, gpu_count=_of_all_nodes(request))
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("gpu", partial(_gpu_part, together)),
        *(
            Task(f"path:{label}", partial(local_checks, request, label))
            for label in mounted(request)
        ),
        *unsupported_tasks(request),
    ]


def _of_all_nodes(request: PreflightRequest) -> int | None:
    each = request.gpu_count
    return each * request.num_nodes if each is not None and each > 0 else each


def _gpu_part(request: PreflightRequest) -> Iterator[Check]:
    if not request.wants_gpus:
        yield from gpu_checks(request, [])
        return
    if request.skip_platform_access:
        yield skipped("gpu.driver", "not asked: platform access is skipped")
        yield from gpu_checks(request, None)
        return
    seen = host_gpus()
    if isinstance(seen, Check):
        if can_tell():
            yield seen
            return
        seen = []
    yield from gpu_checks(request, seen)
    if seen:
        keys = [gpu.key for gpu in seen]
        free = look_for_free(settings.get("TAO_GPU_LEASE_DIR"), keys)
        outer = OuterLease.parse(settings.lookup("TAO_LEASED_GPUS"))
        mine = outer.keys if outer else ()
        yield occupancy(request, seen, set(keys).difference(free, mine))
