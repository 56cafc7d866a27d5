"""The answer of the single functions of `tao_sdk.preflight`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class PreflightResult:
    """Whether it is as it should be, in words, and with facts."""

    ok: bool
    message: str
    details: dict[str, Any] = field(default_factory=dict)
