"""Real clusters for these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from lab.kubernetes.fixtures import control_plane, played, real, with_nodes

__all__ = ["control_plane", "played", "real", "with_nodes"]
