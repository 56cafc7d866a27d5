"""The GPUs of this machine, with all that nvidia-smi tells about them."""

from __future__ import annotations

import subprocess

from tao_sdk import settings
from tao_sdk.platforms.gpus.discovery import pretend
from tao_sdk.preflight.checks import Check, failed, warning
from tao_sdk.preflight.gpus import QUERY, GpuFacts, parse_gpus
from tao_sdk.preflight.host_setup import check_command

_HOST_SECONDS = 30


def host_gpus() -> list[GpuFacts] | Check:
    """The GPUs that jobs of this machine may use, or why they are not known."""
    pretended = settings.get("TAO_LOCAL_GPUS")
    if pretended:
        return [GpuFacts(gpu.index, gpu.key, model=gpu.model) for gpu in pretend(pretended)]
    try:
        done = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=_HOST_SECONDS, check=False
        )
    except FileNotFoundError:
        return warning("gpu.driver", "there is no nvidia-smi on this machine")
    except subprocess.TimeoutExpired:
        return failed(
            "gpu.driver",
            f"nvidia-smi did not answer within {_HOST_SECONDS} s",
            "The driver hangs: dmesg tells why; a restart of the machine helps.",
        )
    found = parse_gpus(done.stdout)
    if done.returncode != 0 or not found:
        said = " ".join((done.stderr or done.stdout).split()) or "no GPU is listed"
        return failed(
            "gpu.driver",
            f"nvidia-smi ended with {done.returncode}: {said}",
            f"Install or restart NVIDIA's driver. What is missing:\n  {check_command('docker')}",
        )
    allowed = settings.process_environment().get("CUDA_VISIBLE_DEVICES")
    return found if allowed is None else restrict_facts(found, allowed)


def restrict_facts(gpus: list[GpuFacts], visible: str) -> list[GpuFacts]:
    """Those that CUDA_VISIBLE_DEVICES of the caller names."""
    wanted = [name.strip() for name in visible.split(",") if name.strip()]
    return [gpu for name in wanted for gpu in gpus if name in (gpu.index, gpu.key)]
