"""Findings about GPUs, from what was told or seen of them: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tao_sdk.preflight.checks import Check, failed, passed, skipped, warning
from tao_sdk.preflight.flags import with_flag
from tao_sdk.preflight.gpu_architecture import (
    as_sm,
    check_gpu_architecture_compatibility,
    in_order,
    known_limit,
    normalize_supported_sms,
)
from tao_sdk.preflight.request import PreflightRequest

QUERY = (
    "nvidia-smi",
    "--query-gpu=index,uuid,memory.used,memory.total,compute_cap,driver_version,name",
    "--format=csv,noheader,nounits",
)
_OTHER_TARGET = "Choose another platform, node type or image, or a smaller model."
# A GPU with more memory in use has a process: a driver keeps some memory for itself.
_IN_USE_MIB = 1024


@dataclass(frozen=True)
class GpuFacts:
    """One GPU; None and "" are for what is not known."""

    index: str
    key: str
    used_mib: int | None = None
    total_mib: int | None = None
    sm: str = ""
    driver: str = ""
    model: str = ""

    @property
    def kind(self) -> str:
        """What it has in common with others."""
        memory = f"{self.total_mib / 1024:.1f} GiB" if self.total_mib else ""
        facts = ", ".join(filter(None, (memory, self.sm)))
        return f"{self.model or 'GPU'}{f' ({facts})' if facts else ''}"


_MIB = 1 << 20


def parse_gpus(text: str) -> list[GpuFacts]:
    """The lines of `QUERY`'s answer; what else is printed is skipped."""
    found = []
    for line in text.splitlines():
        row = [part.strip() for part in line.split(",", 6)]
        if len(row) == 7 and row[0].isdigit():
            used, total = (int(cell) if cell.isdigit() else None for cell in row[2:4])
            found.append(GpuFacts(row[0], row[1], used, total, as_sm(row[4]), row[5], row[6]))
    return found


def gpu_checks(request: PreflightRequest, gpus: Sequence[GpuFacts] | None) -> Iterator[Check]:
    """Count, memory and architecture; None where the GPUs could not be inspected."""
    if not request.wants_gpus:
        yield skipped("gpu", "the job uses no GPU")
        return
    yield from _count(request, gpus)
    yield from _memory(request, gpus)
    yield from _architecture(request, gpus)
    yield from _allowed(request, gpus)


def occupancy(request: PreflightRequest, gpus: Sequence[GpuFacts], leased: set[str]) -> Check:
    """Which GPUs are in use, and which the job would be given."""
    wanted = len(gpus) if request.gpu_count == -1 else request.gpu_count or 1
    busy = {
        gpu.index: "leased to a job"
        if gpu.key in leased
        else f"{gpu.used_mib} of {gpu.total_mib or '?'} MiB in use"
        for gpu in gpus
        if gpu.key in leased or (gpu.used_mib or 0) >= _IN_USE_MIB
    }
    free = [gpu.index for gpu in gpus if gpu.index not in busy]
    chosen = free[:wanted]
    told = [f"GPU {index}: {why}" for index, why in busy.items()]
    told.append(f"free: {', '.join(free) or 'none'}")
    details = {"free": free, "busy": busy, "chosen": chosen}
    if len(free) < wanted:
        return warning(
            "gpu.free",
            f"{'; '.join(told)}; the job asks for {wanted}",
            "Wait for the others, ask for fewer GPUs, or name them with the option gpu_ids; a job "
            "may also wait for them (the option when_busy=wait).",
            **details,
        )
    return passed("gpu.free", f"{'; '.join(told)}; chosen: {', '.join(chosen)}", **details)


def _count(request: PreflightRequest, gpus: Sequence[GpuFacts] | None) -> Iterator[Check]:
    there = request.target_gpu_count
    if there is None and gpus is not None:
        there = len(gpus)
    wanted = request.gpu_count
    if there is None:
        if wanted is not None:
            yield warning(
                "gpu.count",
                f"GPUs needed: {wanted}; how many there are is not known",
                with_flag("Say so: {} N", request.flags.target_gpu_count),
            )
        return
    least = there if wanted == -1 else wanted or 1
    if there < max(1, least):
        yield failed(
            "gpu.count",
            f"GPUs needed: {max(1, least)}; there: {there}",
            f"Ask for fewer. {_OTHER_TARGET}",
        )
    else:
        kinds = Counter(gpu.kind for gpu in gpus or ())
        named = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
        yield passed("gpu.count", named or f"{there} GPU{'s' * (there != 1)}")


