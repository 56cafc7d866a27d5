"""The keywords of `create_job` that only Brev has, and how they are checked."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.mounts import check_each_mount
from tao_sdk.platforms.common.option_checks import (
    check_amount,
    check_matching,
    check_size,
    check_switch,
)
from tao_sdk.platforms.request import Keyword, check_text

# Names of instances, GPUs, types and ids at Brev: none can be taken for a flag or a path.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,127}")


check_word = check_matching(_WORD, "cannot be a name at Brev: letters, digits and _ . : @ + - only")
"""A name or an id of Brev's."""


def check_mounts(where: str, value: Any) -> tuple[Mount, ...]:
    """Folders of the instance that the container sees."""
    return check_each_mount(where, value, _check_mount, "/data:/data:ro")


def _check_mount(where: str, value: Any) -> Mount:
    mount = Mount.parse(value, where)
    for name, path in (("source", mount.source), ("target", mount.target)):
        if not check_text(f"{where}.{name}", path).startswith("/"):
            raise ValidationError(
                f"{where}: the {name} {path!r} must be an absolute path "
                f"{'of the instance' if name == 'source' else 'in the container'}"
            )
        if any(character in path for character in '\n\t,"'):
            raise ValidationError(f"{where}: {path!r} must not have commas, quotes or line ends")
    return Mount(mount.source.rstrip("/") or "/", mount.target.rstrip("/") or "/", mount.read_only)


class BrevOptions(NamedTuple):
    """The options of a job on Brev."""

    instance_id: Annotated[
        str, Keyword("an instance that is there already, by name or id", check_word)
    ] = ""
    gpu_type: Annotated[
        str, Keyword("GPU (L40S) or type (g5.xlarge) of a new instance", check_word)
    ] = ""
    max_price: Annotated[
        float | None, Keyword("limit for a new instance, in dollars an hour", check_amount())
    ] = None
    provider: Annotated[str, Keyword("cloud of a new instance, or a part of it", check_word)] = ""
    region: Annotated[str, Keyword("region of a new instance, or a part of it", check_word)] = ""
    cloud_cred_id: Annotated[
        str, Keyword("cloud account that a new instance is made with", check_word)
    ] = ""
    workspace_group_id: Annotated[str, Keyword("workspace group of a new instance", check_word)] = (
        ""
    )
    keep: Annotated[
        bool, Keyword("leave the new instance when the job has ended", check_switch)
    ] = False
    max_hours: Annotated[
        float | None, Keyword("delete the new instance at that age, job or not", check_amount())
    ] = None
    idle_minutes: Annotated[
        float | None, Keyword("delete a kept instance once idle for so long", check_amount())
    ] = None
    mounts: Annotated[
        tuple[Mount, ...],
        Keyword("folders of the instance: 'source[:target[:ro|rw]]'", check_mounts),
    ] = ()
    shm_size: Annotated[
        int | None, Keyword("size of /dev/shm; default: half of the instance's memory", check_size)
    ] = None
    cwd: Annotated[
        str, Keyword("working directory in the container; default: the image's", check_text)
    ] = ""
    network: Annotated[str, Keyword("network of the container; default: Docker's", check_word)] = ""
