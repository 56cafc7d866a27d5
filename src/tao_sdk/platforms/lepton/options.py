"""The keywords of `create_job` that only Lepton has, and how they are checked."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.common.option_checks import check_each, check_matching, check_switch
from tao_sdk.platforms.lepton.volumes import Place, check_mounts
from tao_sdk.platforms.request import Keyword, check_positive, check_text, one_of

TTL_SECONDS = 259_200
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)
_PRIORITIES = {
    f"{word}-{number}": f"{word}-{number}000"
    for word, numbers in (("low", (1, 2, 3)), ("mid", (4, 5, 6)), ("high", (7, 8, 9)))
    for number in numbers
}
_MIB = {"": 1} | {
    f"{letter}{rest}": mib
    for letter, mib in (("m", 1), ("g", 1024))
    for rest in ("", "i", "ib", "b")
}
_SIZE = re.compile(r"(\d+)\s*([A-Za-z]*)")


_check_name = check_matching(_NAME, "is not a name that Lepton accepts")
_check_names = check_each(_check_name, "the name of a secret")


def check_priority(where: str, value: Any) -> str:
    """1 to 9, low, mid, high, low-1 … high-9, or as Lepton has it: mid-4000."""
    text = str(value).lower()
    words = {"low": "low-1", "mid": "mid-4", "high": "high-7"}
    words |= {short.partition("-")[2]: short for short in _PRIORITIES}
    short = words.get(text, text)
    if short in _PRIORITIES:
        return _PRIORITIES[short]
    if text in _PRIORITIES.values():
        return text
    raise ValidationError(f"{where}: {value!r} is not 1 to 9, low, mid, high, or low-1 … high-9")


def _check_memory(where: str, value: Any) -> int:
    """MiB, or a text such as 16Gi."""
    if isinstance(value, int) and not isinstance(value, bool):
        return check_positive(where, value)
    found = _SIZE.fullmatch(check_text(where, value).strip())
    unit = _MIB.get(found[2].lower()) if found else None
    if not found or not unit or not int(found[1]):
        raise ValidationError(f"{where}: {value!r} is not a size: give MiB, or 512Mi, 16Gi")
    return int(found[1]) * unit


class LeptonOptions(NamedTuple):
    """Options of a job that only Lepton has."""

    resource_shape: Annotated[
        str | None, Keyword("shape of the machines; default: what fits gpu_count", _check_name)
    ] = None
    dedicated_node_group: Annotated[
        str | None, Keyword("node group, by name or id", _check_name)
    ] = None
    mounts: Annotated[
        tuple[Place, ...] | None,
        Keyword("volumes: 'lustre/me:/data[:ro]'; [] for none; default: found", check_mounts),
    ] = None
    shm_size: Annotated[int | None, Keyword("size of /dev/shm: MiB, or 16Gi", _check_memory)] = None
    queue_priority: Annotated[
        str | None, Keyword("1 to 9, low, mid, high; needs a node group", check_priority)
    ] = None
    can_be_preempted: Annotated[
        bool | None, Keyword("may jobs of higher priority take its place?", check_switch)
    ] = None
    can_preempt: Annotated[
        bool | None, Keyword("may it take the place of jobs of lower priority?", check_switch)
    ] = None
    ttl_seconds: Annotated[
        int, Keyword("how long the job is kept after its end", check_positive)
    ] = TTL_SECONDS
    image_pull_secret: Annotated[
        tuple[str, ...] | None, Keyword("pull secrets of the workspace; [] for none", _check_names)
    ] = None
    visibility: Annotated[str, Keyword("who sees the job", one_of("private", "public"))] = "private"
