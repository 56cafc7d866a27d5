"""What a run says about one target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One target; `met` is None when the run cannot tell."""

    target: str
    found: str
    met: bool | None
