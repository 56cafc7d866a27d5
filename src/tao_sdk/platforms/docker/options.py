"""The keywords of `create_job` that only Docker has, and how they are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.mounts import check_each_mount
from tao_sdk.platforms.common.option_checks import check_amount, check_size, check_switch
from tao_sdk.platforms.request import Keyword, check_gpu_ids, check_text, one_of

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


class DockerOptions(NamedTuple):
    """Keywords of jobs on Docker, beside those of every platform."""

    gpu_ids: Annotated[
        tuple[str, ...],
        Keyword("exactly these GPUs of the Docker host, by number or UUID", check_gpu_ids),
    ] = ()
    when_busy: Annotated[
        str,
        Keyword(
            "when all GPUs are taken: refuse, or wait (attended by `tao-sdk watch` or `wait`)",
            one_of("refuse", "wait"),
        ),
    ] = "refuse"
    mounts: Annotated[
        tuple[Mount, ...],
        Keyword("folders or volumes: 'source[:target[:ro|rw]]', Mount", check_mounts),
    ] = ()
    shm_size: Annotated[
        int | None, Keyword("size of /dev/shm; default: half of the host's memory", check_size)
    ] = None
    ipc: Annotated[
        str | None,
        Keyword(
            "IPC namespace: private, shareable or host", one_of("private", "shareable", "host")
        ),
    ] = None
    ulimits: Annotated[
        tuple[tuple[str, int, int], ...],
        Keyword("limits by name, beside those for GPU work", _check_ulimits),
    ] = ()
    cpus: Annotated[
        float | None, Keyword("at most this many processors", check_amount(" of processors"))
    ] = None
    memory: Annotated[int | None, Keyword("at most this much memory, such as 32g", check_size)] = (
        None
    )
    cwd: Annotated[
        str | None, Keyword("working directory in the container; default: the image's", check_text)
    ] = None
    run_as_user: Annotated[
        bool | None,
        Keyword("True: as you; False: as the image says; default: as needed", check_switch),
    ] = None
    container_user: Annotated[
        str | None, Keyword("user in the container, 'name' or 'uid[:gid]'", check_text)
    ] = None
    pull_policy: Annotated[
        str | None, Keyword("when to pull the image", one_of(*PULL_POLICIES))
    ] = None