def _memory(request: PreflightRequest, gpus: Sequence[GpuFacts] | None) -> Iterator[Check]:
    # A GPU sold as 80 GB has 85.5 of them, or 79.6 GiB, and a request for 80 means that GPU. A
    # warning may come too early; a refusal may not.
    generous = list(request.target_gpu_memory_gb)
    strict = generous
    if not generous:
        known = [gpu.total_mib for gpu in gpus or () if gpu.total_mib]
        generous = [mib * _MIB / 1e9 for mib in known]
        strict = [mib / 1024 for mib in known]
    floor = request.min_gpu_memory_gb
    if not generous:
        if floor is not None:
            yield failed(
                "gpu.memory",
                f"{floor:g} GB per GPU are needed, and how much there is is not known",
                with_flag("Say so: {} GB", request.flags.target_gpu_memory),
            )
        return
    given = request.target_gpu_memory_gb
    if request.target_gpu_count and len(given) not in (0, 1, request.target_gpu_count):
        yield failed(
            "gpu.memory",
            f"memory of {len(given)} GPUs was given, and there are {request.target_gpu_count}",
            with_flag("Give {} once for all, or once for each.", request.flags.target_gpu_memory),
        )
        return
    least = min(generous)
    if floor is not None and least < floor:
        yield failed(
            "gpu.memory",
            f"the smallest GPU has {least:.1f} GB, {floor:g} GB are needed",
            _OTHER_TARGET,
        )
        return
    threshold = request.low_vram_threshold_gb
    if min(strict) < threshold:
        yield warning(
            "gpu.memory",
            f"the smallest GPU has {min(strict):.1f} GiB, less than {threshold:g}: large models "
            "may run out of memory",
            "Use a smaller batch, gradient checkpointing, a lower precision, or more GPUs.",
        )
    else:
        yield passed("gpu.memory", f"{least:.1f} GB per GPU at least")


def _architecture(request: PreflightRequest, gpus: Sequence[GpuFacts] | None) -> Iterator[Check]:
    image = request.container_image
    supported = normalize_supported_sms(request.image_supported_sms) or known_limit(image)
    host = _architectures(request, gpus)
    if not supported and not host:
        return
    if not host and gpus is None:
        yield warning(
            "gpu.architecture",
            f"the image supports {', '.join(in_order(supported))} only, and which GPUs the job "
            "gets is not known",
            with_flag("Say so: {} SM", request.flags.gpu_arch)
            or "Make sure that it gets one of them.",
        )
        return
    result = check_gpu_architecture_compatibility(host, supported, image=image or None)
    if result.ok:
        yield passed("gpu.architecture", result.message, **result.details)
    else:
        yield failed(
            "gpu.architecture",
            result.message,
            "Use an image that is built for these GPUs, or a platform whose GPUs it supports.",
            **result.details,
        )


def _allowed(request: PreflightRequest, gpus: Sequence[GpuFacts] | None) -> Iterator[Check]:
    host = _architectures(request, gpus)
    for label, listed in request.gpu_arch_allowlist.items():
        name = f"gpu.allowlist:{label}"
        allowed = normalize_supported_sms(listed)
        if not host:
            yield failed(
                name,
                f"{label} supports {', '.join(in_order(allowed))}, and the architecture of the "
                "GPUs is not known",
                with_flag("Say so: {} SM", request.flags.gpu_arch),
            )
        elif host - allowed:
            yield failed(
                name,
                f"{label} does not support {', '.join(in_order(host - allowed))}, only "
                f"{', '.join(in_order(allowed))}",
                _OTHER_TARGET,
            )
        else:
            yield passed(name, f"{label} supports {', '.join(in_order(host))}")


def _architectures(request: PreflightRequest, gpus: Iterable[GpuFacts] | None) -> set[str]:
    told = normalize_supported_sms(request.gpu_archs)
    return told or {gpu.sm for gpu in gpus or () if gpu.sm}
