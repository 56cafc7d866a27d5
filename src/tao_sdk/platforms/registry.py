"""Platforms by name: built-in ones, and those that other packages register.

A package adds a platform with an entry point in the group `tao_sdk.platforms`, whose value is a
`PlatformSDK` class. No platform is imported before it is requested.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from tao_sdk.errors import JobNotFoundError, PlatformError, ValidationError
from tao_sdk.job_store.paths import state_files_at, state_paths
from tao_sdk.models import Job, JobUri

if TYPE_CHECKING:
    from tao_sdk.platforms.sdk import PlatformSDK

GROUP = "tao_sdk.platforms"

# Listed here, because reading installed metadata takes longer than the rest of a start.
_BUILT_IN = {
    "local": "tao_sdk.platforms.local.sdk:LocalSDK",
    "virtualenv": "tao_sdk.platforms.local.virtualenv:VirtualEnvSDK",
    "docker": "tao_sdk.platforms.docker.sdk:DockerSDK",
    "slurm": "tao_sdk.platforms.slurm.sdk:SlurmSDK",
    "kubernetes": "tao_sdk.platforms.kubernetes.sdk:KubernetesSDK",
    "brev": "tao_sdk.platforms.brev.sdk:BrevSDK",
    "lepton": "tao_sdk.platforms.lepton.sdk:LeptonSDK",
}
# Other names for the same platforms.
_ALIASES = {
    "local-docker": "docker",
    "remote-docker": "docker",
    "k8s": "kubernetes",
    "local-k8s": "kubernetes",
    "dgx-cloud": "lepton",
}


def names() -> list[str]:
    """The names of all platforms."""
    return sorted({*_BUILT_IN, *_registered()})


def canonical(name: str) -> str:
    """The name under which a platform's jobs are stored."""
    return _ALIASES.get(name, name)


def get(name: str) -> type[PlatformSDK]:
    """The SDK class of a platform."""
    name = canonical(name)
    target = _BUILT_IN.get(name) or _registered().get(name)
    if target is None:
        close = difflib.get_close_matches(name, names(), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValidationError(f"no platform {name!r}{hint}; there are: {', '.join(names())}")
    module_name, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "tao_sdk":
            raise  # a bug of this package, not a missing one
        raise PlatformError(
            f"platform {name} needs a package that is not installed ({error.name or error}): "
            f"pip install 'tao-sdk[{name}]'"
        ) from error
    return cast("type[PlatformSDK]", found)


def attach(uri: str) -> Job:
    """A live handle from a job's address, from any process. Creates no store."""
    address = JobUri.parse(uri)
    platform = get(address.platform)
    searched = []
    for state_file in state_files_at(address.state):
        paths = state_paths(state_file)
        searched.append(paths.database)
        if not paths.exist:
            continue
        sdk = platform(state_file=state_file)
        job = sdk.get_job(address.job_id)
        if job is not None:
            return job
        sdk.close()
    raise JobNotFoundError(
        f"no job {address.job_id} of {address.platform} in {' or '.join(searched)}"
    )


def _registered() -> Mapping[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUP)}
