"""The user of a container, so that its results belong to the caller: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.docker.options import DockerOptions

# A user that the image does not know has no home: one is made where every user may write.
HOME = "/tmp/tao-home"  # noqa: S108 - inside the container, which is not shared
_CACHES = {
    "XDG_CACHE_HOME": ".cache",
    "HF_HOME": ".cache/huggingface",
    "TORCH_HOME": ".cache/torch",
    "TRITON_CACHE_DIR": ".cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/torchinductor",
    "MPLCONFIGDIR": ".config/matplotlib",
}


@dataclass(frozen=True)
class Caller:
    """The user that submits."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class ContainerUser:
    """The user settings of a container."""

    user: str = ""
    groups: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def choose(
    options: DockerOptions,
    caller: Caller,
    *,
    local: bool,
    results: bool,
    info: Mapping[str, Any],
) -> ContainerUser:
    """The user of a container; `results`: it writes to a folder of the host."""
    if options.container_user:
        return ContainerUser(options.container_user, env=_home(options.container_user, ""))
    if options.run_as_user is False:
        return ContainerUser()
    remapped = remapping(info.get("SecurityOptions") or ())
    if options.run_as_user is None:
        if not results or caller.uid == 0 or remapped:
            # Root, or a daemon under which the container's root is the caller: files fit already.
            return ContainerUser()
        if not local:
            return ContainerUser(
                note="the container runs as the image's user: who you are on the remote host is "
                "not known here (container_user= sets it)"
            )
    elif not local:
        raise ValidationError(
            "run_as_user: who you are on a remote Docker host is not known here; give "
            "container_user='uid:gid'"
        )
    user = f"{caller.uid}:{caller.gid}"
    groups = tuple(str(group) for group in caller.groups if group != caller.gid)
    return ContainerUser(user, groups, _home(user, caller.name))


def remapping(security_options: Sequence[str]) -> bool:
    """Whether the daemon itself maps the users of its containers."""
    words = {part for option in security_options for part in option.split(",")}
    return bool(words & {"name=rootless", "name=userns"})


def _home(user: str, name: str) -> dict[str, str]:
    if user.partition(":")[0] in ("0", "root"):
        return {}
    named = name or user.partition(":")[0]
    return {
        "HOME": HOME,
        "USER": named,
        "LOGNAME": named,
        "TAO_WORK_ROOT": f"{HOME}/results",
        **{variable: f"{HOME}/{path}" for variable, path in _CACHES.items()},
    }
