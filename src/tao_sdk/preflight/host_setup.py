"""The bank's own program that looks whether a machine can run containers on its GPUs: pure."""

from __future__ import annotations

SCRIPT = "skills/platform/tao-setup-nvidia-gpu-host/scripts/setup-nvidia-gpu-host.sh"


def check_command(backend: str) -> str:
    """What to type on that machine."""
    return f'bash "$(tao-sdk bank path)/{SCRIPT}" --backend {backend} --check-only'
