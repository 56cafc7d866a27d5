"""What a case gets to work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Environment


@dataclass(frozen=True)
class Place:
    folder: Path
    """Its own, thrown away afterwards."""
    peers: Mapping[str, Environment]
