"""The keywords of `create_job` that only Docker has, and how they are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.mounts import check_each_mount
from tao_sdk.platforms.common.option_checks import check_amount, check_size, check_switch
from tao_sdk.platforms.request import Option, check_gpu_ids, check_text, one_of

PULL_POLICIES = ("missing", "always", "never")


def check_mounts(where: str, value: Any) -> tuple[Mount, ...]:
    """A list of mounts in any of the usual forms."""
    return check_each_mount(where, value, _check_mount, "/data:/data:ro")


def _check_mount(where: str, value: Any) -> Mount:
    if isinstance(value, str):
        value = _without_scheme(where, value)
    mount = Mount.parse(value, where)
    source = _without_scheme(where, check_text(f"{where}.source", mount.source))
    if not check_text(f"{where}.target", mount.target).startswith("/"):
        raise ValidationError(
            f"{where}: the target {mount.target!r} must be an absolute path in the container"
        )
    if source.startswith(("./", "../", "~")):
        raise ValidationError(
            f"{where}: {source} is relative to somewhere; give the absolute path on the Docker host"
        )
    return Mount(source.rstrip("/") or "/", mount.target.rstrip("/") or "/", mount.read_only)


def _without_scheme(where: str, text: str) -> str:
    """A file:// address as the path that it is."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    if scheme != "file":
        raise ValidationError(
            f"{where}: {text} is not a folder of the Docker host; give a path, file:// or the name "
            "of a volume"
        )
    return "/" + rest.lstrip("/")


def _check_ulimits(where: str, value: Any) -> tuple[tuple[str, int, int], ...]:
    if not isinstance(value, Mapping):
        raise ValidationError(
            f"{where}: expected {{'nofile': 65536}} or {{'nofile': (soft, hard)}}"
        )
    found = []
    for name, limit in value.items():
        soft, hard = limit if isinstance(limit, (tuple, list)) and len(limit) == 2 else (limit,) * 2
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in (soft, hard)):
            raise ValidationError(f"{where}.{name}: {limit!r} is not a number or a pair of them")
        found.append((check_text(f"{where}.{name}", name), soft, hard))
    return tuple(found)


OPTIONS = (
    Option(
        "gpu_ids", "exactly these GPUs of the Docker host, by number or UUID", check_gpu_ids, ()
    ),
    Option(
        "when_busy",
        "when all GPUs are taken: refuse, or wait (somebody must watch the job)",
        one_of("refuse", "wait"),
        "refuse",
    ),
    Option("mounts", "folders or volumes: 'source[:target[:ro|rw]]', Mount", check_mounts, ()),
    Option("shm_size", "size of /dev/shm; default: half of the host's memory", check_size),
    Option(
        "ipc", "IPC namespace: private, shareable or host", one_of("private", "shareable", "host")
    ),
    Option("ulimits", "limits by name, beside those for GPU work", _check_ulimits, ()),
    Option("cpus", "at most this many processors", check_amount(" of processors")),
    Option("memory", "at most this much memory, such as 32g", check_size),
    Option("cwd", "working directory in the container; default: the image's", check_text),
    Option(
        "run_as_user", "True: as you; False: as the image says; default: as needed", check_switch
    ),
    Option("container_user", "user in the container, 'name' or 'uid[:gid]'", check_text),
    Option("pull_policy", "when to pull the image", one_of(*PULL_POLICIES)),
)
