"""Which of a host's GPUs a job may take. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tao_sdk.errors import CapacityError, ValidationError

if TYPE_CHECKING:
    from tao_sdk.platforms.gpus.discovery import Gpu
    from tao_sdk.platforms.request import JobRequest


@dataclass(frozen=True)
class GpuRequest:
    """The GPUs that a job requests: a number for each node (-1: all), or exactly these."""

    count: int
    ids: tuple[str, ...] = ()
    nodes: int = 1

    @classmethod
    def of(cls, request: JobRequest) -> GpuRequest:
        """`gpu_ids` wins over the default count, and must agree with any other count."""
        ids, nodes = request.options.gpu_ids, request.num_nodes
        if ids and request.gpu_count not in (1, len(ids) // nodes):
            share = f" for each of {nodes} nodes" if nodes > 1 else ""
            raise ValidationError(
                f"gpu_ids names {len(ids)} GPUs, gpu_count says {request.gpu_count}{share}: leave "
                "gpu_count out, or make them agree"
            )
        if len(ids) % nodes:
            raise ValidationError(
                f"gpu_ids: {len(ids)} GPUs cannot be shared evenly by {nodes} nodes"
            )
        return cls(len(ids) // nodes if ids else request.gpu_count, ids, nodes)

    @property
    def any(self) -> bool:
        return self.count != 0

    def __str__(self) -> str:
        return ",".join(self.ids) if self.ids else {-1: "all"}.get(self.count, str(self.count))


def refuse_own_choice(request: JobRequest, *names: str) -> None:
    """Refuse variables that the platform itself sets from the GPUs of the job."""
    for name in names:
        if name in request.env:
            raise ValidationError(
                f"env_vars.{name}: follows from the GPUs that the job is given; choose them with "
                "gpu_count= or gpu_ids="
            )


def choose_gpus(gpus: Sequence[Gpu], wanted: GpuRequest, host: str) -> tuple[list[Gpu], int]:
    """The GPUs that a job may take, best first, and how many each of its nodes takes.

    GPUs in use by programs without a lease come last. Raises when the job can never run on this
    host; `host` is its name in messages.
    """
    if wanted.ids:
        return _named(gpus, wanted.ids, host), wanted.count
    per_node = len(gpus) // wanted.nodes if wanted.count == -1 else wanted.count
    if per_node * wanted.nodes > len(gpus) or per_node == 0:
        share = f" for each of {wanted.nodes} nodes" if wanted.nodes > 1 else ""
        most = len(gpus) // wanted.nodes
        hint = f"at most {most} can be asked for" if most else "gpu_count=0 runs without"
        raise CapacityError(
            f"gpu_count: {wanted} GPUs{share} asked for, {host} has {_list_of(gpus)}; {hint}"
        )
    return sorted(gpus, key=lambda gpu: gpu.used_mib // 1024), per_node


def _named(gpus: Sequence[Gpu], names: Sequence[str], host: str) -> list[Gpu]:
    by_name = {name: gpu for gpu in gpus for name in (gpu.index, gpu.key)}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise CapacityError(
            f"gpu_ids: {host} has no GPU {', '.join(unknown)}; it has {_list_of(gpus)}"
        )
    chosen = list(dict.fromkeys(by_name[name] for name in names))
    if len(chosen) != len(names):
        raise ValidationError(f"gpu_ids: {', '.join(names)} name the same GPU twice")
    return chosen


def _list_of(gpus: Sequence[Gpu]) -> str:
    return f"{len(gpus)} ({', '.join(gpu.index for gpu in gpus)})" if gpus else "none"
