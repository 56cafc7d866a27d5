"""Real clusters for these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "conformance"))

from lab.slurm.fixtures import private_slurm, shared_slurm, slurm_cluster

__all__ = ["private_slurm", "shared_slurm", "slurm_cluster"]
