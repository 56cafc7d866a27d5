"""Which GPUs this machine has."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.untrusted import number

QUERY = (
    "nvidia-smi",
    "--query-gpu=index,uuid,memory.used,name",
    "--format=csv,noheader,nounits",
)

_MOST_PRETENDED = 65_536


@dataclass(frozen=True)
class Gpu:
    """One GPU: its number for CUDA, and the name under which it is leased."""

    index: str
    key: str
    model: str = ""
    used_mib: int = 0
    """Memory in use, by leased jobs and by any other program."""


def discover() -> list[Gpu]:
    """The GPUs that jobs may use: pretended ones, or what nvidia-smi lists, or none."""
    pretended = settings.get("TAO_LOCAL_GPUS")
    gpus = pretend(pretended) if pretended else _ask_nvidia_smi()
    allowed = settings.process_environment().get("CUDA_VISIBLE_DEVICES")
    return gpus if allowed is None else restrict(gpus, allowed)


def can_tell() -> bool:
    """Whether this machine can list its GPUs."""
    return bool(settings.get("TAO_LOCAL_GPUS")) or shutil.which(QUERY[0]) is not None


def pretend(text: str) -> list[Gpu]:
    """`"4"` is four GPUs numbered from 0; `"2,3"` are those two."""
    count = number(text, _MOST_PRETENDED)
    indexes = text.split(",") if count is None else [str(index) for index in range(count)]
    names = [index.strip() for index in indexes]
    if not all(names):
        raise ValidationError(f"TAO_LOCAL_GPUS={text!r}: give a number, or ids such as 0,1")
    return [Gpu(name, f"pretended-{name}", "pretended") for name in names]


def parse_nvidia_smi(text: str) -> list[Gpu]:
    """Read `index, uuid, memory.used, name` lines."""
    rows = [[part.strip() for part in line.split(",", 3)] for line in text.splitlines() if line]
    return [
        Gpu(row[0], row[1], row[3], number(row[2]) or 0)
        for row in rows
        if len(row) == 4 and row[0].isdigit()
    ]


def restrict(gpus: list[Gpu], visible: str) -> list[Gpu]:
    """Honour a CUDA_VISIBLE_DEVICES of the caller: its jobs get no other GPUs."""
    wanted = [name.strip() for name in visible.split(",") if name.strip()]
    return [gpu for name in wanted for gpu in gpus if name == gpu.index or gpu.key == name]


def _ask_nvidia_smi() -> list[Gpu]:
    if shutil.which(QUERY[0]) is None:
        return []
    try:
        answer = subprocess.run(QUERY, capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired as error:
        raise BackendUnreachableError("nvidia-smi did not answer within 30 s") from error
    except OSError as error:
        raise BackendUnreachableError(f"nvidia-smi cannot be run: {error}") from error
    if answer.returncode != 0:
        raise BackendUnreachableError(
            f"nvidia-smi failed ({answer.returncode}): {(answer.stderr or answer.stdout).strip()}"
        )
    return parse_nvidia_smi(answer.stdout)
