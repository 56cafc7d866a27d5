"""Numbers for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Three digits and a unit that suits them."""
    rounded = float(f"{seconds:.3g}")
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(rounded) >= size:
            return f"{rounded / size:g} {unit}"
    return f"{rounded / 1e-6:g} µs"
