"""What a case gets to work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Environment

KIB, MIB, GIB = 2**10, 2**20, 2**30


@dataclass(frozen=True)
class Sizes:
    """How much the cases of the runner move."""

    many: int = 1000
    """Objects of `small` bytes each."""
    small: int = 64 * KIB
    large: int = GIB
    """The one large object."""
    few: int = 200
    """So many of the small ones where all of them would take a peer minutes."""
    very_many: int = 10_000
    """Objects of `tiny` bytes each, and one of `huge` bytes: what memory is measured with."""
    tiny: int = KIB
    huge: int = 4 * GIB
    rounds: int = 5
    starts: int = 20


QUICK = Sizes(large=256 * MIB, huge=GIB, rounds=3)


@dataclass(frozen=True)
class Place:
    folder: Path
    """Its own, thrown away afterwards."""
    peers: Mapping[str, Environment]
    sizes: Sizes = Sizes()
