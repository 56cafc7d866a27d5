"""A real Slurm cluster on this machine, behind real login hosts.

A controller, three nodes with eight pretended GPUs each, accounting, containers by a stand-in for
Pyxis that really enters images, and a stand-in for `enroot import`. All of it is bound to
loopback, lives in a folder of its own and is ended by its last user, or by a guard.

    with shared_cluster() as cluster, slurm_lab(cluster) as lab:
        lab.ssh("sbatch --parsable", stdin=script)

A test that stops daemons, takes nodes away or preempts jobs does that to a `private_cluster`.
By hand: `cd tests; python -m lab.slurm up --keep`.
"""

from __future__ import annotations

from lab.slurm.cluster import Cluster
from lab.slurm.lab import SlurmLab, slurm_lab
from lab.slurm.sharing import private_cluster, shared_cluster
from lab.slurm.variant import LoginVariant, SlurmVariant

__all__ = [
    "Cluster",
    "LoginVariant",
    "SlurmLab",
    "SlurmVariant",
    "private_cluster",
    "shared_cluster",
    "slurm_lab",
]
