"""Which GPU architectures there are, and which of them an image supports: pure.

An architecture is written `sm_90`; `sm90`, `90`, `9.0` and `compute_90` mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tao_sdk.preflight.result import PreflightResult

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")
_TOKEN = re.compile(r"(?:(?:sm|compute)[_-]?)?(\d{1,2})\.?(\d)[af]?", re.IGNORECASE)
# Kernels of an image are built for some architectures only, and its metadata does not say which.
_KNOWN_LIMITS = {"cosmos-rl": frozenset({"sm_80", "sm_90", "sm_100", "sm_120"})}


def parse_compute_capabilities(output: str) -> list[str]:
    """`8.0` -> `sm_80`, `12.1` -> `sm_121`, line by line; whatever else is there is skipped."""
    found = (_CAPABILITY.fullmatch(line.strip()) for line in output.splitlines())
    return [f"sm_{match[1]}{match[2]}" for match in found if match]


def normalize_supported_sms(values: str | Iterable[str] | None) -> set[str]:
    """Architectures in whatever form, by white space, comma or semicolon; junk is ignored."""
    if values is None:
        return set()
    texts = [values] if isinstance(values, str) else values
    words = (word for text in texts for word in re.split(r"[\s,;]+", str(text)))
    return {sm for sm in map(as_sm, words) if sm}


def as_sm(word: str) -> str:
    """One architecture as `sm_90`; "" for what is none."""
    match = _TOKEN.fullmatch(word.strip())
    return f"sm_{match[1]}{match[2]}" if match else ""


def check_gpu_architecture_compatibility(
    host_sms: Iterable[str], supported_sms: Iterable[str], *, image: str | None = None
) -> PreflightResult:
    """Whether every GPU of the host has an architecture that the image supports."""
    host, supported = normalize_supported_sms(host_sms), normalize_supported_sms(supported_sms)
    named = f"image {image}" if image else "the image"
    details = {"host_sms": in_order(host), "supported_sms": in_order(supported)}
    if not host:
        return PreflightResult(False, "the architecture of the GPUs is not known", details)
    if not supported:
        return PreflightResult(
            True,
            f"which architectures {named} supports is unknown, so it is not enforced "
            f"(GPUs: {', '.join(in_order(host))})",
            details,
        )
    unsupported = sorted(host - supported)
    if unsupported:
        return PreflightResult(
            False,
            f"{named} does not support {', '.join(in_order(unsupported))}, only "
            f"{', '.join(in_order(supported))}",
            {**details, "unsupported_sms": unsupported},
        )
    return PreflightResult(True, f"{named} supports {', '.join(in_order(host))}", details)


def known_limit(image: str) -> frozenset[str]:
    """The architectures that an image is known to support; none where nothing is known."""
    for part, supported in _KNOWN_LIMITS.items():
        if part in image.lower():
            return supported
    return frozenset()


def in_order(sms: Iterable[str]) -> list[str]:
    """Older ones first, which is not the order of the alphabet."""
    return sorted(sms, key=lambda sm: int(sm.removeprefix("sm_")))
